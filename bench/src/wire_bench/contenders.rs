//! The compared servers, each started on the first core.

use super::packed::{CAPACITY, DOMAIN, PERIOD_SECS};
use crate::processes::{self, Server};
use crate::socket_load::Protocol;
use crate::{Programs, cores};
use sluicegate_testkit::redis_server::RedisServer;
use std::net::SocketAddr;
use std::process::Command;
use tempfile::NamedTempFile;

pub(super) const OURS: &str = "sluicegate";
pub(super) const BARE: &str = "bare hyper";
pub(super) const BARE_GRPC: &str = "bare tonic";
pub(super) const REDIS: &str = "Redis GET";
pub(super) const THROTTLECRAB: &str = "throttlecrab-server";
pub(super) const LIMITADOR: &str = "limitador in hyper";

/// The resource whose limit is reached, in Sluicegate's rules and as the namespace of the peer that has them.
pub(super) const EXACT: &str = "exact";
/// That limit.
pub(super) const EXACT_LIMIT: u64 = 1_000;

/// A server under test.
pub(super) struct Contender {
    pub(super) name: &'static str,
    runs: Runs,
    http: Option<SocketAddr>,
    resp: Option<SocketAddr>,
    grpc: Option<SocketAddr>,
    /// The folder of its configuration.
    _config: Option<NamedTempFile>,
}

enum Runs {
    Process(Server),
    Redis(RedisServer),
}

impl Contender {
    /// Sluicegate as shipped, with this store.
    pub(super) fn ours(programs: &Programs, store: &str) -> Result<Self, String> {
        let rules = format!(
            "rules:\n  \
             - {{ name: open, match: {{ resource: open }}, deadline: 10s, \
             limits: [{{ algorithm: token_bucket, capacity: {CAPACITY}, refill: 1/{PERIOD_SECS}s }}] }}\n  \
             - {{ name: envoy, match: {{ tenant: {DOMAIN}, descriptor: [{{ key: user }}] }}, deadline: 10s, \
             limits: [{{ algorithm: token_bucket, capacity: {CAPACITY}, refill: 1/{PERIOD_SECS}s }}] }}\n  \
             - {{ name: exact, match: {{ resource: {EXACT} }}, deadline: 10s, \
             limits: [{{ algorithm: fixed_window, limit: {EXACT_LIMIT}, window: 1h }}] }}\n"
        );
        let config = written(&rules)?;
        let mut command = Command::new(programs.ours()?);
        command.arg("--config").arg(config.path()).args(["--store", store]);
        command.args(["--gateway", "off", "--admin", "off", "--api", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
        let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
        let at = |name: &str| addresses.get(name).copied();
        let (http, resp) = (at("api"), at("resp"));
        Ok(Self { name: OURS, runs: Runs::Process(server), http, resp, grpc: http, _config: Some(config) })
    }

    /// A server that responds with a fixed text over HTTP.
    pub(super) fn bare(answer: &str) -> Result<Self, String> {
        let (runs, http) = bare("bare-http", answer, "http")?;
        Ok(Self { name: BARE, runs, http, resp: None, grpc: None, _config: None })
    }

    /// A server that responds with a fixed message over gRPC.
    pub(super) fn bare_grpc(answer: &[u8]) -> Result<Self, String> {
        let (runs, grpc) = bare("bare-grpc", &format!("{answer:?}"), "grpc")?;
        Ok(Self { name: BARE_GRPC, runs, http: None, resp: None, grpc, _config: None })
    }

    /// Redis itself, with a value for each key.
    pub(super) fn redis(names: impl Iterator<Item = String>) -> Result<Self, String> {
        let server = cores::on_first(RedisServer::start);
        let mut connection = server.connection().map_err(|error| error.to_string())?;
        let mut pipeline = redis::pipe();
        names.for_each(|name| {
            pipeline.set(name, 1).ignore();
        });
        pipeline.exec(&mut connection).map_err(|error| error.to_string())?;
        let resp = Some(server.address());
        Ok(Self { name: REDIS, runs: Runs::Redis(server), http: None, resp, grpc: None, _config: None })
    }

    /// throttlecrab's own server, with all of its protocols.
    pub(super) fn throttlecrab(programs: &Programs) -> Result<Self, String> {
        let (http, resp, grpc) =
            (processes::free_address()?, processes::free_address()?, processes::free_address()?);
        let mut command = Command::new(programs.throttlecrab()?);
        command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &http.port().to_string()]);
        command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &resp.port().to_string()]);
        command.args(["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port", &grpc.port().to_string()]);
        let server = cores::on_first(|| Server::start(command, &[http, resp, grpc]))?;
        let (http, resp, grpc) = (Some(http), Some(resp), Some(grpc));
        Ok(Self { name: THROTTLECRAB, runs: Runs::Process(server), http, resp, grpc, _config: None })
    }

    /// limitador's library behind the same minimal hyper server, with this store.
    pub(super) fn limitador(programs: &Programs, store: &str) -> Result<Self, String> {
        let mut command = Command::new(programs.limitador()?);
        command.args([store, &EXACT_LIMIT.to_string()]);
        let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
        let http = addresses.get("http").copied();
        Ok(Self { name: LIMITADOR, runs: Runs::Process(server), http, resp: None, grpc: None, _config: None })
    }

    /// Its address for this protocol.
    pub(super) fn address(&self, protocol: Protocol) -> Result<SocketAddr, String> {
        let address = match protocol {
            Protocol::Http => self.http,
            Protocol::Resp => self.resp,
            Protocol::Grpc(_) => self.grpc,
        };
        address.ok_or_else(|| format!("{} does not speak this protocol", self.name))
    }

    /// Its process id.
    pub(super) fn process(&self) -> u32 {
        match &self.runs {
            Runs::Process(server) => server.id(),
            Runs::Redis(server) => server.process_id(),
        }
    }
}

/// A process of this benchmark with a fixed response, and its address.
fn bare(name: &str, answer: &str, listener: &str) -> Result<(Runs, Option<SocketAddr>), String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args([name, answer]);
    let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
    Ok((Runs::Process(server), addresses.get(listener).copied()))
}

fn written(text: &str) -> Result<NamedTempFile, String> {
    let broken = |error: std::io::Error| format!("a temporary file: {error}");
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().map_err(broken)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(broken)?;
    Ok(file)
}
