//! `gateway`: the cost of a proxy between client and application, beside nginx and a direct connection.
//!
//! One application is requested directly, through nginx as a plain proxy, through nginx with `limit_req`, through the
//! gateway on an exempt path, and through the gateway with a limit per API key. The measured proxy has the first
//! core; application and client share another in all five cases, so their cost cancels out.

mod contenders;

use crate::Options;
use crate::core_bench::now;
use crate::goal::Goal;
use crate::processes;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::socket_load::{self, Load, Protocol};
use contenders::{Application, Contender, NGINX_LIMITED, OURS};
use std::time::Duration;

/// How long one measurement lasts.
const LASTS: Duration = Duration::from_secs(1);
/// Enough clients to saturate each contender, and a single sequential one.
const CONNECTIONS: [usize; 2] = [64, 1];
/// The number of identities.
const IDENTITIES: usize = 10_000;
/// The goal: processor time relative to nginx with `limit_req`.
const GOAL: f64 = 1.2;

const PER_SECOND: &str = "requests/s";
const PROXY_MICROS: &str = "proxy CPU µs";
const P50: &str = "p50 µs";
const P99: &str = "p99 µs";
const ADDED_P50: &str = "added p50 µs";
const ADDED_P99: &str = "added p99 µs";

/// The result of one measurement of one contender.
struct Found {
    per_second: f64,
    /// Of the proxy; `None` without one.
    proxy_micros: f64,
    p50: f64,
    p99: f64,
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("gateway", options);
    let application = Application::start()?;
    let everybody = Contender::all(&options.programs, &application)?;
    for connections in CONNECTIONS {
        let sheet = compare(&everybody, connections, options)?;
        if connections > 1 {
            let beside = |name: &str| sheet.ratios(PROXY_MICROS, OURS, name);
            let what = "a request through the gateway, CPU of the proxy";
            run.goals.push(Goal::at_most(what, NGINX_LIMITED, GOAL, beside(NGINX_LIMITED)));
        }
        run.sheets.push(sheet);
    }
    run.finish(options)
}

/// Measures all contenders, round by round.
fn compare(everybody: &[Contender], connections: usize, options: &Options) -> Result<Sheet, String> {
    let plural = if connections == 1 { "connection" } else { "connections" };
    let mut sheet = Sheet::new(format!("GET through a proxy, {connections} {plural}"), NGINX_LIMITED);
    eprintln!("{}, {} rounds …", sheet.title, options.rounds);
    let (load, lasts) = (load(connections), if options.quick { LASTS / 5 } else { LASTS });
    for _ in 0..options.rounds {
        let mut direct: Option<Found> = None;
        for contender in everybody {
            let found =
                measure(contender, &load, lasts).map_err(|error| format!("{}: {error}", contender.name))?;
            sheet.add(contender.name, &columns(&found, direct.as_ref()));
            // The first contender is the reference of the round.
            direct.get_or_insert(found);
        }
    }
    Ok(sheet)
}

fn columns(found: &Found, direct: Option<&Found>) -> Vec<(&'static str, f64)> {
    let own =
        [(PER_SECOND, found.per_second), (PROXY_MICROS, found.proxy_micros), (P50, found.p50), (P99, found.p99)];
    let mut columns = own.to_vec();
    if let Some(direct) = direct {
        columns.extend([(ADDED_P50, found.p50 - direct.p50), (ADDED_P99, found.p99 - direct.p99)]);
    }
    columns
}

fn measure(contender: &Contender, load: &Load, lasts: Duration) -> Result<Found, String> {
    // The first requests open connections to the application and create the keys.
    socket_load::drive(contender.address, load, lasts / 5)?;
    let used = || contender.process().map_or(Ok(0.0), processes::processor_micros);
    let (before, started) = (used()?, now());
    let answers = socket_load::drive(contender.address, load, lasts)?;
    let wall = started.elapsed().as_secs_f64();
    let after = used()?;
    if answers.answered == 0 || answers.allowed != answers.answered {
        return Err(format!("{} of {} requests were answered with 200", answers.allowed, answers.answered));
    }
    let count = answers.answered as f64;
    let quantile = |quantile| answers.micros.value_at_quantile(quantile) as f64;
    Ok(Found {
        per_second: count / wall,
        proxy_micros: (after - before) / count,
        p50: quantile(0.5),
        p99: quantile(0.99),
    })
}

/// Requests of all identities, one at a time on each connection.
fn load(connections: usize) -> Load {
    let request = |index: usize| {
        format!(
            "GET /api/items/7?page=2 HTTP/1.1\r\nhost: bench.example\r\nuser-agent: bench\r\naccept: application/json\r\n\
             x-api-key: user-{index:019}\r\n\r\n"
        )
    };
    let batches = (0..IDENTITIES).map(|index| request(index).into_bytes()).collect();
    Load { connections, batches, depth: 1, protocol: Protocol::Http }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_time_is_relative_to_the_round_without_a_proxy() {
        let direct = Found { per_second: 10.0, proxy_micros: 0.0, p50: 100.0, p99: 300.0 };
        let through = Found { per_second: 5.0, proxy_micros: 7.0, p50: 180.0, p99: 250.0 };
        assert_eq!(columns(&direct, None), [(PER_SECOND, 10.0), (PROXY_MICROS, 0.0), (P50, 100.0), (P99, 300.0)]);
        let of = |name| columns(&through, Some(&direct)).into_iter().find(|(column, _)| *column == name);
        assert_eq!(of(ADDED_P50), Some((ADDED_P50, 80.0)));
        // Noise is shown as measured.
        assert_eq!(of(ADDED_P99), Some((ADDED_P99, -50.0)));
    }
}
