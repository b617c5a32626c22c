//! An axum application with rate limits in front of its handlers. The layer identifies clients by an API key, or by
//! their address without one, and passes the identity to the handlers.
//!
//! ```text
//! cargo run -p sluicegate --features axum --example axum_layer -- 127.0.0.1:3000
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use sluicegate::clock::SystemClock;
use sluicegate::gate::Gate;
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::{Client, Identify, Principal, Source};
use sluicegate::middleware::RateLimitLayer;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Identity, Limiter, MemoryStore};
use tokio::net::TcpListener;

type Error = Box<dyn std::error::Error + Send + Sync>;

const RULES: &str = "
tiers: [pro]
rules:
  - name: hello
    match: { path: /hello }
    limits: [{ algorithm: token_bucket, capacity: 3, refill: 3/h }]
    tiers: { pro: [{ algorithm: token_bucket, capacity: 100, refill: 100/min }] }
";

/// The limits and the identification of clients. A real application keeps the hashes of its keys in its
/// configuration, not the keys in its code.
fn limits() -> Result<RateLimitLayer<MemoryStore, SystemClock>, Error> {
    let rules = RuleSet::from_yaml(RULES, "rules.yaml", &Environment::new())?;
    let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
    let owner = |name: &str, tier: Option<&str>| Principal {
        identifier: name.into(),
        tier: tier.map(Into::into),
        tenant: None,
    };
    let keys = [
        (KeyHash::of(b"demo-key"), owner("demo", None)),
        (KeyHash::of(b"pro-key"), owner("professional", Some("pro"))),
    ];
    let keys = ApiKeys::new("x-api-key".parse()?, keys);
    let identify = Identify::new(vec![Source::ApiKeys(keys), Source::Address]);
    Ok(RateLimitLayer::new(Gate::new(limiter, identify), |extensions| {
        extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
    }))
}

async fn hello(client: Client) -> String {
    match client.identity() {
        Identity::Named(name) => format!("hello {name}\n"),
        _ => format!("hello {}\n", client.address()),
    }
}

/// Serves until an error occurs.
pub async fn serve(listener: TcpListener) -> Result<(), Error> {
    let application = Router::new().route("/hello", get(hello)).layer(limits()?);
    Ok(axum::serve(listener, application.into_make_service_with_connect_info::<SocketAddr>()).await?)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints how to try it")]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening {address}");
    println!("try: curl -i -H 'X-API-Key: demo-key' http://{address}/hello");
    serve(listener).await
}
