//! Test support for handlers: an engine with given rules, and requests to a router without a socket.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use axum::http::header::HeaderMap;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use serde_json::Value;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::identify::Identify;
use sluicegate::identify::address::TrustedProxies;
use sluicegate::rules::file::Environment;
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::{Instances, MemoryStore};

use crate::config::RespSettings;
use crate::config::identity::IdentitySettings;
use crate::engine::{Engine, EngineOptions};
use crate::http::HttpEndpoint;
use crate::identify::identify;
use crate::net::HttpHandler as _;
use crate::secret::Secret;
use crate::store::ServerStore;

/// The admin token of every test engine.
pub(crate) const TOKEN: &str = "canary-token-of-tests";

/// A rule with a burst of `capacity` and one per hour, slow enough for any test.
pub(crate) fn hourly(name: &str, capacity: u64) -> Rule {
    let rate = Rate::new(1, Micros::from_secs(3_600)).expect("a valid rate");
    let quota = Quota::from(TokenBucket::new(capacity, rate).expect("a valid bucket"));
    Rule::new(name, Limits::all(name, [(None, quota)]))
}

/// An engine with these rules and [`TOKEN`].
pub(crate) fn engine(rules: Vec<Rule>) -> Engine {
    let rules = RuleSet::new(rules, vec!["pro".into()], Unmatched::Allow).expect("valid rules");
    let admin_token = Some(Secret::new(TOKEN.to_owned()));
    embedded(EngineOptions { rules, admin_token, identify: demo_identities(), ..EngineOptions::default() })
}

/// Identification as in the demo application.
pub(crate) fn demo_identities() -> Identify {
    let (proxies, environment) = (TrustedProxies::default(), Environment::new());
    identify(IdentitySettings::demo(), proxies, &environment).expect("nothing is read for it")
}

/// Settings of a RESP listener with this password.
pub(crate) fn resp(password: Option<&str>) -> RespSettings {
    RespSettings { password: password.map(|password| Secret::new(password.to_owned())), ..RespSettings::default() }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    /// A header's value; the empty string if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("visible ASCII"))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// Reads a whole response.
pub(crate) async fn reply(response: Response) -> Reply {
    let (head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a buffered body");
    // gRPC messages are not text.
    let body = String::from_utf8_lossy(&body).into_owned();
    Reply { status: head.status.as_u16(), headers: head.headers, body }
}

/// Sends a request through `site` as a connection from 192.0.2.7 would.
pub(crate) async fn ask(
    site: &HttpEndpoint,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.into()).expect("a valid request");
    let peer = SocketAddr::from(([192, 0, 2, 7], 40_000));
    let response = site.respond(request, peer).await;
    assert_ne!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{response:?}");
    reply(response).await
}

/// An engine with an embedded store.
pub(crate) fn embedded(options: EngineOptions) -> Engine {
    let clock = SystemClock::new();
    let store = ServerStore::Memory(MemoryStore::new(options.memory, clock.now()));
    Engine::new(options, store, clock, Instances::default())
}
