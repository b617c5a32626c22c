//! Envoy's rate limit service on the real binary: its responses over gRPC and as JSON.

mod differential;
mod hostile;
mod real;
mod recorded;
mod semantics;
mod usage;

use sluicegate_testkit::envoy_client::EnvoyClient;

use crate::client::send;
use crate::server::{ConfigFile, Server};

/// The admin token of every server of these tests.
const TOKEN: &str = "canary-token-of-tests";

/// A server with a configuration of its own, and a client for it.
struct Scene {
    server: Server,
    client: EnvoyClient,
    _config: ConfigFile,
}

impl Scene {
    fn start(config: &str) -> Self {
        Self::with(config, &[])
    }

    fn with(config: &str, arguments: &[&str]) -> Self {
        let config = ConfigFile::new(&format!("envoy-{}", fastrand::u64(..)), config);
        let arguments = [&["--config", config.path()], arguments].concat();
        let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", TOKEN)], &arguments);
        let client = EnvoyClient::new(server.address("api"));
        Self { server, client, _config: config }
    }
}

/// The calls of the store that have failed or come too late so far. Their requests were decided without it, as far as they were:
/// on a busy machine a test of exact numbers starts again.
fn store_errors(server: &Server) -> u64 {
    let metrics = send(server.address("admin"), "GET", "/metrics").body;
    let errors = metrics.lines().filter_map(|line| line.strip_prefix("sluicegate_store_errors_total{"));
    errors.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
