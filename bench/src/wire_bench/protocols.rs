//! `protocols`: the cost of a decision in the server beyond the cost of its protocols.
//!
//! The reference of HTTP is a hyper server that reads the body and responds with a fixed text of the same size, that of gRPC a
//! tonic server that does the same, and that of `CL.THROTTLE` Redis' own `GET`. throttlecrab's server is a peer for all.

use super::contenders::{BARE, BARE_GRPC, Contender, OURS, REDIS};
use super::{CONNECTIONS, DEPTHS, SERVER_MICROS, compare, lasts, packed};
use crate::goal::Goal;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::socket_load::{Protocol, grpc};
use crate::{Options, processes};
use prost::Message as _;
use sluicegate_testkit::envoy_client;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATH: &str = "/v1/check";
const RESOURCE: &str = "open";
/// Connections over gRPC, and calls in flight on each: one each, and many on a few.
const SHAPES: [(usize, usize); 2] = [(CONNECTIONS, 1), (4, 64)];
const MEGABYTES: &str = "resident MB";
/// A server counts as idle after this time since its start.
const SETTLES: Duration = Duration::from_secs(1);

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("protocols", options);
    let ours = Contender::ours(&options.programs, "memory")?;
    measure_idle(&ours, &mut run)?;
    let crab = Contender::throttlecrab(&options.programs)?;
    measure_http(options, [&ours, &crab], &mut run)?;
    measure_grpc(options, [&ours, &crab], &mut run)?;
    measure_resp(options, [&ours, &crab], &mut run)?;
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

fn measure_http(options: &Options, [ours, crab]: [&Contender; 2], run: &mut Run) -> Result<(), String> {
    let load = || packed::http(PATH, |name| packed::check_body(RESOURCE, name));
    let bare = Contender::bare(&answer(ours.address(Protocol::Http)?)?)?;
    let mut sheet = Sheet::new(format!("HTTP check, {CONNECTIONS} connections"), BARE);
    let everybody = [(&bare, load()), (ours, load()), (crab, packed::throttlecrab_http())];
    compare(&mut sheet, &everybody, options.rounds, lasts(options.quick))?;
    let ratios = sheet.ratios(SERVER_MICROS, OURS, BARE);
    run.goals.push(Goal::at_most("HTTP check, CPU per request", BARE, 1.1, ratios));
    run.sheets.push(sheet);
    Ok(())
}

fn measure_grpc(options: &Options, [ours, crab]: [&Contender; 2], run: &mut Run) -> Result<(), String> {
    let question = packed::question(&packed::name(0)).encode_to_vec();
    let address = ours.address(Protocol::Grpc(envoy_client::PATH))?;
    let bare = Contender::bare_grpc(&grpc::answer(address, envoy_client::PATH, &question)?)?;
    for shape in SHAPES {
        let (connections, calls) = shape;
        let load = || packed::should_rate_limit(shape);
        let mut sheet =
            Sheet::new(format!("Envoy's question over gRPC, {connections} connections × {calls}"), BARE_GRPC);
        let everybody = [(&bare, load()), (ours, load()), (crab, packed::throttlecrab_grpc(shape))];
        compare(&mut sheet, &everybody, options.rounds, lasts(options.quick))?;
        let ratios = sheet.ratios(SERVER_MICROS, OURS, BARE_GRPC);
        let what = format!("Envoy's question, {connections} connections × {calls}, CPU per request");
        run.goals.push(Goal::at_most(what, BARE_GRPC, 1.05, ratios));
        run.sheets.push(sheet);
    }
    Ok(())
}

fn measure_resp(options: &Options, [ours, crab]: [&Contender; 2], run: &mut Run) -> Result<(), String> {
    let redis = Contender::redis((0..packed::IDENTITIES).map(packed::name))?;
    for depth in DEPTHS {
        let title = format!("CL.THROTTLE, {CONNECTIONS} connections, pipeline of {depth}");
        let mut sheet = Sheet::new(&title, REDIS);
        let pairs = [
            (&redis, packed::get(depth)),
            (ours, packed::throttle(depth)),
            (crab, packed::throttlecrab_resp(depth)),
        ];
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

/// The body of the server's response to one check, which the minimal server then sends to all.
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
