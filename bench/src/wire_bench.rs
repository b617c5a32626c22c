//! The common part of `protocols` and `peers`: whole servers on the first core, under load over sockets from another.

mod contenders;
mod packed;
pub(crate) mod peers;
pub(crate) mod protocols;

use crate::core_bench::now;
use crate::processes;
use crate::sheet::Sheet;
use crate::socket_load::{self, Load};
use contenders::Contender;
use std::time::Duration;

/// How long one measurement lasts.
const LASTS: Duration = Duration::from_secs(1);
/// The number of clients.
const CONNECTIONS: usize = 64;
/// Requests that each of them sends before it waits, for protocols with pipelining.
const DEPTHS: [usize; 3] = [1, 16, 64];

/// The columns of all tables.
const PER_SECOND: &str = "requests/s";
const SERVER_MICROS: &str = "server CPU µs";
const P50: &str = "p50 µs";
const P99: &str = "p99 µs";

/// Measures all contenders with their own load, round by round.
fn compare(sheet: &mut Sheet, pairs: &[(&Contender, Load)], rounds: usize, lasts: Duration) -> Result<(), String> {
    eprintln!("{}, {rounds} rounds …", sheet.title);
    for _ in 0..rounds {
        for (contender, load) in pairs {
            let numbers =
                measure(contender, load, lasts).map_err(|error| format!("{}: {error}", contender.name))?;
            sheet.add(contender.name, &numbers);
        }
    }
    Ok(())
}

fn measure(contender: &Contender, load: &Load, lasts: Duration) -> Result<[(&'static str, f64); 4], String> {
    let address = contender.address(load.protocol)?;
    // The first requests create the keys.
    socket_load::drive(address, load, lasts / 10)?;
    let before = (processes::processor_micros(contender.process())?, now());
    let answers = socket_load::drive(address, load, lasts)?;
    let wall = before.1.elapsed().as_secs_f64();
    let micros = processes::processor_micros(contender.process())? - before.0;
    if answers.answered == 0 {
        return Err("no request was answered".to_owned());
    }
    let count = answers.answered as f64;
    let quantile = |quantile| answers.micros.value_at_quantile(quantile) as f64;
    Ok([(PER_SECOND, count / wall), (SERVER_MICROS, micros / count), (P50, quantile(0.5)), (P99, quantile(0.99))])
}

/// The duration of one measurement, by the options.
fn lasts(is_quick: bool) -> Duration {
    if is_quick { LASTS / 5 } else { LASTS }
}
