//! The front doors, each with a store of its own: servers of the binary, and the middleware in this process.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Extensions;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluicegate::clock::SystemClock;
use sluicegate::gate::Gate;
use sluicegate::identify::address::TrustedProxies;
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::token::{IssuerOptions, Keys, Tokens};
use sluicegate::identify::{Identify, Principal, Source};
use sluicegate::middleware::RateLimitLayer;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Limiter, MemoryStore};

use super::requests::{AUDIENCE, ISSUER, KEYS, SECRET, TestRequest};
use crate::client::{Answer, post};
use crate::server::{ConfigFile, Server};

/// The variable that holds the secret of the tokens.
const SECRET_VARIABLE: &str = "SAME_ANSWER_SECRET";

/// Gateway, forward-auth and middleware.
pub(super) struct FrontDoors {
    gateway: Server,
    auth: Server,
    middleware: SocketAddr,
    upstream: Arc<AtomicUsize>,
}

impl FrontDoors {
    pub(super) fn start(test: &str, rules: &str) -> Self {
        let (application, upstream) = application();
        let routes =
            format!("gateway: {{ routes: [{{ path: /**, upstream: 'http://{}' }}] }}\n", serve(application));
        let (behind_the_layer, _) = self::application();
        Self {
            gateway: server(&format!("{test}-gateway"), &format!("{routes}{rules}")),
            auth: server(&format!("{test}-auth"), rules),
            middleware: serve(behind_the_layer.layer(layer(rules))),
            upstream,
        }
    }

    /// One more server, without routes.
    pub(super) fn demo(&self, test: &str, rules: &str) -> Server {
        server(test, &format!("demo: true\n{rules}"))
    }

    pub(super) fn gateway(&self, request: &TestRequest) -> Answer {
        request.send(self.gateway.address("gateway"))
    }

    pub(super) fn forward_auth(&self, request: &TestRequest) -> Answer {
        request.send_about(self.auth.address("api"))
    }

    pub(super) fn middleware(&self, request: &TestRequest) -> Answer {
        request.send(self.middleware)
    }

    /// The number of requests that the gateway has forwarded.
    pub(super) fn upstream_requests(&self) -> usize {
        self.upstream.load(Ordering::Relaxed)
    }
}

/// Sends a check to the API.
pub(super) fn check(api: SocketAddr, body: &Value) -> Answer {
    post(api, "/v1/check", body.to_string())
}

/// A server that knows the clients of the requests.
fn server(test: &str, sections: &str) -> Server {
    let keys: String = KEYS
        .iter()
        .map(|(key, (identifier, tier, tenant))| {
            let hash: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
            let tier = tier.map(|tier| format!(", tier: {tier}")).unwrap_or_default();
            let tenant = tenant.map(|tenant| format!(", tenant: {tenant}")).unwrap_or_default();
            format!("        - {{ sha256: '{hash}', identifier: {identifier}{tier}{tenant} }}\n")
        })
        .collect();
    let text = format!(
        "trusted_proxies: [127.0.0.1]\n\
         trusted_header: x-forwarded-for\n\
         identity:\n  \
           - jwt: {{ issuer: '{ISSUER}', audience: {AUDIENCE}, secret_env: {SECRET_VARIABLE}, tier_claim: tier, \
             tenant_claim: org }}\n  \
           - api_key:\n      keys:\n{keys}  \
           - ip: {{}}\n\
         {sections}"
    );
    let file = ConfigFile::new(test, text);
    Server::start_with(&[(SECRET_VARIABLE, SECRET)], &["--config", file.path()])
}

/// The same clients and rules for the middleware.
fn layer(rules: &str) -> RateLimitLayer<MemoryStore, SystemClock> {
    let rules = RuleSet::from_yaml(rules, "rules.yaml", &Environment::new()).expect("good rules");
    let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
    let secret = Keys::secret(SECRET.as_bytes()).expect("long enough");
    let mut issuer = IssuerOptions::new(ISSUER, [AUDIENCE], secret);
    (issuer.tier_claim, issuer.tenant_claim) = (Some("tier".to_owned()), Some("org".to_owned()));
    let tokens = Tokens::new(vec![issuer]).expect("good settings");
    let keys = KEYS.map(|(key, (identifier, tier, tenant))| {
        let [tier, tenant] = [tier, tenant].map(|text| text.map(Into::into));
        (KeyHash::of(key.as_bytes()), Principal { identifier: identifier.into(), tier, tenant })
    });
    let keys = ApiKeys::new("x-api-key".parse().expect("a name"), keys);
    let proxies = TrustedProxies::parse(["127.0.0.1"]).expect("an address");
    let sources = vec![Source::Tokens(tokens), Source::ApiKeys(keys), Source::Address];
    let peer = |extensions: &Extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    RateLimitLayer::new(Gate::new(limiter, Identify::new(sources).behind(proxies)), peer)
}

/// An application with rate limit headers of its own, and the number of its requests.
fn application() -> (Router, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let own =
        [("x-ratelimit-limit", "7"), ("x-ratelimit-used", "7"), ("ratelimit", "7"), ("ratelimit-limit", "7")];
    let router = Router::new().fallback(async move || {
        counted.fetch_add(1, Ordering::Relaxed);
        (own, "the application's")
    });
    (router, count)
}

/// Serves on a port that the kernel assigns, in a thread that ends with the process of the test.
pub(crate) fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).await.expect("it serves");
        });
    });
    address
}
