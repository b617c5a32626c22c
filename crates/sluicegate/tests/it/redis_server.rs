//! Real servers for tests of the Redis store: every server program that must behave the same.

use redis::aio::MultiplexedConnection;
use sluicegate_testkit::redis_server::{Options, Program, RedisServer};
use std::time::Duration;

/// The server programs that must behave the same.
pub(crate) const SERVERS: [Program; 2] = [Program::Redis, Program::Valkey];

/// A server that is killed when this value is dropped.
pub(crate) struct Server(RedisServer);

impl Server {
    pub(crate) fn start(program: Program) -> Self {
        Self(RedisServer::with(&Options::new(program)))
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.0.url()).unwrap();
        // Tests send hundreds of concurrent commands, which the client library must neither delay nor drop.
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(Duration::from_secs(20)))
            .set_pipeline_buffer_size(1_000);
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
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
