//! The gateway listener: the demo application, and requests to upstreams of the tests.

mod demo;
mod forwarding;
pub(crate) mod http2;
mod many;
mod misbehaving;
mod routing;
mod streaming;
mod tls;
pub(crate) mod upstream;
mod websocket;

use std::net::SocketAddr;

use crate::client::{Answer, Connection};
use crate::server::{ConfigFile, Server};

/// The identity of a client is the key `demo-key`, or else its address.
const IDENTITY: &str = "identity:
  - api_key:
      keys: [{ sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo }]
  - ip: {}";

/// A rule with limits that no test reaches.
const AMPLE: &str = "rules:
  - name: ample
    limits: [{ algorithm: token_bucket, capacity: 1000000, refill: 1000000/s }]";

/// A server with a configuration of its own.
struct Gateway {
    server: Server,
    _file: ConfigFile,
}

impl Gateway {
    /// A gateway with this section `gateway` and limits that no test reaches.
    fn start(test: &str, section: &str) -> Self {
        Self::with_rules(test, section, AMPLE)
    }

    fn with_rules(test: &str, section: &str, rules: &str) -> Self {
        let file = ConfigFile::new(
            &format!("gateway-{test}"),
            format!("gateway: {{ {section} }}\n{IDENTITY}\n{rules}\n"),
        );
        let server = Server::start(&["--config", file.path()]);
        Self { server, _file: file }
    }

    /// A gateway that forwards everything to `upstream`, with more keys of the route such as `", timeout: 1s"`.
    fn to(test: &str, upstream: SocketAddr, more: &str) -> Self {
        Self::start(test, &format!("routes: [{{ path: /**, upstream: 'http://{upstream}'{more} }}]"))
    }

    fn address(&self) -> SocketAddr {
        self.server.address("gateway")
    }

    /// Sends a request byte by byte as given, and reads until the gateway closes.
    fn send(&self, request: &str) -> Answer {
        let mut connection = Connection::open(self.address());
        connection.send(request);
        connection.answer()
    }

    /// Requests `path` with these header lines.
    fn get(&self, path: &str, headers: &[&str]) -> Answer {
        self.send(&get(path, headers))
    }
}

/// A request that closes its connection.
fn get(path: &str, headers: &[&str]) -> String {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\nhost: t\r\n{lines}connection: close\r\n\r\n")
}
