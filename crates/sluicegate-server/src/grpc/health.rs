//! `grpc.health.v1` by the server's readiness: SERVING while `/readyz` is 200.
//!
//! A client may watch several names over one connection, each for any time, so watches are bounded by
//! connection, by address and in all.
//!
//! Two names exist: the empty one for the whole server, and `ratelimit`, the name of Envoy's own service.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use futures_util::Stream;
use sluicegate::identify::address::{IPV6_PREFIX_BITS, counted};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::engine::Engine;
use crate::health::{Health, Readiness, is_ready};
use crate::keyed_cap::{CapGuard, CapReached, KeyedCap};

/// The path prefix of the service's methods.
const PATHS: &str = "/grpc.health.v1.Health/{*method}";

/// The known names.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// The bound of a message, which contains a name.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// The interval at which watches check readiness: short enough that clients learn of a change before they notice it.
const WATCH_PERIOD: Duration = Duration::from_millis(250);

/// The most watches at a time. Each holds a stream and is polled four times per second.
pub(crate) const WATCHES_MAX: u32 = 1_024;
/// The most watches of one connection: clients have one, or one for each name.
pub(crate) const WATCHES_PER_CONNECTION_MAX: u32 = 8;
/// The most of one IPv4 address or /64 of IPv6, so that one client cannot lock out the others.
pub(crate) const WATCHES_PER_ADDRESS_MAX: u32 = 128;

/// The service.
#[derive(Clone, Debug)]
struct HealthOfServer {
    engine: Engine,
    health: Health,
    watches: WatchCaps,
}

/// The caps on open watches.
#[derive(Clone, Debug)]
struct WatchCaps {
    /// By the address and port of the connection.
    by_connection: Arc<KeyedCap<SocketAddr>>,
    by_address: Arc<KeyedCap<IpAddr>>,
}

/// The places of one watch. Dropping them frees them.
type WatchGuards = (CapGuard<IpAddr>, CapGuard<SocketAddr>);

impl WatchCaps {
    fn new() -> Self {
        Self {
            by_connection: KeyedCap::new(WATCHES_MAX, WATCHES_PER_CONNECTION_MAX),
            by_address: KeyedCap::new(WATCHES_MAX, WATCHES_PER_ADDRESS_MAX),
        }
    }

    fn acquire(&self, peer: SocketAddr) -> Result<WatchGuards, Status> {
        let of_connection = self.by_connection.acquire(peer).map_err(|full| no_place(full, OF_CONNECTION))?;
        let address = counted(peer.ip(), IPV6_PREFIX_BITS);
        let of_address = self.by_address.acquire(address).map_err(|full| no_place(full, OF_ADDRESS))?;
        Ok((of_address, of_connection))
    }
}

/// The router of the service.
pub(super) fn router(engine: Engine, health: Health) -> Router {
    let watches = WatchCaps::new();
    let server =
        HealthServer::new(HealthOfServer { engine, health, watches }).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Router::new().route_service(PATHS, server)
}

impl HealthOfServer {
    fn current_status(&self) -> HealthCheckResponse {
        let is_ready = is_ready(&self.health, &self.engine);
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        HealthCheckResponse { status: status.into() }
    }

    /// Sends every change, until the client disconnects or the server stops.
    async fn send_changes(
        self,
        listener: mpsc::Sender<Result<HealthCheckResponse, Status>>,
        _guards: WatchGuards,
    ) {
        let mut sent = None;
        loop {
            let status = self.current_status();
            if sent != Some(status) && listener.send(Ok(status)).await.is_err() {
                return;
            }
            sent = Some(status);
            if self.health.readiness() == Readiness::Stopping {
                return;
            }
            tokio::select! {
                () = sleep(WATCH_PERIOD) => {}
                () = listener.closed() => return,
            }
        }
    }
}

/// The message to watches.
type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

/// The most watches of one client, and the meaning of "client".
const OF_CONNECTION: (u32, &str) = (WATCHES_PER_CONNECTION_MAX, "connection");
const OF_ADDRESS: (u32, &str) = (WATCHES_PER_ADDRESS_MAX, "address");

fn no_place(full: CapReached, (max, client): (u32, &str)) -> Status {
    Status::resource_exhausted(match full {
        CapReached::Total => {
            format!("{WATCHES_MAX} watches are open, which is the most; ask with Check, or try again later")
        }
        CapReached::Key => {
            format!("{max} watches of this {client} are open, which is the most; close one of them")
        }
    })
}

#[tonic::async_trait]
impl HealthService for HealthOfServer {
    type WatchStream = WatchStream;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !NAMES.contains(&&*request.get_ref().service) {
            return Err(Status::not_found("the services here are `` and `ratelimit`"));
        }
        Ok(Response::new(self.current_status()))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<WatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        if NAMES.contains(&&*request.get_ref().service) {
            let connection = request.extensions().get::<ConnectInfo<SocketAddr>>();
            let connection = connection.map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |ConnectInfo(peer)| *peer);
            let guards = self.watches.acquire(connection)?;
            tokio::spawn(self.clone().send_changes(sender, guards));
        } else {
            // The protocol keeps the call open, because the name may become known. Here it never does, so the call ends.
            let unknown = HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
            let _ = sender.try_send(Ok(unknown));
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_one_address_are_bounded_and_others_are_not_affected() {
        let watches = WatchCaps::new();
        let peer = |address: &str, port: u16| SocketAddr::new(address.parse().expect("an address"), port);
        for [address, same, other] in
            [["192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"], ["2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1"]]
        {
            let guards: Vec<_> =
                (0..128).map(|port| watches.acquire(peer(address, port)).expect("a place")).collect();
            let rejected = watches.acquire(peer(same, 200)).expect_err("the address has all of its places");
            assert!(rejected.message().starts_with("128 watches of this address"), "{rejected:?}");
            assert!(watches.acquire(peer(other, 1)).is_ok(), "{other}");
            drop(guards);
            assert!(watches.acquire(peer(same, 200)).is_ok(), "the places are free again");
        }
    }
}
