//! Real servers for tests of the Redis store: every program that must behave alike.

use redis::aio::MultiplexedConnection;
use sluicegate_testkit::redis_server::{Options, Program, RedisServer};
use std::time::Duration;

/// The servers that must all behave alike.
pub(crate) const SERVERS: [Program; 2] = [Program::Redis, Program::Valkey];

/// A server that dies with this value.
pub(crate) struct Server(RedisServer);

impl Server {
    pub(crate) fn start(program: Program) -> Self {
        Self(RedisServer::with(&Options::new(program)))
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.0.url()).unwrap();
        // Tests send hundreds of commands at once, which are to be neither held back nor given up.
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
