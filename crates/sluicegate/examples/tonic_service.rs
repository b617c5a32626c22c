//! A gRPC server on tonic with rate limits in front of its services. A denial is `RESOURCE_EXHAUSTED`, and an unknown
//! key is `UNAUTHENTICATED`. The service is the gRPC health check, so the example needs no generated code.
//! ```text
//! cargo run -p sluicegate --features tower --example tonic_service -- 127.0.0.1:3000
//! ```

use sluicegate::clock::SystemClock;
use sluicegate::gate::Gate;
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::{Identify, Principal, Source};
use sluicegate::middleware::RateLimitLayer;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Limiter, MemoryStore};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The path of a call consists of its service and method.
const RULES: &str = "
rules:
  - name: health
    match: { path: /grpc.health.v1.Health/** }
    limits: [{ algorithm: token_bucket, capacity: 3, refill: 3/h }]
";

/// Metadata are header fields: a client sends its key as `x-api-key`.
fn limits() -> Result<RateLimitLayer<MemoryStore, SystemClock>, Error> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml", &Environment::new())?;
    let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
    let owner = Principal { identifier: "demo".into(), tier: None, tenant: None };
    let keys = ApiKeys::new("x-api-key".parse()?, [(KeyHash::of(b"demo-key"), owner)]);
    let identify = Identify::new(vec![Source::ApiKeys(keys)]);
    Ok(RateLimitLayer::new(Gate::new(limiter, identify), |extensions| {
        extensions.get::<TcpConnectInfo>()?.remote_addr().map(|peer| peer.ip())
    }))
}

/// Serves until an error occurs.
pub async fn serve(listener: TcpListener) -> Result<(), Error> {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(limits()?).add_service(health);
    Ok(server.serve_with_incoming(TcpIncoming::from(listener)).await?)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints how to try it")]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening {address}");
    // Five zero bytes are an empty message: not compressed, and of length zero.
    println!(
        "try: printf '\\0\\0\\0\\0\\0' | curl -i --http2-prior-knowledge --data-binary @- -o /dev/null -D - -H 'te: \
         trailers' -H 'content-type: application/grpc' -H 'x-api-key: demo-key' \
         http://{address}/grpc.health.v1.Health/Check"
    );
    serve(listener).await
}
