//! A released reservation leaves no trace: every limit then behaves like a twin without it, however many
//! reservations are held at once and in whatever order they are released.

mod cluster;

use crate::lua_parity::draw::{CALENDAR, Draw, cost, limits};
use crate::redis_server::{Server, on_every_server};
use crate::redis_undo::{Limited, after, bucket, has_credits};
use sluicegate::core::{
    Align, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket, Verdict,
};
use sluicegate::store::Store;
use sluicegate_testkit::conformance::{DEADLINE, START};

const SECOND: u64 = 1_000_000;

/// Limits, and a twin that receives every charge but the released reservations.
struct Twins<'d> {
    draw: &'d mut Draw,
    limited: Limited,
    twin: Limited,
    now: Timestamp,
    reserved: Vec<(u32, Timestamp)>,
    released: u32,
    story: String,
}

impl<'d> Twins<'d> {
    async fn new(server: &Server, draw: &'d mut Draw, quotas: Vec<Quota>) -> Self {
        let story = format!("{quotas:?}");
        let limited = Limited::of_several(server, 0, quotas.clone()).await;
        let twin = Limited::of_several(server, 1, quotas).await;
        Self { draw, limited, twin, now: START, reserved: Vec::new(), released: 0, story }
    }

    fn note(&mut self, what: &str, cost: u32) {
        self.story += &format!("\n{} {what} {cost}", self.now.as_micros());
    }

    fn pass(&mut self, micros: u64) {
        self.now = Timestamp::now(self.now.as_micros() + micros);
    }

    /// A cost that usually fits many times.
    fn cost(&mut self) -> u32 {
        let index = self.draw.below(self.limited.quotas.len() as u64) as usize;
        let most = self.limited.quotas.iter().map(Quota::limit).min().unwrap_or(0).min(10_000);
        if self.draw.once_in(2) {
            return 1 + self.draw.below(most / 8 + 1) as u32;
        }
        cost(self.draw, &self.limited.quotas[index])
    }

    async fn step(&mut self) {
        let passed = match self.draw.below(5) {
            0 | 1 => 0,
            2 => 1,
            3 => self.draw.below(1_000),
            _ => self.draw.below(25_000),
        };
        self.pass(passed);
        let cost = self.cost();
        match self.draw.below(7) {
            0..3 => self.reserve(cost).await,
            3 | 4 => self.charge(cost).await,
            _ => self.release().await,
        }
    }

    async fn reserve(&mut self, cost: u32) {
        if self.limited.reserve(cost, self.now).await {
            self.note("reserve", cost);
            self.reserved.push((cost, self.now));
        }
    }

    async fn charge(&mut self, cost: u32) {
        if self.limited.charge(cost, self.now).await {
            self.note("charge", cost);
            assert!(self.twin.charge(cost, self.now).await, "{}", self.story);
        }
    }

    async fn release(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        let index = self.draw.below(self.reserved.len() as u64) as usize;
        let (cost, at) = self.reserved.swap_remove(index);
        self.limited.release(cost, at, self.now).await;
        self.note(&format!("release {}", at.as_micros()), cost);
        self.released += u32::from(cost > 0);
    }

    /// Many concurrent reservations, all released within the time that a bucket records them.
    async fn episode(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step().await;
        }
        while !self.reserved.is_empty() {
            self.release().await;
        }
        self.compare().await;
    }

    async fn compare(&mut self) {
        let window = self.limited.quotas.iter().map(|quota| quota.window().as_micros()).max().unwrap_or(1);
        let (near, far) = (self.draw.below(window / 8 + 2), self.draw.below(2 * window));
        for passed in [0, 1, near, far, window - 1, window] {
            let at = Timestamp::now(self.now.as_micros() + passed);
            for cost in [1, self.cost()] {
                let (here, there) =
                    (verdicts(&self.limited, cost, at).await, verdicts(&self.twin, cost, at).await);
                assert_eq!(here, there, "cost {cost} after {passed}: {}", self.story);
            }
        }
    }
}

async fn verdicts(limited: &Limited, cost: u32, at: Timestamp) -> Vec<Verdict> {
    limited.store.peek(&limited.of(cost), at, DEADLINE).await.unwrap().verdicts.into_iter().collect()
}

/// Whether credits expire during a pause within a test. A reservation keeps its client's history alive while it is
/// held, so its credits do not expire meanwhile.
fn is_soon_forgotten(quota: &Quota) -> bool {
    matches!(quota, Quota::TokenBucket(bucket) if has_credits(quota) && bucket.credit_ttl() < Micros::from_secs(60))
}

/// How many reservations were released under the limits that `drawn` returns.
async fn no_trace(server: &Server, seed: u64, drawn: impl Fn(&mut Draw) -> Vec<Quota>) {
    let (mut draw, mut released) = (Draw(seed), 0);
    for _ in 0..30 {
        let quotas = drawn(&mut draw);
        if quotas.iter().any(is_soon_forgotten) {
            continue;
        }
        let mut twins = Twins::new(server, &mut draw, quotas).await;
        for _ in 0..4 {
            twins.episode(24).await;
            let window = twins.limited.quotas[0].window().as_micros();
            let pause = *twins.draw.of(&[2 * SECOND + 1, window, 2 * window]) + twins.draw.below(window);
            twins.pass(pause);
        }
        released += twins.released;
    }
    assert!(released > 200, "only {released} reservations were released");
}

#[test]
fn released_reservations_leave_no_trace_in_buckets_with_and_without_credits() {
    on_every_server(async |server| no_trace(server, 11, |draw| limits(draw, 0, 1)).await);
}

#[test]
fn released_reservations_leave_no_trace_in_sliding_windows() {
    on_every_server(async |server| no_trace(server, 12, |draw| limits(draw, 1, 1)).await);
}

#[test]
fn released_reservations_leave_no_trace_in_sliding_counters() {
    on_every_server(async |server| no_trace(server, 13, |draw| limits(draw, 2, 1)).await);
}

#[test]
fn released_reservations_leave_no_trace_in_fixed_windows() {
    on_every_server(async |server| {
        no_trace(server, 14, |draw| limits(draw, 3, 1)).await;
        no_trace(server, 15, |draw| limits(draw, CALENDAR, 1)).await;
    });
}

#[test]
fn released_reservations_leave_no_trace_in_several_limits_of_one_subject() {
    let several = |draw: &mut Draw| -> Vec<Quota> {
        let mut quotas = Vec::new();
        while quotas.len() < 3 {
            let algorithm = draw.below(6) as usize;
            quotas.extend(limits(draw, algorithm, 1).into_iter().filter(|quota| quota.limit() > 3));
        }
        quotas
    };
    on_every_server(async |server| no_trace(server, 16, several).await);
}

/// As on a Cluster under load: each reservation overlaps with the next ones, and none of them passes.
#[test]
fn a_bucket_refills_while_another_limit_denies_continuously() {
    on_every_server(async |server| {
        // One token in 10 ms; 200 of 1,000 are left.
        let limited = Limited::new(server, 0, bucket(1_000, 10_000)).await;
        assert!(limited.charge(800, START).await);
        for round in 0..500 {
            let now = after(round * 2_000);
            assert!(limited.reserve(1, now).await);
            if let Some(first) = round.checked_sub(8) {
                limited.release(1, after(first * 2_000), now).await;
            }
        }
        for round in 492..500 {
            limited.release(1, after(round * 2_000), after(SECOND)).await;
        }
        assert_eq!(limited.remaining(after(SECOND)).await, 300, "it has refilled for a second");
    });
}

/// More concurrent charges than a bucket records individually. It treats some as later than they were, by less than
/// two seconds and never as earlier. A bucket that was not full since is exact all the same.
#[test]
fn a_bucket_with_very_many_reservations_is_off_by_seconds_at_most_and_only_if_it_was_full() {
    on_every_server(async |server| {
        for used in [0, 500] {
            let limited = Limited::new(server, 0, bucket(1_000, 10_000)).await;
            let twin = Limited::new(server, 1, bucket(1_000, 10_000)).await;
            let (mut draw, mut reserved) = (Draw(21 + used), Vec::new());
            for each in [&limited, &twin] {
                assert!(each.charge(used as u32, START).await);
            }
            for step in 0..400 {
                let now = after(step * 2_000);
                match draw.below(5) {
                    0..3 => {
                        assert!(limited.reserve(1, now).await);
                        reserved.push(now);
                    }
                    3 if step % 4 == 0 => {
                        for each in [&limited, &twin] {
                            assert!(each.charge(3, now).await);
                        }
                    }
                    _ if !reserved.is_empty() => {
                        let at = reserved.swap_remove(draw.below(reserved.len() as u64) as usize);
                        limited.release(1, at, now).await;
                    }
                    _ => {}
                }
            }
            let now = after(400 * 2_000);
            for at in reserved {
                limited.release(1, at, now).await;
            }
            let (here, there) = (limited.remaining(now).await, twin.remaining(now).await);
            // The charges of this test take 0.8 seconds, which is 80 tokens.
            let off = if used > 0 { 0 } else { 80 };
            assert!(here <= there && there <= here + off, "{here} of {there} after {used}");
        }
    });
}

/// A log as the script writes it: entries of one unit, `micros` apart, starting at [`START`], with sums that begin
/// after `base`.
fn log_value(base: u64, entries: u64, micros: u64, window: u64) -> Vec<u8> {
    let mut value = format!("al0{entries},{base},{window}:").into_bytes();
    for index in 0..entries {
        value.extend_from_slice(&(START.as_micros() + index * micros).to_be_bytes()[1..]);
        value.extend_from_slice(&((base + index + 1) % (1 << 48)).to_be_bytes()[2..]);
    }
    value.push(b';');
    value
}

/// Whichever side of the removed units is rewritten, and wherever a sum carries or wraps around.
#[test]
fn a_long_log_keeps_every_other_unit_at_its_time() {
    const ENTRIES: u64 = 600;
    let quota: Quota = SlidingWindow::new(ENTRIES, Micros::from_secs(60)).unwrap().into();
    on_every_server(async |server| {
        for base in [0, (1 << 24) - 300, (1 << 40) - 2, (1 << 48) - 300] {
            for order in 0..3 {
                let mut connection = server.connect().await;
                let limited = Limited::new(server, 0, quota.clone()).await;
                redis::cmd("SET")
                    .arg("sg:1:{default:alice}:rule")
                    .arg(log_value(base, ENTRIES, 1_000, 60 * SECOND))
                    .exec_async(&mut connection)
                    .await
                    .unwrap();
                let mut kept: Vec<u64> = (0..ENTRIES).collect();
                let mut draw = Draw(base + order);
                let now = after(SECOND);
                for step in 0..100 {
                    let index = match order {
                        0 => step / 2,
                        1 => kept.len() - 1 - step / 2,
                        _ => draw.below(kept.len() as u64) as usize,
                    };
                    limited.release(1, after(kept.remove(index) * 1_000), now).await;
                }
                assert_eq!(limited.remaining(now).await, 100);
                for used in (0..kept.len()).step_by(37) {
                    let leaves = kept[used] * 1_000 + 60 * SECOND;
                    let seen = [after(leaves - 1), after(leaves)].map(|at| limited.remaining(at));
                    let [before, at] = seen;
                    assert_eq!([before.await, at.await], [100 + used as u64, 101 + used as u64], "{base} {order}");
                }
            }
        }
    });
}

fn window(limit: u64) -> Quota {
    SlidingWindow::new(limit, Micros::from_secs(60)).unwrap().into()
}

#[test]
fn a_release_takes_nothing_from_charges_after_a_reset() {
    on_every_server(async |server| {
        for quota in [window(10), bucket(10, SECOND)] {
            let limited = Limited::new(server, 0, quota).await;
            assert!(limited.reserve(3, START).await);
            limited.store.reset(&limited.of(1), after(1), DEADLINE).await.unwrap();
            assert!(limited.charge(4, after(2)).await);
            limited.release(3, START, after(3)).await;
            assert_eq!(limited.remaining(after(3)).await, 6);
        }
        // Counters do not distinguish their units: a release takes at most the reserved number.
        let fixed = FixedWindow::new(10, Micros::from_secs(3_600), Align::Epoch).unwrap();
        let counter = SlidingCounter::new(10, Micros::from_secs(3_600)).unwrap();
        for quota in [Quota::from(fixed), Quota::from(counter)] {
            let limited = Limited::new(server, 0, quota).await;
            assert!(limited.reserve(3, START).await);
            limited.store.reset(&limited.of(1), after(1), DEADLINE).await.unwrap();
            assert!(limited.charge(4, after(2)).await);
            limited.release(3, START, after(3)).await;
            let remaining = limited.remaining(after(3)).await;
            assert!((6..=9).contains(&remaining), "{remaining}");
        }
    });
}

/// A refund in between takes the newest units, which are the reserved ones.
#[test]
fn a_refund_during_a_reservation_counts_as_without_it() {
    on_every_server(async |server| {
        let limited = Limited::new(server, 0, window(10)).await;
        let twin = Limited::new(server, 1, window(10)).await;
        for each in [&limited, &twin] {
            assert!(each.charge(2, START).await && each.charge(2, after(10)).await);
        }
        assert!(limited.reserve(3, after(20)).await);
        for each in [&limited, &twin] {
            each.store.refund(&each.of(1), after(30), DEADLINE).await.unwrap();
            assert!(each.charge(1, after(40)).await);
        }
        limited.release(3, after(20), after(50)).await;
        for at in [50, 60 * SECOND - 1, 60 * SECOND, 60 * SECOND + 10, 60 * SECOND + 40] {
            assert_eq!(limited.remaining(after(at)).await, twin.remaining(after(at)).await, "{at}");
        }
    });
}

/// The log is ahead of a clock that went back a little, so a charge joins the newest entry.
#[test]
fn a_small_step_back_of_the_clock_loses_no_units() {
    on_every_server(async |server| {
        let limited = Limited::new(server, 0, window(10)).await;
        assert!(limited.charge(2, after(1_000)).await);
        assert!(limited.reserve(3, after(400)).await);
        assert!(limited.reserve(1, after(600)).await);
        limited.release(3, after(400), after(700)).await;
        limited.release(1, after(600), after(2_000)).await;
        let remaining = limited.remaining(after(2_000)).await;
        assert!((7..=8).contains(&remaining), "{remaining}");
        // Charged before the step, released after it.
        assert!(limited.reserve(4, after(3_000)).await);
        limited.release(4, after(3_000), after(2_500)).await;
        assert_eq!(limited.remaining(after(3_000)).await, remaining);
    });
}

#[test]
fn a_release_does_not_extend_a_clients_history() {
    let rate = Rate::new(1, Micros::from_secs(1)).unwrap();
    let credits: Quota = TokenBucket::with_credits(2, rate, 5, Micros::from_secs(3_600)).unwrap().into();
    on_every_server(async |server| {
        let limited = Limited::new(server, 0, credits.clone()).await;
        assert!(limited.reserve(1, START).await && limited.reserve(1, after(5)).await);
        limited.release(1, START, after(1_000)).await;
        limited.release(1, after(5), after(1_001)).await;
        assert_eq!(limited.remaining(after(100 * SECOND)).await, 2, "it was never seen");
        assert!(limited.charge(1, START).await);
        let nearly = 3_600 * SECOND - 10;
        assert!(limited.reserve(1, after(nearly)).await);
        limited.release(1, after(nearly), after(nearly + 5)).await;
        assert_eq!(limited.remaining(after(nearly + 9)).await, 7);
        assert_eq!(limited.remaining(after(3_601 * SECOND)).await, 2, "its credits are forgotten in time");
    });
}
