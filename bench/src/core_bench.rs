//! `core`: nanoseconds per decision and bytes per key.
//!
//! Rounds are interleaved: every round measures every contender on every workload once, so that a noisy
//! minute hits all of them. The median of the rounds counts, and the spread is shown.

use crate::contender::{self, Contender, NAMES};
use crate::report::{self, Cell, Report};
use crate::workload::{self, Workload};
use crate::{Options, expiry};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Decisions per measurement and thread.
const DECISIONS: usize = 4_000_000;
const THREADS: [usize; 2] = [1, 2];
const BYTES_KEYS: usize = 1_000_000;

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let decisions = if options.quick { DECISIONS / 10 } else { DECISIONS };
    let mut report = Report::default();
    for workload in workload::all() {
        for threads in THREADS {
            eprintln!("{} on {threads} thread(s), {} rounds …", workload.name, options.rounds);
            let mut cell = Cell::new(workload.name, threads);
            for _ in 0..options.rounds {
                for name in NAMES {
                    cell.add(name, measure(name, &workload, threads, decisions)?);
                }
            }
            report.cells.push(cell);
        }
    }
    eprintln!("bytes per key …");
    for name in NAMES {
        report.bytes_per_key.push((name, bytes_per_key_in_child(name)?));
    }
    eprintln!("decisions while keys expire …");
    report.expiry = Some(expiry::measure(if options.quick { 1_000_000 } else { 10_000_000 })?);
    report::print(&report);
    if let Some(path) = &options.json {
        report::write_json(&report, path)?;
    }
    Ok(())
}

/// Nanoseconds per decision: wall time over all decisions of all threads.
fn measure(name: &str, workload: &Workload, threads: usize, decisions: usize) -> Result<f64, String> {
    let contender = contender::new(name)?;
    for key in workload.keys.iter() {
        contender.is_allowed(key);
    }
    let (contender, barrier) = (&*contender, Barrier::new(threads + 1));
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let elapsed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, core) = (&barrier, cores.get(thread % cores.len().max(1)).copied());
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

fn ask(contender: &dyn Contender, workload: &Workload, start: usize, decisions: usize) -> usize {
    (start..start + decisions).filter(|step| !black_box(contender.is_allowed(workload.key(*step)))).count()
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

/// In a process of its own: how much the resident memory grows per key.
pub(crate) fn print_bytes_per_key(name: &str) -> Result<(), String> {
    let (keys, contender) = (workload::keys(BYTES_KEYS), contender::new(name)?);
    let before = resident_bytes()?;
    for key in keys.iter() {
        black_box(contender.is_allowed(key));
    }
    let after = resident_bytes()?;
    println!("{:.1}", after.saturating_sub(before) as f64 / BYTES_KEYS as f64);
    Ok(())
}

fn resident_bytes() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    Ok(kilobytes.ok_or("VmRSS is not a number")? * 1_024)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures with the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
