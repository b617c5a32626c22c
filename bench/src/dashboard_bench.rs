//! `dashboard`: the cost of open and of closed dashboards.
//!
//! Four servers with the same rules: one without the admin listener, one with it but without a dashboard, and two
//! with one and ten open dashboards. Each is driven to saturation in turn and then left idle. The result is the
//! processor time of the server per request and per idle second.

use crate::core_bench::now;
use crate::goal::Goal;
use crate::processes::{self, Server};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::socket_load::{self, Load, Protocol};
use crate::{Options, Programs, cores};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use tempfile::NamedTempFile;

/// The duration of one measurement: several updates of the dashboard.
const LASTS: Duration = Duration::from_secs(3);
/// Enough connections to saturate the server.
const CONNECTIONS: usize = 64;
/// The number of identities.
const IDENTITIES: usize = 10_000;
/// As many rules as an update reports.
const RULES: usize = 50;

const WITHOUT: &str = "no admin listener";
const UNSEEN: &str = "nobody watches";
/// The rows of the table, with their number of open dashboards.
const CONTENDERS: [(&str, Option<usize>); 4] =
    [(WITHOUT, None), (UNSEEN, Some(0)), ("one watches", Some(1)), ("ten watch", Some(10))];
/// The goal without a dashboard: twice the noise of such a measurement.
const GOAL_UNSEEN: f64 = 1.02;
/// The goal with ten dashboards.
const GOAL_WATCHED: f64 = 1.05;

const PER_REQUEST: &str = "CPU µs/request";
const PER_SECOND: &str = "requests/s";
const AT_REST: &str = "CPU µs/s at rest";

/// Runs the benchmark and prints its table.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("dashboard", options);
    let config = config()?;
    let everybody =
        CONTENDERS.iter().map(|(name, readers)| Contender::start(&options.programs, &config, name, *readers));
    let everybody: Vec<Contender> = everybody.collect::<Result<_, _>>()?;
    let mut sheet = Sheet::new(format!("checks under {RULES} rules, {CONNECTIONS} connections"), WITHOUT);
    eprintln!("{}, {} rounds …", sheet.title, options.rounds);
    let (load, lasts) = (load(), if options.quick { LASTS / 3 } else { LASTS });
    for _ in 0..options.rounds {
        for contender in &everybody {
            sheet.add(contender.name, &contender.measure(&load, lasts)?);
        }
    }
    let beside = |name: &str| sheet.ratios(PER_REQUEST, name, WITHOUT);
    run.goals.push(Goal::at_most("a check while nobody watches, CPU", WITHOUT, GOAL_UNSEEN, beside(UNSEEN)));
    run.goals.push(Goal::at_most("a check while ten watch, CPU", WITHOUT, GOAL_WATCHED, beside("ten watch")));
    run.sheets.push(sheet);
    run.finish(options)
}

/// A server with its open dashboards.
struct Contender {
    name: &'static str,
    server: Server,
    api: SocketAddr,
    admin: Option<SocketAddr>,
    readers: usize,
}

impl Contender {
    fn start(
        programs: &Programs,
        config: &NamedTempFile,
        name: &'static str,
        readers: Option<usize>,
    ) -> Result<Self, String> {
        let mut command = Command::new(programs.ours()?);
        let admin = if readers.is_some() { "127.0.0.1:0" } else { "off" };
        command.arg("--config").arg(config.path()).args([
            "--store",
            "memory",
            "--gateway",
            "off",
            "--resp",
            "off",
        ]);
        command.args(["--api", "127.0.0.1:0", "--admin", admin]);
        let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
        let api = addresses.get("api").copied().ok_or("no api listener")?;
        Ok(Self { name, server, api, admin: addresses.get("admin").copied(), readers: readers.unwrap_or(0) })
    }

    /// The dashboards stay open for the whole measurement.
    fn measure(&self, load: &Load, lasts: Duration) -> Result<[(&'static str, f64); 3], String> {
        let readers = (0..self.readers).map(|_| Reader::watch(self.admin.ok_or("nothing to watch")?));
        let _readers: Vec<Reader> = readers.collect::<Result<_, String>>()?;
        // The first requests create the keys.
        socket_load::drive(self.api, load, lasts / 5)?;
        let used = || processes::processor_micros(self.server.id());
        let (before, started) = (used()?, now());
        let answers = socket_load::drive(self.api, load, lasts)?;
        let (after, wall) = (used()?, started.elapsed().as_secs_f64());
        if answers.answered == 0 || answers.allowed != answers.answered {
            return Err(format!("{}: {} of {} were allowed", self.name, answers.allowed, answers.answered));
        }
        let (before_rest, rested) = (used()?, now());
        std::thread::sleep(lasts);
        let rest = (used()? - before_rest) / rested.elapsed().as_secs_f64();
        let count = answers.answered as f64;
        Ok([(PER_REQUEST, (after - before) / count), (PER_SECOND, count / wall), (AT_REST, rest)])
    }
}

/// An open dashboard, until this value is dropped.
struct Reader(TcpStream);

impl Reader {
    /// Opens the event stream and waits for the first event.
    fn watch(admin: SocketAddr) -> Result<Self, String> {
        let broken = |error: std::io::Error| format!("watching {admin}: {error}");
        let mut stream = TcpStream::connect(admin).map_err(broken)?;
        stream.write_all(b"GET /admin/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").map_err(broken)?;
        let (mut seen, mut bytes) = (Vec::new(), [0; 16_384]);
        while !seen.windows(5).any(|window| window == b"data:") {
            match stream.read(&mut bytes).map_err(broken)? {
                0 => return Err(format!("{admin} tells nothing: {}", String::from_utf8_lossy(&seen))),
                length => seen.extend_from_slice(&bytes[..length]),
            }
        }
        let mut rest = stream.try_clone().map_err(broken)?;
        // The thread ends with the connection.
        std::thread::spawn(move || while rest.read(&mut bytes).is_ok_and(|length| length > 0) {});
        Ok(Self(stream))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The server may have closed it already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// One rule that decides, and others that an update reports as well.
fn config() -> Result<NamedTempFile, String> {
    let broken = |error: std::io::Error| format!("a temporary file: {error}");
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().map_err(broken)?;
    writeln!(file, "rules:").map_err(broken)?;
    for number in 0..RULES {
        let limits = "[{ algorithm: token_bucket, capacity: 1000000000, refill: 1000000000/s }]";
        writeln!(
            file,
            "  - {{ name: rule-{number}, match: {{ resource: r{number} }}, deadline: 10s, limits: {limits} }}"
        )
        .map_err(broken)?;
    }
    Ok(file)
}

fn load() -> Load {
    let request = |index: usize| {
        let body = format!(r#"{{"resource":"r{}","identifier":"user-{index}"}}"#, index % RULES);
        let length = body.len();
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: bench.example\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let batches = (0..IDENTITIES).map(|index| request(index).into_bytes()).collect();
    Load { connections: CONNECTIONS, batches, depth: 1, protocol: Protocol::Http }
}
