//! Tests of the sketch against exact counting.

use super::*;
use proptest::prelude::*;
use sluicegate_core::Micros;
use std::collections::HashMap;

const START: Timestamp = Timestamp::now(1_705_312_800_000_000);

fn decay() -> Decay {
    Decay::new(Micros::from_secs(1))
}

/// The weight of one request at the start.
fn unit() -> u64 {
    decay().age(START, START).weight()
}

fn add(shard: &mut Sketch<u64>, hash: u64, now: Timestamp) {
    shard.add(hash, 1, &decay(), now, |label| *label = hash);
}

/// A Zipf stream: key n occurs about 1/n as often as key 1.
fn zipf(keys: u64, length: usize) -> impl Strategy<Value = Vec<u64>> {
    // The inverse of a uniform number has this distribution.
    let key = (1_u64..=1 << 32).prop_map(move |uniform| ((1 << 32) / uniform).min(keys));
    prop::collection::vec(key, 1..length)
}

/// A few frequent keys among many that occur once or twice, in any order.
fn flooded(length: usize) -> impl Strategy<Value = Vec<u64>> {
    let key = prop_oneof![1 => 1_u64..20, 5 => 1_000_u64..1_000_000];
    prop::collection::vec(key, 1..length)
}

/// Rounds over one key more than there are counters: the worst case for a sketch that keeps the latest keys.
fn rounds() -> impl Strategy<Value = Vec<u64>> {
    (1_usize..60, 0_u64..40).prop_map(|(rounds, heavy)| {
        let round = (1..=COUNTERS as u64 + 1).chain((0..heavy).map(|_| 1));
        round.collect::<Vec<_>>().repeat(rounds)
    })
}

/// Checks all guarantees of the paper.
fn holds(stream: &[u64]) -> Result<(), TestCaseError> {
    let (mut shard, mut exact) = (Sketch::new(START), HashMap::<u64, u64>::new());
    for key in stream {
        add(&mut shard, *key, START);
        *exact.entry(*key).or_default() += unit();
    }
    let total = stream.len() as u64 * unit();
    prop_assert_eq!(shard.sums.iter().sum::<u64>(), total);
    let mut heaviest: Vec<u64> = exact.values().copied().collect();
    heaviest.sort_unstable_by(|one, other| other.cmp(one));
    // Without the k heaviest keys, the remaining counters share the remaining weight.
    let heavier = (0..COUNTERS).map(|k| heaviest.iter().take(k).sum::<u64>());
    let error_max = heavier.enumerate().map(|(k, sum)| (total - sum) / (COUNTERS - k) as u64).min();
    let error_max = error_max.unwrap_or(total);
    for (key, has) in &exact {
        let (WeightBounds { at_least, error }, counter) = shard.sum_of(*key);
        prop_assert!(at_least <= *has && *has <= at_least + error, "{key} has {has}: {at_least} + {error}");
        prop_assert!(error <= error_max, "{error} of at most {error_max}");
        prop_assert!(counter.is_some() || *has <= error_max, "{key} has {has} and has no counter");
    }
    for (hash, _, label) in shard.keys() {
        prop_assert_eq!(hash, *label, "the label belongs to the key");
    }
    Ok(())
}

proptest! {
    #[test]
    fn counts_stay_within_their_error_on_zipf_streams(stream in zipf(10_000, 5_000)) {
        holds(&stream)?;
    }

    #[test]
    fn counts_stay_within_their_error_in_a_flood_of_new_keys(stream in flooded(5_000)) {
        holds(&stream)?;
    }

    #[test]
    fn counts_stay_within_their_error_in_the_worst_case_order(stream in rounds()) {
        holds(&stream)?;
    }

    /// Compares with powers of two in floating point, at microsecond resolution. A time step is 1.1 %, so the sketch
    /// may be off by that much beyond its error.
    #[test]
    #[expect(clippy::float_arithmetic, reason = "the reference for the decay is not part of a decision")]
    fn decayed_counts_stay_within_their_error(
        stream in prop::collection::vec((prop_oneof![1_u64..5, 5_u64..500], 0_u64..50_000), 1..1_000),
        pause in 0_u64..40_000_000,
    ) {
        const STEP: f64 = 1.011;
        let (mut shard, mut now) = (Sketch::new(START), START);
        let mut exact = HashMap::<u64, f64>::new();
        let mut fade = |exact: &mut HashMap<u64, f64>, micros: u64| {
            let left = (-(micros as f64) / 1e6).exp2();
            exact.values_mut().for_each(|has| *has *= left);
            now = now.plus(Micros::from_micros(micros));
            now
        };
        for (key, micros) in &stream {
            let now = fade(&mut exact, *micros);
            add(&mut shard, *key, now);
            *exact.entry(*key).or_default() += 1.0;
        }
        let now = fade(&mut exact, pause);
        let one = shard.age(&decay(), now).weight() as f64;
        for (key, has) in &exact {
            let (WeightBounds { at_least, error }, _) = shard.sum_of(*key);
            let (least, most) = (at_least as f64 / one, (at_least + error) as f64 / one);
            prop_assert!(least <= has * STEP + 1e-5, "{key} has {has}: at least {least}");
            prop_assert!(most >= has / STEP - 1e-5, "{key} has {has}: at most {most}");
        }
    }
}

/// A client that sends each request under a new name must neither hide other clients nor appear among the heaviest.
#[test]
fn keys_that_occur_once_displace_only_each_other() {
    let mut shard = Sketch::new(START);
    for request in 0..1_000_000_u64 {
        let now = START.plus(Micros::from_micros(request));
        // One request in 40 belongs to one key: more than one in 64.
        let hash = if request.is_multiple_of(40) { 7 } else { 1_000 + request };
        add(&mut shard, hash, now);
    }
    let now = START.plus(Micros::from_secs(1));
    let one = shard.age(&decay(), now).weight();
    let (WeightBounds { at_least, error }, counter) = shard.sum_of(7);
    assert!(counter.is_some());
    // 25,000 requests, the first of which have decayed to one half.
    assert!((17_800..=18_200).contains(&(at_least / one)) && error == 0, "{at_least} + {error} in {one}");
    let others = shard.keys().filter(|(hash, ..)| *hash != 7);
    assert!(others.map(|(_, sum, _)| sum.at_least / one).all(|requests| requests <= 1));
}

#[test]
fn old_counts_decay_to_zero() {
    let mut shard = Sketch::new(START);
    (1..=COUNTERS as u64).for_each(|key| add(&mut shard, key, START));
    let later = START.plus(Micros::from_secs(3_600));
    assert!(shard.age(&decay(), later) == decay().age(later, later));
    assert!(shard.keys().all(|(_, sum, _)| sum.at_least == 0 && sum.error <= 1));
    add(&mut shard, 1, later);
    assert_eq!(shard.sum_of(1).0.at_least, unit());
}

#[test]
fn key_that_takes_over_a_hot_counter_is_not_hot() {
    let mut shard = Sketch::new(START);
    add(&mut shard, 1, START);
    let Some(counter) = shard.find(1) else { panic!("it has a counter") };
    shard.set_hot(counter, true);
    assert!(shard.is_hot(counter));
    (2..=COUNTERS as u64 + 1).for_each(|key| add(&mut shard, key, START));
    assert_eq!((shard.hashes[counter], shard.is_hot(counter)), (COUNTERS as u64 + 1, false));
}
