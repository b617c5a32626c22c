//! What tests of handlers share: an app with rules of their own, and a way to ask a router without a socket.

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

use crate::app::{App, AppOptions};
use crate::config::RespSettings;
use crate::config::identity::IdentitySettings;
use crate::http::Site;
use crate::identify::identify;
use crate::secret::Secret;
use crate::store::ServerStore;

/// The admin token of every test's app.
pub(crate) const TOKEN: &str = "canary-token";

/// A rule of `capacity` at once that gives back one in an hour, so that no test is too slow for it.
pub(crate) fn hourly(name: &str, capacity: u64) -> Rule {
    let rate = Rate::new(1, Micros::from_secs(3_600)).expect("a valid rate");
    let quota = Quota::from(TokenBucket::new(capacity, rate).expect("a valid bucket"));
    Rule::new(name, Limits::all(name, [(None, quota)]))
}

/// An app with these rules and [`TOKEN`].
pub(crate) fn app(rules: Vec<Rule>) -> App {
    let rules = RuleSet::new(rules, vec!["pro".into()], Unmatched::Allow).expect("valid rules");
    let admin_token = Some(Secret::new(TOKEN.to_owned()));
    embedded(AppOptions { rules, admin_token, identify: demo_identities(), ..AppOptions::default() })
}

/// Callers are known as the demo application knows them.
pub(crate) fn demo_identities() -> Identify {
    let (proxies, environment) = (TrustedProxies::default(), Environment::new());
    identify(IdentitySettings::demo(), proxies, &environment).expect("nothing is read for it")
}

/// Settings of a RESP listener with this password.
pub(crate) fn resp(password: Option<&str>) -> RespSettings {
    RespSettings { password: password.map(|password| Secret::new(password.to_owned())), ..RespSettings::default() }
}

/// One answer.
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

/// Reads a whole answer.
pub(crate) async fn reply(response: Response) -> Reply {
    let (head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a buffered body");
    // Messages of gRPC are no text.
    let body = String::from_utf8_lossy(&body).into_owned();
    Reply { status: head.status.as_u16(), headers: head.headers, body }
}

/// Takes a request through `site` as a connection from 192.0.2.7 would.
pub(crate) async fn ask(
    site: &Site,
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
    let response = crate::http::answer(site, request, peer).await;
    assert_ne!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{response:?}");
    reply(response).await
}

/// An app with a store in this process.
pub(crate) fn embedded(options: AppOptions) -> App {
    let clock = SystemClock::new();
    let store = ServerStore::Memory(MemoryStore::new(options.memory, clock.now()));
    App::new(options, store, clock, Instances::default())
}
