//! `simulate`: the speed of a replay, and its memory as the log grows and the number of clients does not.
//!
//! The logs are generated in the combined format and are the same every time. The whole program is measured from outside:
//! start, parsing, decisions and report.

use crate::Options;
use crate::core_bench::now;
use crate::goal::Goal;
use crate::processes::peak_bytes;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::statistics::grouped;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The lines of the smaller and of the larger log.
const LINES: [u64; 2] = [1_000_000, 10_000_000];
/// The number of client addresses.
const IDENTITIES: u64 = 10_000;
/// Requests per second of the log.
const PER_SECOND: u64 = 500;
/// The interval at which the memory of the program is sampled.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

const SECONDS: &str = "seconds";
const LINES_PER_SECOND: &str = "lines/s";
const MEGABYTES: &str = "peak MB";

const RULES: &str = "
rules:
  - name: each
    per: ip
    limits: [ { algorithm: token_bucket, capacity: 20, refill: 2/min } ]
  - name: search
    match: { path: /api/search/** }
    per: ip
    limits: [ { algorithm: fixed_window, limit: 10, window: 1h } ]
";

/// Runs the benchmark and prints its table.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("simulate", options);
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, RULES).map_err(|error| error.to_string())?;
    let lines = LINES.map(|lines| if options.quick { lines / 10 } else { lines });
    let mut sheet = Sheet::new(format!("logs of {} addresses", grouped(IDENTITIES as i64)), &row(lines[0]));
    for count in lines {
        let log = folder.path().join(format!("{count}.log"));
        eprintln!("{} lines, {} rounds …", grouped(count as i64), options.rounds);
        generate(&log, count).map_err(|error| format!("{}: {error}", log.display()))?;
        for _ in 0..options.rounds {
            let (seconds, peak) = replay(options.programs.ours()?, &config, &log, count)?;
            let numbers =
                [(LINES_PER_SECOND, count as f64 / seconds), (SECONDS, seconds), (MEGABYTES, peak / 1e6)];
            sheet.add(&row(count), &numbers);
        }
        std::fs::remove_file(&log).map_err(|error| error.to_string())?;
    }
    let [less, more] = lines.map(row);
    let reached = sheet.rounds(&more, LINES_PER_SECOND).iter().map(|each| each / 1e6).collect();
    run.goals.push(Goal::at_least("lines of the combined format", "", 1.0, reached).of("million/s"));
    let reached = sheet.rounds(&more, SECONDS).to_vec();
    run.goals.push(Goal::at_most(format!("{more}, time"), "", 30.0, reached).of("s"));
    run.goals.push(Goal::at_most(format!("{more}, memory"), &less, 1.2, sheet.ratios(MEGABYTES, &more, &less)));
    run.sheets.push(sheet);
    run.finish(options)
}

fn row(lines: u64) -> String {
    format!("{} lines", grouped(lines as i64))
}

/// Writes a log. A few addresses send most of the requests, as is usual.
fn generate(path: &Path, count: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..count {
        let second = number / PER_SECOND;
        let who = random.u64(0..IDENTITIES).min(random.u64(0..IDENTITIES)).min(random.u64(0..IDENTITIES));
        let (day, hour, minute) = (1 + second / 86_400 % 28, second / 3_600 % 24, second / 60 % 60);
        let path = ["/", "/api/orders", "/api/search/items", "/static/site.css"][random.usize(0..4)];
        writeln!(
            file,
            "10.{}.{}.{} - - [{day:02}/Feb/2023:{hour:02}:{minute:02}:{:02} +0000] \"GET {path}?page={} HTTP/1.1\" 200 {} \
             \"https://shop.example/\" \"Mozilla/5.0 (X11; Linux x86_64)\"",
            who >> 16,
            who >> 8 & 255,
            who & 255,
            second % 60,
            number % 90,
            number % 9_000,
        )?;
    }
    file.flush()
}

/// Replays a log: the duration in seconds, and the peak memory in bytes.
fn replay(program: &str, config: &Path, log: &Path, count: u64) -> Result<(f64, f64), String> {
    let mut command = Command::new(program);
    command.arg("simulate").arg("--json").arg("--config").arg(config).arg("--log").arg(log);
    let started = now();
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
    let mut peak = 0;
    // Its output is short and fits the pipe.
    let took = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            if !status.success() {
                return Err(format!("{program} simulate: {status}"));
            }
            break started.elapsed();
        }
        // The process may end between the two samples.
        peak = peak.max(peak_bytes(child.id()).unwrap_or(0));
        std::thread::sleep(BETWEEN_LOOKS);
    };
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    if report["requests"] != count || report["denied"] == 0 {
        return Err(format!("not every line was decided: {report}"));
    }
    Ok((took.as_secs_f64(), peak as f64))
}
