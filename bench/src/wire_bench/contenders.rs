//! The servers that are compared, each started on the first core.

use super::packed::{CAPACITY, PERIOD_SECS};
use crate::processes::{self, Server};
use crate::socket_load::Protocol;
use crate::{Programs, cores};
use sluicegate_testkit::redis_server::RedisServer;
use std::net::SocketAddr;
use std::process::Command;
use tempfile::NamedTempFile;

pub(super) const OURS: &str = "sluicegate";
pub(super) const BARE: &str = "bare hyper";
pub(super) const REDIS: &str = "Redis GET";
pub(super) const THROTTLECRAB: &str = "throttlecrab-server";
pub(super) const LIMITADOR: &str = "limitador in hyper";

/// The resource whose limit is met, in our rules and as the namespace of the peer that has them.
pub(super) const EXACT: &str = "exact";
/// That limit.
pub(super) const EXACT_LIMIT: u64 = 1_000;

/// A server that is measured.
pub(super) struct Contender {
    pub(super) name: &'static str,
    runs: Runs,
    http: Option<SocketAddr>,
    resp: Option<SocketAddr>,
    /// What it reads while it runs.
    _config: Option<NamedTempFile>,
}

enum Runs {
    Process(Server),
    Redis(RedisServer),
}

impl Contender {
    /// Our server as it is shipped, with its state in this store.
    pub(super) fn ours(programs: &Programs, store: &str) -> Result<Self, String> {
        let rules = format!(
            "rules:\n  \
             - {{ name: open, match: {{ resource: open }}, deadline: 10s, \
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
        Ok(Self { name: OURS, runs: Runs::Process(server), http, resp, _config: Some(config) })
    }

    /// A server that answers this and does nothing else.
    pub(super) fn bare(answer: &str) -> Result<Self, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args(["bare-http", answer]);
        let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
        let http = addresses.get("http").copied();
        Ok(Self { name: BARE, runs: Runs::Process(server), http, resp: None, _config: None })
    }

    /// Redis itself, with a value for all of these.
    pub(super) fn redis(names: impl Iterator<Item = String>) -> Result<Self, String> {
        let server = cores::on_first(RedisServer::start);
        let mut connection = server.connection().map_err(|error| error.to_string())?;
        let mut pipeline = redis::pipe();
        names.for_each(|name| {
            pipeline.set(name, 1).ignore();
        });
        pipeline.exec(&mut connection).map_err(|error| error.to_string())?;
        let resp = Some(server.address());
        Ok(Self { name: REDIS, runs: Runs::Redis(server), http: None, resp, _config: None })
    }

    /// throttlecrab's own server, with both of its protocols that we have too.
    pub(super) fn throttlecrab(programs: &Programs) -> Result<Self, String> {
        let (http, resp) = (processes::free_address()?, processes::free_address()?);
        let mut command = Command::new(programs.throttlecrab()?);
        command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &http.port().to_string()]);
        command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &resp.port().to_string()]);
        let server = cores::on_first(|| Server::start(command, &[http, resp]))?;
        let (http, resp) = (Some(http), Some(resp));
        Ok(Self { name: THROTTLECRAB, runs: Runs::Process(server), http, resp, _config: None })
    }

    /// limitador's library behind the same bare hyper, with its state in this store.
    pub(super) fn limitador(programs: &Programs, store: &str) -> Result<Self, String> {
        let mut command = Command::new(programs.limitador()?);
        command.args([store, &EXACT_LIMIT.to_string()]);
        let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
        let http = addresses.get("http").copied();
        Ok(Self { name: LIMITADOR, runs: Runs::Process(server), http, resp: None, _config: None })
    }

    /// Where it is asked in this protocol.
    pub(super) fn address(&self, protocol: Protocol) -> Result<SocketAddr, String> {
        let address = match protocol {
            Protocol::Http => self.http,
            Protocol::Resp => self.resp,
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

fn written(text: &str) -> Result<NamedTempFile, String> {
    let broken = |error: std::io::Error| format!("a temporary file: {error}");
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().map_err(broken)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(broken)?;
    Ok(file)
}
