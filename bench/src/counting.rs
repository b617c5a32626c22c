//! The cost of metrics: a limiter without an observer beside one whose decisions go into the server's
//! counters, and one that also tracks the top identities, as the server does.
//!
//! The three take turns in short slices. A slice is measured by the processor time of its own thread, because the
//! difference is some nanoseconds and other processes must not show in it.

/// The server is a program, not a library: this compiles those of its files that count a decision.
#[path = "../../crates/sluicegate-server/src/metrics"]
mod metrics {
    #[expect(dead_code, reason = "the server counts more than decisions")]
    pub(crate) mod counters;
    mod histogram;
    #[expect(dead_code, reason = "the server reads what is counted")]
    mod thread_counters;
    mod thread_slot;
}

use crate::core_bench::{NANOS, THREADS, threads_text};
use crate::goal::Goal;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::workload;
use crate::{Options, cores};
use metrics::counters::DecisionCounters;
use rustix::time::{ClockId, clock_gettime};
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::observe::{DecisionEvent, NoObserver, Operation};
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::top_k::TopClients;
use sluicegate::{Limiter, MemoryStore, Observer, Request};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Turns of each contender per round, and decisions per turn.
const TURNS: usize = 40;
const DECISIONS: usize = 50_000;
/// The number of identities: few enough to stay in a cache.
const IDENTITIES: usize = 10_000;

const UNCOUNTED: &str = "nobody counts";
const COUNTED: &str = "the server's metrics";
const WATCHED: &str = "and busiest identities";
/// The bound for the cost of metrics.
const GOAL_NANOS: f64 = 30.0;

/// The observers of the limiters, in the order of the table.
type Limiters =
    (Limiter<MemoryStore>, Limiter<MemoryStore, SystemClock, Watch>, Limiter<MemoryStore, SystemClock, Watch>);

/// Adds the tables and the goals.
pub(crate) fn measure(options: &Options, run: &mut Run) -> Result<(), String> {
    let names = workload::keys(IDENTITIES);
    let turns = if options.quick { TURNS / 10 } else { TURNS };
    for threads in THREADS {
        let title = format!("a check by one rule, {}", threads_text(threads));
        eprintln!("{title}, {} rounds …", options.rounds);
        let mut sheet = Sheet::new(&title, UNCOUNTED);
        for _ in 0..options.rounds {
            let nanos = round(&names, threads, turns)?;
            for (name, nanos) in [UNCOUNTED, COUNTED, WATCHED].into_iter().zip(nanos) {
                sheet.add(name, &[(NANOS, nanos)]);
            }
        }
        let pairs = sheet.rounds(COUNTED, NANOS).iter().zip(sheet.rounds(UNCOUNTED, NANOS));
        let added = pairs.map(|(counted, uncounted)| counted - uncounted).collect();
        let what = format!("metrics of a decision, {}", threads_text(threads));
        run.goals.push(Goal::at_most(what, "", GOAL_NANOS, added).of("ns"));
        run.sheets.push(sheet);
    }
    Ok(())
}

/// Nanoseconds of a core per decision, for each of the three.
fn round(names: &[String], threads: usize, turns: usize) -> Result<[f64; 3], String> {
    let (limiters, barrier) = (limiters()?, Barrier::new(threads));
    let used: Vec<Option<[Duration; 3]>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (limiters, barrier, core) = (&limiters, &barrier, cores::nth(thread));
                // Each thread has its own identities: false sharing between two cores would hide all other costs.
                let own = &names[thread * names.len() / threads..(thread + 1) * names.len() / threads];
                scope.spawn(move || {
                    core.map(core_affinity::set_for_current);
                    take_turns(limiters, own, turns, barrier)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().ok().flatten()).collect()
    });
    let mut sums = [0.0; 3];
    for used in used {
        let used = used.ok_or("a request was not allowed")?;
        sums.iter_mut().zip(used).for_each(|(sum, used)| *sum += used.as_nanos() as f64);
    }
    Ok(sums.map(|sum| sum / (DECISIONS * turns * threads) as f64))
}

/// The processor time of this thread in the turns of each contender; `None` if a request was denied. All threads take the same turn
/// at once, and each round starts with another contender.
fn take_turns(limiters: &Limiters, names: &[String], turns: usize, barrier: &Barrier) -> Option<[Duration; 3]> {
    let (uncounted, counted, watched) = limiters;
    let mut used = [Some(Duration::ZERO); 3];
    // The first round creates the keys and does not count.
    for turn in 0..3 * (turns + 1) {
        let whose = (turn + turn / 3) % 3;
        barrier.wait();
        let this = match whose {
            0 => turn_of(uncounted, names),
            1 => turn_of(counted, names),
            _ => turn_of(watched, names),
        };
        if turn >= 3 || this.is_none() {
            used[whose] = used[whose].zip(this).map(|(used, this)| used + this);
        }
    }
    let [uncounted, counted, watched] = used;
    Some([uncounted?, counted?, watched?])
}

fn turn_of<O: Observer>(limiter: &Limiter<MemoryStore, SystemClock, O>, names: &[String]) -> Option<Duration> {
    let before = processor_time()?;
    for step in 0..DECISIONS {
        let request = Request::new("service.read", &names[step % names.len()]);
        let mut context = Context::from_waker(Waker::noop());
        // The embedded store never suspends.
        let Poll::Ready(Ok(decision)) = pin!(limiter.check(&request)).poll(&mut context) else { return None };
        if !black_box(decision).is_allowed() {
            return None;
        }
    }
    processor_time()?.checked_sub(before)
}

fn processor_time() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok()
}

fn limiters() -> Result<Limiters, String> {
    let now = SystemClock::new().now();
    let watch = |hot: Option<TopClients>| Watch { counters: DecisionCounters::default(), hot };
    Ok((
        limiter()?.observed(NoObserver),
        limiter()?.observed(watch(None)),
        limiter()?.observed(watch(Some(TopClients::new(now)))),
    ))
}

fn limiter() -> Result<Limiter<MemoryStore>, String> {
    let rate = Rate::new(1, Micros::from_secs(10)).map_err(|error| error.to_string())?;
    let quota = Quota::from(TokenBucket::new(30_000_000, rate).map_err(|error| error.to_string())?);
    let rule = Rule::new("service", Limits::all("service", [(None, quota)]));
    let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Deny).map_err(|error| error.to_string())?;
    Ok(Limiter::new(rules, MemoryStore::default(), SystemClock::new()))
}

/// The work of the server's observer for each decision that used the store.
struct Watch {
    counters: DecisionCounters,
    hot: Option<TopClients>,
}

impl Observer for Watch {
    fn wants_durations(&self) -> bool {
        true
    }

    fn decided(&self, decided: &DecisionEvent<'_>) {
        self.counters.decided(decided);
        if let Some(hot) = &self.hot {
            let DecisionEvent { request, decision, asked_at, .. } = decided;
            hot.record(request.tenant, request.identity, !decision.is_allowed(), *asked_at);
        }
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        self.counters.store_took(operation, took);
    }
}
