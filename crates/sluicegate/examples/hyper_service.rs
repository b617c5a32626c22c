//! A plain hyper server with rate limits in front of its service. The layer identifies clients by their address.
//! ```text
//! cargo run -p sluicegate --features tower --example hyper_service -- 127.0.0.1:3000
//! ```

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use sluicegate::clock::SystemClock;
use sluicegate::gate::Gate;
use sluicegate::identify::{Client, Identify, Source};
use sluicegate::middleware::RateLimitLayer;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Limiter, MemoryStore};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};

type Error = Box<dyn std::error::Error + Send + Sync>;

const RULES: &str =
    "rules: [{ name: per-client, per: ip, limits: [{ algorithm: token_bucket, capacity: 3, refill: 3/h }] }]";

fn limits() -> Result<RateLimitLayer<MemoryStore, SystemClock>, Error> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml", &Environment::new())?;
    let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
    let gate = Gate::new(limiter, Identify::new(vec![Source::Address]));
    Ok(RateLimitLayer::new(gate, |extensions| extensions.get::<SocketAddr>().map(SocketAddr::ip)))
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let client = request.extensions().get::<Client>().map(|client| client.address().to_string());
    Ok(Response::new(Full::from(format!("hello {}\n", client.unwrap_or_default()))))
}

/// Serves until an error occurs. All connections share one layer, and therefore the limits.
pub async fn serve(listener: TcpListener) -> Result<(), Error> {
    let limits = limits()?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                request
            })
            .layer(limits.clone())
            .service(service_fn(hello));
        tokio::spawn(async move {
            let server = Builder::new(TokioExecutor::new());
            // An error of one connection does not affect the others.
            drop(server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await);
        });
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints how to try it")]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening {address}");
    println!("try: curl -i http://{address}/");
    serve(listener).await
}
