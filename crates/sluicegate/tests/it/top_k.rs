//! The heaviest keys and clients, through the public API.

use sluicegate::core::{Micros, Timestamp};
use sluicegate::top_k::{
    LABEL_CHARACTERS_MAX, SAMPLE_ONE_IN, TOP_KEYS_MAX, TopClient, TopClients, TopKeys, TopKeysOptions,
};
use sluicegate::{Identity, Request};
use sluicegate_testkit::conformance::START;
use std::hash::{BuildHasher as _, RandomState};

/// Hashes like those of a store: unpredictable.
fn hashes(count: usize) -> Vec<u64> {
    let state = RandomState::new();
    (0..count).map(|key| state.hash_one(key)).collect()
}

fn after(micros: u64) -> Timestamp {
    START.plus(Micros::from_micros(micros))
}

/// Records a key at this rate for this time, and returns the end.
fn stream(keys: &TopKeys<u64>, hash: u64, per_second: u64, from: Timestamp, seconds: u64) -> Timestamp {
    for request in 0..per_second * seconds {
        let now = from.plus(Micros::from_micros(request * 1_000_000 / per_second));
        keys.record(hash, 1, now, |label| *label = hash);
    }
    from.plus(Micros::from_secs(seconds))
}

#[test]
fn steady_stream_has_its_rate_and_decays_when_it_ends() {
    let keys = TopKeys::new(TopKeysOptions::default(), START);
    let hash = hashes(1)[0];
    let end = stream(&keys, hash, 1_000, START, 12);
    let rate = |seconds| keys.rate_per_second(hash, end.plus(Micros::from_secs(seconds)));
    assert!((985..=1_015).contains(&rate(0)), "{}", rate(0));
    assert!((490..=510).contains(&rate(1)) && (58..=66).contains(&rate(4)), "{} {}", rate(1), rate(4));
    assert_eq!((rate(30), keys.top(10, end.plus(Micros::from_secs(60))).len()), (0, 0));
}

/// A key that alternates between 120 and 180 per second keeps its status, hot or not.
#[test]
fn key_is_hot_from_200_until_below_100() {
    let keys = TopKeys::new(TopKeysOptions::default(), START);
    let hash = hashes(1)[0];
    let mut now = START;
    for (per_second, is_hot) in [
        (180, false),
        (120, false),
        (230, true),
        (180, true),
        (120, true),
        (80, false),
        (120, false),
        (180, false),
    ] {
        now = stream(&keys, hash, per_second, now, 12);
        assert_eq!(keys.is_hot(hash, now), is_hot, "at {per_second}: {:?}", keys.rate(hash, now));
    }
    now = stream(&keys, hash, 500, now, 12);
    assert!(keys.is_hot(hash, now));
    let later = now.plus(Micros::from_secs(5));
    assert!(!keys.is_hot(hash, later) && !keys.is_hot(hash, now.plus(Micros::from_secs(6))));
    assert!(!keys.is_hot(1, now), "no request was recorded");
}

#[test]
fn heaviest_keys_are_complete_and_in_order() {
    let keys = TopKeys::new(TopKeysOptions::default(), START);
    let hashes = hashes(100_000);
    // The first fifty have 100, 99, 98 … requests, among as many that have one.
    let (heavy, light) = hashes.split_at(50);
    let mut light = light.iter();
    for round in 0..100 {
        for (place, hash) in heavy.iter().enumerate().filter(|(place, _)| place + round < 100) {
            keys.record(*hash, 10, START, |label| *label = *hash);
            assert!(place < 50);
            light.by_ref().take(10).for_each(|hash| keys.record(*hash, 1, START, |label| *label = *hash));
        }
    }
    let top = keys.top(50, START);
    let mut found: Vec<u64> = top.iter().map(|key| key.label).collect();
    assert!(top.iter().all(|key| key.hash == key.label));
    assert!(top.windows(2).all(|pair| pair[0].rate.millis_per_second >= pair[1].rate.millis_per_second));
    let mut expected = heavy.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(keys.top(usize::MAX, START).len() <= TOP_KEYS_MAX);
}

#[test]
fn contended_requests_are_skipped_and_counted() {
    const REQUESTS: u64 = 200_000;
    let keys = TopKeys::<u64>::new(
        TopKeysOptions { half_life: Micros::from_secs(3_600), ..TopKeysOptions::default() },
        START,
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..REQUESTS).for_each(|_| keys.record(1, 1, START, |_| {})));
        }
    });
    let recorded = 4 * REQUESTS - keys.skipped();
    // One request is 0.1925 thousandths per second at this half-life.
    let expected = recorded * 1_925 / 10_000;
    let millis = keys.rate(1, START).millis_per_second;
    assert!(millis.abs_diff(expected) <= expected / 1_000 + 1, "{millis} for {recorded}");
}

fn record(hot: &TopClients, request: &Request<'_>, is_denied: bool, now: Timestamp) {
    hot.record(request.tenant, request.identity, is_denied, now);
}

fn names(top: &[TopClient]) -> Vec<(&str, Identity<'_>)> {
    top.iter().map(|each| (each.tenant(), each.identity())).collect()
}

#[test]
fn clients_are_distinguished_by_tenant_and_identity() {
    let hot = TopClients::new(START);
    let address = Identity::Address([192, 0, 2, 7].into());
    let long = "x".repeat(300);
    let mut sent = [
        (Request::new("r", "192.0.2.7"), 1_000),
        (Request { identity: address, ..Request::new("r", "") }, 2_000),
        (Request::new("r", "192.0.2.7").tenant("other"), 4_000),
        (Request::new("another", &long), 8_000),
    ];
    for (request, times) in &sent {
        (0..*times).for_each(|_| record(&hot, request, false, START));
    }
    sent.reverse();
    let expected = sent.map(|(request, _)| match request.identity {
        Identity::Named(name) => (request.tenant, Identity::Named(&name[..name.len().min(LABEL_CHARACTERS_MAX)])),
        address => (request.tenant, address),
    });
    assert_eq!(names(&hot.heaviest(10, START)), expected);
    assert_eq!(names(&hot.heaviest(2, START)), expected[..2]);
    assert!(hot.most_denied(10, START).is_empty());
}

/// A client with a few denials appears although others send many more requests.
#[test]
fn denials_have_counters_of_their_own() {
    let hot = TopClients::new(START);
    let names: Vec<String> = (0..5_000).map(|number| format!("user-{number}")).collect();
    for micros in 0..500_000 {
        let name = &names[micros % names.len()];
        record(&hot, &Request::new("r", name), false, after(micros as u64));
        if micros % 500 == 0 {
            record(&hot, &Request::new("r", "mallory"), true, after(micros as u64));
        }
    }
    let denied = hot.most_denied(10, after(500_000));
    assert_eq!(denied.len(), 1);
    assert_eq!(denied[0].identity(), Identity::Named("mallory"));
    // A thousand of them, each counting 0.069 per second: about 68 are expected, with a standard deviation of 5.7.
    let rate = denied[0].denials.millis_per_second;
    assert!((34_000..=102_000).contains(&rate) && denied[0].denials.error_millis == 0, "{denied:?}");
}

/// One of eight is sampled and counts for eight. Samples are unbiased and independent, so the count of n requests of
/// one client has a standard deviation of √(7·n). A deviation of six times that occurs once in a thousand million.
#[test]
fn samples_represent_all_requests() {
    const REQUESTS: u64 = 1_000_000;
    let hot = TopClients::new(START);
    for request in 0..REQUESTS {
        // A pattern of which a fixed sample of every eighth would see all or nothing.
        let identifier = if request % SAMPLE_ONE_IN == 0 { "every eighth" } else { "all others" };
        record(&hot, &Request::new("r", identifier), request % 2 == 0, START);
    }
    let top = hot.heaviest(10, START);
    // With a half-life of ten seconds, a request is 69.3 thousandths per second.
    let requests = |millis: u64| millis * 10_000 / 693_147;
    for (found, expected) in [(&top[0].requests, REQUESTS * 7 / 8), (&top[1].requests, REQUESTS / 8)] {
        let found = requests(found.millis_per_second);
        let off = (6 * (7 * expected).isqrt()) + expected / 1_000;
        assert!(found.abs_diff(expected) <= off, "{found} for {expected}");
    }
    let denied = requests(top[0].denials.millis_per_second);
    assert!(denied.abs_diff(REQUESTS * 3 / 8) <= 6 * (7 * REQUESTS * 3 / 8).isqrt() + 400, "{denied}");
}
