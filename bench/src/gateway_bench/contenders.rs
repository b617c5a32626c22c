//! The application, and the proxies in front of it, each started on the first core.
//!
//! All proxies keep as many connections to the application as there are clients, write no access log, set `Host` and
//! `X-Forwarded-For`, and have limits that are never reached.

use crate::processes::Server;
use crate::{Programs, cores};
use sluicegate_testkit::front_proxy::{FrontProgram, FrontProxy};
use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use tempfile::NamedTempFile;

pub(super) const DIRECT: &str = "no proxy";
pub(super) const NGINX_PLAIN: &str = "nginx";
pub(super) const NGINX_LIMITED: &str = "nginx with limit_req";
pub(super) const OURS_PLAIN: &str = "sluicegate, exempt path";
pub(super) const OURS: &str = "sluicegate";

/// The application's response, of the size of a small API's.
const ANSWER: &str = r#"{"id":7,"name":"an item","tags":["one","two"],"price":{"amount":1299,"currency":"EUR"}}"#;

/// The application behind all contenders. It shares the core of the clients.
pub(super) struct Application {
    address: SocketAddr,
    _server: Server,
}

/// A contender.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    runs: Runs,
}

enum Runs {
    /// No process.
    Nothing,
    Nginx(FrontProxy),
    Ours {
        server: Server,
        /// The folder of its configuration.
        _config: NamedTempFile,
    },
}

impl Application {
    pub(super) fn start() -> Result<Self, String> {
        cores::pin_client(0);
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args(["bare-http", ANSWER]);
        let (server, addresses) = Server::start_announcing(command)?;
        let address = *addresses.get("http").ok_or("the application does not say where it listens")?;
        Ok(Self { address, _server: server })
    }
}

impl Contender {
    /// All contenders in the order of measurement; the direct connection comes first.
    pub(super) fn all(programs: &Programs, application: &Application) -> Result<Vec<Self>, String> {
        let upstream = application.address;
        Ok(vec![
            Self { name: DIRECT, address: upstream, runs: Runs::Nothing },
            Self::nginx(NGINX_PLAIN, upstream, ""),
            Self::nginx(NGINX_LIMITED, upstream, "limit_req zone=bench burst=100000 nodelay;"),
            Self::ours(OURS_PLAIN, programs, upstream, "[/**]")?,
            Self::ours(OURS, programs, upstream, "[]")?,
        ])
    }

    fn nginx(name: &'static str, upstream: SocketAddr, limit: &str) -> Self {
        let configuration = |port| vec![("servers.conf", nginx(port, upstream, limit))];
        let proxy = cores::on_first(|| FrontProxy::start(FrontProgram::Nginx, configuration));
        Self { name, address: proxy.address(), runs: Runs::Nginx(proxy) }
    }

    fn ours(name: &'static str, programs: &Programs, upstream: SocketAddr, exempt: &str) -> Result<Self, String> {
        let broken = |error: std::io::Error| format!("a temporary file: {error}");
        let mut config = tempfile::Builder::new().suffix(".yaml").tempfile().map_err(broken)?;
        config.write_all(sluicegate(upstream, exempt).as_bytes()).map_err(broken)?;
        let mut command = Command::new(programs.ours()?);
        command.arg("--config").arg(config.path());
        command.args(["--gateway", "127.0.0.1:0", "--api", "off", "--admin", "off"]);
        let (server, addresses) = cores::on_first(|| Server::start_announcing(command))?;
        let address = *addresses.get("gateway").ok_or("our gateway does not say where it listens")?;
        Ok(Self { name, address, runs: Runs::Ours { server, _config: config } })
    }

    /// The process of the proxy, if there is one.
    pub(super) fn process(&self) -> Option<u32> {
        match &self.runs {
            Runs::Nothing => None,
            Runs::Nginx(proxy) => Some(proxy.process_id()),
            Runs::Ours { server, .. } => Some(server.id()),
        }
    }
}

/// nginx with a usual configuration, as one process without workers.
fn nginx(port: u16, upstream: SocketAddr, limit: &str) -> String {
    format!(
        "limit_req_zone $http_x_api_key zone=bench:32m rate=1000000r/s;
        upstream application {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}
        server {{
            listen 127.0.0.1:{port};
            keepalive_requests 100000000;
            location / {{
                {limit}
                proxy_pass http://application;
                proxy_http_version 1.1;
                proxy_set_header Connection \"\";
                proxy_set_header Host $host;
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            }}
        }}"
    )
}

fn sluicegate(upstream: SocketAddr, exempt: &str) -> String {
    format!(
        "identity: [{{ api_key: {{ header: X-API-Key, verify: false }} }}]
gateway:
  routes: [{{ path: /**, upstream: \"http://{upstream}\" }}]
  exempt: {exempt}
rules:
  - {{ name: open, limits: [{{ algorithm: token_bucket, capacity: 30000000, refill: 1/10s }}] }}
"
    )
}
