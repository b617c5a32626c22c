//! `grpc.health.v1` by the server's readiness: what `/readyz` answers 200 to is serving.
//!
//! Two names are known: none, for the whole server, and `ratelimit`, which is what Envoy's own service calls itself.

use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::app::App;
use crate::http::health::{Health, Readiness, is_ready};

/// Where the service's methods are.
const PATHS: &str = "/grpc.health.v1.Health/{*method}";

/// The names that can be asked for.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// Bytes of one message: a name.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// How often a watched readiness is looked at: often enough that whoever watches is told before a client notices.
const WATCH_PERIOD: Duration = Duration::from_millis(250);

/// The service.
#[derive(Clone, Debug)]
struct HealthOfServer {
    app: App,
    health: Health,
}

/// The router of the service.
pub(super) fn router(app: App, health: Health) -> Router {
    let server = HealthServer::new(HealthOfServer { app, health }).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Router::new().route_service(PATHS, server)
}

impl HealthOfServer {
    fn answer(&self) -> HealthCheckResponse {
        let is_ready = is_ready(&self.health, &self.app);
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        HealthCheckResponse { status: status.into() }
    }

    /// Tells every change, until nobody listens or the server stops.
    async fn tell(self, listener: mpsc::Sender<Result<HealthCheckResponse, Status>>) {
        let mut told = None;
        loop {
            let answer = self.answer();
            if told != Some(answer) && listener.send(Ok(answer)).await.is_err() {
                return;
            }
            told = Some(answer);
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

/// What watchers are told.
type Told = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl HealthService for HealthOfServer {
    type WatchStream = Told;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !NAMES.contains(&&*request.get_ref().service) {
            return Err(Status::not_found("the services here are `` and `ratelimit`"));
        }
        Ok(Response::new(self.answer()))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Told>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        if NAMES.contains(&&*request.get_ref().service) {
            tokio::spawn(self.clone().tell(sender));
        } else {
            // The protocol wants the call to stay open: the name may become known. Here it never does, so it ends.
            let unknown = HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
            let _ = sender.try_send(Ok(unknown));
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
