//! A real server for a test: any free port, nothing on disk, gone with the test.

use redis::aio::MultiplexedConnection;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The servers that must all behave alike.
pub(crate) const SERVERS: [&str; 1] = ["redis-server"];

/// A server that dies with this value.
pub(crate) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(program: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--dir", env!("CARGO_TARGET_TMPDIR")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, port }
    }

    /// A connection, as soon as the server takes one.
    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        // Tests send hundreds of commands at once, which are to be neither held back nor given up.
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(Duration::from_secs(20)))
            .set_pipeline_buffer_size(1_000);
        for _ in 0..1_000 {
            match client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => return connection,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("the server does not answer");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a test against every server.
pub(crate) fn on_every_server(test: impl AsyncFn(&Server)) {
    for program in SERVERS {
        let server = Server::start(program);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(&server));
    }
}
