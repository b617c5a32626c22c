//! `core`: nanoseconds per decision, the cost of metrics, and bytes per key.
//!
//! Rounds are interleaved: every round measures every contender on every workload once, so that a noisy
//! minute hits all of them. The median of the rounds counts, and the spread is shown.

use crate::contender::{self, Contender, FLOOR, NAMES};
use crate::counting;
use crate::expiry::{self, Expiry};
use crate::goal::Goal;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::statistics::grouped;
use crate::workload::{self, Workload};
use crate::{Options, cores, processes};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Decisions per measurement and thread.
const DECISIONS: usize = 4_000_000;
pub(crate) const THREADS: [usize; 2] = [1, 2];
const BYTES_KEYS: usize = 1_000_000;

/// The columns of its tables.
pub(crate) const NANOS: &str = "ns per decision";
const BYTES: &str = "bytes per key";
const IDLE: &str = "p99.9 idle, ns";
const EXPIRING: &str = "p99.9 expiring, ns";
/// The goals against governor, by workload.
const GOVERNOR_GOALS: [f64; 3] = [3.0, 5.0, 2.5];

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("core", options);
    measure_decisions(options, &mut run)?;
    counting::measure(options, &mut run)?;
    run.sheets.push(measure_bytes(&mut run.goals)?);
    run.sheets.push(measure_expiry(options, &mut run.goals)?);
    run.finish(options)
}

fn measure_decisions(options: &Options, run: &mut Run) -> Result<(), String> {
    let decisions = if options.quick { DECISIONS / 10 } else { DECISIONS };
    let [ours, governor, _] = NAMES;
    for (workload, goal) in workload::all().iter().zip(GOVERNOR_GOALS) {
        for threads in THREADS {
            let title = format!("{}, {}", workload.name, threads_text(threads));
            eprintln!("{title}, {} rounds …", options.rounds);
            let mut sheet = Sheet::new(&title, ours);
            for _ in 0..options.rounds {
                for name in NAMES.into_iter().chain([FLOOR]) {
                    sheet.add(name, &[(NANOS, measure(name, workload, threads, decisions)?)]);
                }
            }
            run.goals.push(Goal::at_least(title, governor, goal, sheet.ratios(NANOS, governor, ours)));
            run.sheets.push(sheet);
        }
    }
    Ok(())
}

pub(crate) fn threads_text(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// Memory does not vary from round to round.
fn measure_bytes(goals: &mut Vec<Goal>) -> Result<Sheet, String> {
    eprintln!("bytes per key …");
    let mut sheet = Sheet::new("resident memory, one million keys", NAMES[0]);
    for name in NAMES {
        sheet.add(name, &[(BYTES, bytes_per_key_in_child(name)?)]);
    }
    let reached = sheet.rounds(NAMES[0], BYTES).to_vec();
    goals.push(Goal::at_most("a key in memory", "", 48.0, reached).of("bytes"));
    Ok(sheet)
}

fn measure_expiry(options: &Options, goals: &mut Vec<Goal>) -> Result<Sheet, String> {
    eprintln!("decisions while keys expire …");
    let keys = if options.quick { 1_000_000 } else { 10_000_000 };
    let mut sheet =
        Sheet::new(format!("the tail of decisions while {} keys expire", grouped(keys as i64)), NAMES[0]);
    let Expiry { idle_p999_nanos, expiring_p999_nanos } = expiry::measure(keys)?;
    let (idle, expiring) = (idle_p999_nanos as f64, expiring_p999_nanos as f64);
    sheet.add(NAMES[0], &[(IDLE, idle), (EXPIRING, expiring)]);
    goals.push(Goal::at_most("p99.9 while all keys expire", "the same store idle", 1.5, vec![expiring / idle]));
    Ok(sheet)
}

/// Nanoseconds per decision: wall time divided by the decisions of all threads.
fn measure(name: &str, workload: &Workload, threads: usize, decisions: usize) -> Result<f64, String> {
    let contender = contender::new(name, workload.keys.len())?;
    for key in workload.keys.iter() {
        contender.is_allowed(key);
    }
    let (contender, barrier) = (&*contender, Barrier::new(threads + 1));
    let elapsed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, core) = (&barrier, cores::nth(thread));
                scope.spawn(move || {
                    core.map(core_affinity::set_for_current);
                    let start = thread * workload.requests.len() / threads;
                    barrier.wait();
                    ask(contender, workload, start, decisions)
                })
            })
            .collect();
        barrier.wait();
        let started = now();
        let denied: usize = workers.into_iter().map(|worker| worker.join().unwrap_or(usize::MAX)).sum();
        (denied == 0).then(|| started.elapsed()).ok_or(format!("{name} denied {denied} requests"))
    })?;
    Ok(elapsed.as_nanos() as f64 / (decisions * threads) as f64)
}

/// The number of denied requests. Each request depends on the previous result, as for a client that waits for it:
/// otherwise a processor overlaps several, and more of them the less work each has.
fn ask(contender: &dyn Contender, workload: &Workload, start: usize, decisions: usize) -> usize {
    (start..start + decisions).fold(0, |denied, step| {
        let is_allowed = black_box(contender.is_allowed(workload.key(step + denied)));
        denied + usize::from(!is_allowed)
    })
}

fn bytes_per_key_in_child(name: &str) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = std::process::Command::new(program)
        .args(["core-bytes", name])
        .output()
        .map_err(|error| format!("measuring {name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("measuring {name}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Growth of resident memory per key, in a separate process.
pub(crate) fn print_bytes_per_key(name: &str) -> Result<(), String> {
    let (keys, contender) = (workload::keys(BYTES_KEYS), contender::new(name, BYTES_KEYS)?);
    let before = processes::resident_bytes(std::process::id())?;
    for key in keys.iter() {
        black_box(contender.is_allowed(key));
    }
    let after = processes::resident_bytes(std::process::id())?;
    println!("{:.1}", after.saturating_sub(before) as f64 / BYTES_KEYS as f64);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures with the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
