//! Calendar windows, from the rule file to the fields of a response, on the embedded store.

use crate::support::block_on;
use sluicegate::clock::ManualClock;
use sluicegate::core::{Micros, Timestamp};
use sluicegate::headers::{Field, HeaderOptions, write_headers};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::store::ErrorClass;
use sluicegate::store::memory::MemoryOptions;
use sluicegate::{Decision, Instances, Limiter, MemoryStore, Request, Retry};
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};

const SECOND: u64 = 1_000_000;
/// 2025-10-25T10:00:00Z, noon in Berlin, on the day before clocks are set back.
const NOON: Timestamp = Timestamp::now(1_761_386_400 * SECOND);

fn rules(limit: u64, window: &str) -> RuleSet {
    let limit = format!("{{ algorithm: fixed_window, limit: {limit}, {window} }}");
    let text = format!("rules: [{{ name: plan, on_store_failure: local, limits: [{limit}] }}]");
    RuleSet::from_yaml(text, "t.yaml", &Environment::new()).unwrap()
}

struct Bench {
    clock: ManualClock,
    limiter: Limiter<MemoryStore, ManualClock>,
}

impl Bench {
    fn new(limit: u64, window: &str, now: Timestamp) -> Self {
        let clock = ManualClock::at(now);
        let store = MemoryStore::new(MemoryOptions::default(), now);
        Self { limiter: Limiter::new(rules(limit, window), store, clock.clone()), clock }
    }

    fn check(&self) -> Decision {
        block_on(self.limiter.check(&Request::new("r", "a"))).unwrap()
    }

    /// The remaining quota, without a charge.
    fn left(&self) -> u64 {
        block_on(self.limiter.peek(&Request::new("r", "a"))).unwrap().tightest().unwrap().verdict.remaining
    }

    fn hours(&self, hours: u64) {
        self.clock.advance(Micros::from_secs(hours * 3_600));
    }
}

fn field(decision: &Decision, wanted: Field) -> String {
    let mut value = String::new();
    write_headers(decision, HeaderOptions::default(), |field, text| {
        if field == wanted {
            value = text.to_owned();
        }
    });
    value
}

#[test]
fn day_of_25_hours_ends_at_midnight() {
    let bench = Bench::new(2, "window: day, timezone: Europe/Berlin", NOON);
    let first = bench.check();
    assert_eq!(field(&first, Field::Policy), "\"plan\";q=2;w=86400");
    assert_eq!(field(&first, Field::RateLimit), "\"plan\";r=1;t=43200");
    assert_eq!(field(&first, Field::Reset), "1761429600");
    assert!(bench.check().is_allowed());
    assert_eq!(bench.check().retry(), Some(Retry::After(Micros::from_secs(12 * 3_600))));

    bench.hours(12);
    let midnight = bench.check();
    assert!(midnight.is_allowed());
    assert_eq!(field(&midnight, Field::Policy), "\"plan\";q=2;w=90000");
    assert_eq!(field(&midnight, Field::RateLimit), "\"plan\";r=1;t=90000");
    assert!(bench.check().is_allowed());
    bench.hours(24);
    assert_eq!(bench.check().retry(), Some(Retry::After(Micros::from_secs(3_600))), "the 25th hour");
    bench.hours(1);
    assert!(bench.check().is_allowed());
}

#[test]
fn billing_month_begins_on_its_day_or_the_last_of_the_month() {
    // 2025-02-10T00:00:00Z.
    let bench = Bench::new(
        5,
        "window: month, anchor: 31, timezone: Europe/Berlin",
        Timestamp::now(1_739_145_600 * SECOND),
    );
    let decision = bench.check();
    // From 31 January to 28 February, both at 23:00 UTC the day before.
    assert_eq!(field(&decision, Field::Policy), format!("\"plan\";q=5;w={}", 28 * 86_400));
    assert_eq!(field(&decision, Field::Reset), "1740697200");
    bench.clock.set(Timestamp::now(1_740_697_200 * SECOND - 1));
    assert_eq!(bench.left(), 4);
    bench.clock.set(Timestamp::now(1_740_697_200 * SECOND));
    assert_eq!(bench.left(), 5);
    // To 31 March, when daylight saving time has begun.
    assert_eq!(field(&bench.check(), Field::Policy), format!("\"plan\";q=5;w={}", 31 * 86_400 - 3_600));
}

#[test]
fn change_of_window_zone_or_anchor_keeps_the_count() {
    let bench = Bench::new(10, "window: 1d", NOON);
    assert!(bench.check().is_allowed());
    let changes = [
        "window: day, timezone: Europe/Berlin",
        "window: day, timezone: America/New_York",
        "window: week, anchor: sunday",
        "window: month, anchor: 26",
        "window: month, anchor: 15",
        "window: hour",
        "window: 1h",
    ];
    for (index, window) in changes.into_iter().enumerate() {
        bench.limiter.replace_rules(rules(10, window));
        assert_eq!(bench.left(), 9 - index as u64, "{window}");
        assert!(bench.check().is_allowed());
    }
    // An hour is too short to accept the end of the month, so the rest of the month ends with the next hour.
    assert_eq!(bench.left(), 2);
    bench.hours(2);
    assert_eq!(bench.left(), 10);
}

#[test]
fn after_a_change_the_count_lasts_until_the_new_window_around_the_old_end() {
    // 2025-11-03T00:00:00Z.
    let now = Timestamp::now(1_762_128_000 * SECOND);
    let bench = Bench::new(2, "window: month", now);
    assert!(bench.check().is_allowed() && bench.check().is_allowed());
    assert_eq!(bench.check().retry(), Some(Retry::After(Micros::from_secs(28 * 86_400))), "to 1 December");
    bench.limiter.replace_rules(rules(2, "window: month, anchor: 15"));
    let days = |days: u64| Some(Retry::After(Micros::from_secs(days * 86_400)));
    assert_eq!(bench.check().retry(), days(42), "to 15 December");
    bench.hours(12 * 24);
    assert_eq!(bench.check().retry(), days(30), "a window of the new calendar began");
    bench.hours(30 * 24);
    assert_eq!(bench.left(), 2);
    // A state that would end with the window after the next, or later, ends with the next window.
    assert!(bench.check().is_allowed());
    bench.limiter.replace_rules(rules(2, "window: day"));
    assert!(bench.check().is_allowed());
    assert_eq!(bench.check().retry(), days(2));
    bench.hours(47);
    assert_eq!(bench.left(), 0);
    bench.hours(1);
    assert_eq!(bench.left(), 2);
}

#[test]
fn refunds_and_sweeps_respect_the_window() {
    let bench = Bench::new(10, "window: day, timezone: Asia/Kolkata", NOON);
    assert!(bench.check().is_allowed() && bench.check().is_allowed());
    let refund = || block_on(bench.limiter.refund(&Request::new("r", "a"))).unwrap();
    assert_eq!(refund().tightest().unwrap().verdict.remaining, 9);
    let sweep = |now| bench.limiter.store().sweep(now, 2_000);
    assert_eq!((bench.limiter.store().used(), sweep(NOON).freed), (1, 0));
    // Midnight in India is half past six in the evening here.
    let midnight = Timestamp::now(NOON.as_micros() + (8 * 3_600 + 1_800) * SECOND);
    // A request with a clock reading that is up to a second late still finds the state.
    let late = midnight.plus(Micros::from_secs(1));
    assert_eq!(sweep(late).freed, 0);
    assert_eq!((sweep(late.plus(Micros::from_micros(1))).freed, bench.limiter.store().used()), (1, 0));
    bench.clock.set(midnight);
    assert_eq!(refund().tightest().unwrap().verdict.remaining, 10, "a refund does not reach another window");
}

#[test]
fn share_of_a_calendar_has_the_same_windows() {
    let (clock, instances) = (ManualClock::at(NOON), Instances::default());
    instances.set(2);
    let store = FaultyStore::new(MemoryStore::new(MemoryOptions::default(), NOON));
    let limiter = Limiter::new(rules(10, "window: day, timezone: Europe/Berlin"), store.clone(), clock.clone())
        .with_fallback(MemoryOptions::default(), instances);
    store.set(Some(Trouble::Fails(ErrorClass::Connection)));
    let admitted = || {
        let sent = (0..20).map(|_| block_on(limiter.check(&Request::new("r", "a"))).unwrap());
        sent.filter(Decision::is_allowed).count()
    };
    assert_eq!((admitted(), admitted()), (5, 0));
    clock.advance(Micros::from_secs(12 * 3_600 - 1));
    assert_eq!(admitted(), 0);
    clock.advance(Micros::from_secs(1));
    assert_eq!(admitted(), 5);
}
