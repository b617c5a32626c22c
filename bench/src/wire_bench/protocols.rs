//! `protocols`: what a decision costs our server beyond what its protocols cost anybody.
//!
//! HTTP is held against a hyper server that reads the body and answers a fixed text of the same size; `CL.THROTTLE`
//! against Redis' own `GET`.

use super::contenders::{BARE, Contender, OURS, REDIS};
use super::{CONNECTIONS, DEPTHS, SERVER_MICROS, compare, lasts, packed};
use crate::goal::Goal;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::{Options, processes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATH: &str = "/v1/check";
const RESOURCE: &str = "open";
const MEGABYTES: &str = "resident MB";
/// A server is idle once it has had this time after its start.
const SETTLES: Duration = Duration::from_secs(1);

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("protocols", options);
    let ours = Contender::ours(&options.programs, "memory")?;
    measure_idle(&ours, &mut run)?;
    measure_http(options, &ours, &mut run)?;
    measure_resp(options, &ours, &mut run)?;
    run.finish(options)
}

fn measure_idle(ours: &Contender, run: &mut Run) -> Result<(), String> {
    std::thread::sleep(SETTLES);
    let megabytes = processes::resident_bytes(ours.process())? as f64 / 1e6;
    let mut sheet = Sheet::new("an idle server", OURS);
    sheet.add(OURS, &[(MEGABYTES, megabytes)]);
    run.goals.push(Goal::at_most("memory of an idle server", "", 15.0, vec![megabytes]).of("MB"));
    run.sheets.push(sheet);
    Ok(())
}

fn measure_http(options: &Options, ours: &Contender, run: &mut Run) -> Result<(), String> {
    let load = || packed::http(PATH, |name| packed::check_body(RESOURCE, name));
    let bare = Contender::bare(&answer(ours.address(load().protocol)?)?)?;
    let mut sheet = Sheet::new(format!("HTTP check, {CONNECTIONS} connections"), BARE);
    compare(&mut sheet, &[(&bare, load()), (ours, load())], options.rounds, lasts(options.quick))?;
    let ratios = sheet.ratios(SERVER_MICROS, OURS, BARE);
    run.goals.push(Goal::at_most("HTTP check, CPU per request", BARE, 1.1, ratios));
    run.sheets.push(sheet);
    Ok(())
}

fn measure_resp(options: &Options, ours: &Contender, run: &mut Run) -> Result<(), String> {
    let redis = Contender::redis((0..packed::IDENTITIES).map(packed::name))?;
    for depth in DEPTHS {
        let title = format!("CL.THROTTLE, {CONNECTIONS} connections, pipeline of {depth}");
        let mut sheet = Sheet::new(&title, REDIS);
        let pairs = [(&redis, packed::get(depth)), (ours, packed::throttle(depth))];
        compare(&mut sheet, &pairs, options.rounds, lasts(options.quick))?;
        if depth > 1 {
            let ratios = sheet.ratios(SERVER_MICROS, OURS, REDIS);
            let what = format!("CL.THROTTLE, pipeline of {depth}, CPU per operation");
            run.goals.push(Goal::at_most(what, REDIS, 0.9, ratios));
        }
        run.sheets.push(sheet);
    }
    Ok(())
}

/// The body of our answer to one check, which the bare server then gives to all.
fn answer(address: SocketAddr) -> Result<String, String> {
    let broken = |error: std::io::Error| format!("the connection to {address}: {error}");
    let mut connection = TcpStream::connect(address).map_err(broken)?;
    let body = packed::check_body(RESOURCE, &packed::name(0));
    let length = body.len();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    connection.write_all(format!("{head}{body}").as_bytes()).map_err(broken)?;
    let mut reply = String::new();
    connection.read_to_string(&mut reply).map_err(broken)?;
    let (head, body) = reply.split_once("\r\n\r\n").ok_or("a reply without a head")?;
    if head.starts_with("HTTP/1.1 200") { Ok(body.to_owned()) } else { Err(reply) }
}
