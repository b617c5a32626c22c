//! `peers`: whole servers of other projects in the same run: over HTTP with their state in memory and in Redis, and the number of
//! requests of a limit that they admit there.

use super::contenders::{Contender, EXACT, EXACT_LIMIT, LIMITADOR, OURS};
use super::{CONNECTIONS, PER_SECOND, compare, lasts, packed};
use crate::Options;
use crate::goal::Goal;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::socket_load::{self, Load, Protocol};
use sluicegate_testkit::redis_server::RedisServer;

const RESOURCE: &str = "open";
const ADMITTED: &str = "admitted";
/// The number of requests to the limit.
const EXACT_REQUESTS: u64 = EXACT_LIMIT * 5;

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("peers", options);
    let programs = &options.programs;
    let ours = Contender::ours(programs, "memory")?;
    let throttlecrab = Contender::throttlecrab(programs)?;
    let limitador = Contender::limitador(programs, "memory")?;
    measure_http(options, [&ours, &throttlecrab, &limitador], &mut run)?;
    drop((ours, throttlecrab, limitador));
    measure_redis(options, &mut run)?;
    run.finish(options)
}

fn our_check() -> Load {
    packed::http("/v1/check", |name| packed::check_body(RESOURCE, name))
}

fn limitador_check() -> Load {
    packed::http("/check_and_report", |name| limitador_body(RESOURCE, name))
}

/// The request format of limitador's own server.
fn limitador_body(namespace: &str, identifier: &str) -> String {
    format!(r#"{{"namespace":"{namespace}","values":{{"identifier":"{identifier}"}},"delta":1}}"#)
}

fn measure_http(options: &Options, everybody: [&Contender; 3], run: &mut Run) -> Result<(), String> {
    let [ours, throttlecrab, limitador] = everybody;
    let mut sheet = Sheet::new(format!("HTTP, state in memory, {CONNECTIONS} connections"), OURS);
    let pairs = [(ours, our_check()), (throttlecrab, packed::throttlecrab_http()), (limitador, limitador_check())];
    compare(&mut sheet, &pairs, options.rounds, lasts(options.quick))?;
    run.sheets.push(sheet);
    Ok(())
}

/// Redis runs on the cores of the load, so that the servers have their core for themselves.
fn measure_redis(options: &Options, run: &mut Run) -> Result<(), String> {
    let redis = RedisServer::start();
    let ours = Contender::ours(&options.programs, &redis.url())?;
    let limitador = Contender::limitador(&options.programs, &redis.url())?;
    let mut sheet = Sheet::new(format!("HTTP, state in Redis, {CONNECTIONS} connections"), LIMITADOR);
    let pairs = [(&limitador, limitador_check()), (&ours, our_check())];
    compare(&mut sheet, &pairs, options.rounds, lasts(options.quick))?;
    let throughput = sheet.ratios(PER_SECOND, OURS, LIMITADOR);
    run.goals.push(Goal::at_least("whole server on Redis over HTTP, requests/s", LIMITADOR, 4.0, throughput));
    run.sheets.push(sheet);
    let exact = measure_exactness(options, [&limitador, &ours])?;
    let beyond = exact.rounds(OURS, ADMITTED).iter().map(|admitted| admitted - EXACT_LIMIT as f64).collect();
    run.goals.push(Goal::at_most("admitted beyond a limit on Redis", "", 0.0, beyond).of("requests"));
    run.sheets.push(exact);
    Ok(())
}

fn measure_exactness(options: &Options, everybody: [&Contender; 2]) -> Result<Sheet, String> {
    let title = format!("admitted of a limit of {EXACT_LIMIT}, state in Redis, {CONNECTIONS} connections");
    let mut sheet = Sheet::new(title, LIMITADOR);
    for round in 0..options.rounds {
        for contender in everybody {
            let identifier = format!("exact-{round}");
            let load = if contender.name == OURS {
                packed::http_of_one("/v1/check", &packed::check_body(EXACT, &identifier))
            } else {
                packed::http_of_one("/check_and_report", &limitador_body(EXACT, &identifier))
            };
            let answers = socket_load::ask(contender.address(Protocol::Http)?, &load, EXACT_REQUESTS)?;
            sheet.add(contender.name, &[(ADMITTED, answers.allowed as f64)]);
        }
    }
    Ok(sheet)
}
