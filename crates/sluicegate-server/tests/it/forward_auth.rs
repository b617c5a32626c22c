//! Forward-auth behind real proxies, with the configurations of `docs/forward-auth.md`.
//!
//! In each test a client sends a request to a proxy, the proxy sends a check to Sluicegate, and an application behind
//! the proxy records the requests that reach it. Clients have loopback addresses of their own, which differ from the
//! address of the proxy (127.0.0.1, which is trusted).

pub(crate) mod application;
mod fronts;
mod original_request;
pub(crate) mod page;

use std::net::Ipv4Addr;

use sluicegate_testkit::front_proxy::FrontProxy;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

use self::application::Application;
use crate::client::{Answer, Connection};
use crate::server::{ConfigFile, PATIENCE, Server};

/// The limit of the rule on the page.
const CAPACITY: usize = 5;

const ALICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BOB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

const DEMO_KEY: &str = "x-api-key: demo-key\r\n";

/// The header fields that report the limits to clients.
const LIMITS: [&str; 5] =
    ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// A proxy with Sluicegate beside it and an application behind it.
struct Scene {
    server: Server,
    application: Application,
    front: FrontProxy,
    _config: ConfigFile,
}

impl Scene {
    fn start(front: &fronts::Front) -> Self {
        Self::with(front, page::block("Sluicegate", "yaml", 0), &[])
    }

    fn with(front: &fronts::Front, config: String, arguments: &[&str]) -> Self {
        let config = ConfigFile::new(&format!("forward-auth-{}", fastrand::u64(..)), config);
        let server = Server::start(&[&["--config", config.path()], arguments].concat());
        let application = Application::start();
        let front = (front.start)(server.address("api"), application.address());
        let scene = Self { server, application, front, _config: config };
        // A proxy may accept connections before it has its routes. A request with an unknown key charges no client.
        poll::until_true("the proxy's routes", PATIENCE, || {
            scene.send(BOB, "GET", "/api/ready", "x-api-key: wrong\r\n").status == 401
        });
        assert_eq!(scene.application.count(), 0);
        scene
    }

    /// Sends a request from `source` to the proxy; `fields` are whole lines.
    fn send(&self, source: Ipv4Addr, method: &str, path: &str, fields: &str) -> Answer {
        let mut connection = Connection::open_from(source, self.front.address());
        connection
            .send(format!("{method} {path} HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n{fields}\r\n"));
        connection.answer()
    }

    #[track_caller]
    fn passes(&self, source: Ipv4Addr, method: &str, path: &str, fields: &str) -> Answer {
        let before = self.application.count();
        let answer = self.send(source, method, path, fields);
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}\n{}", self.front.log());
        assert_eq!(self.application.count(), before + 1, "{method} {path} has not reached the application");
        answer
    }

    #[track_caller]
    fn is_denied(&self, source: Ipv4Addr, method: &str, path: &str, fields: &str) -> Answer {
        let before = self.application.count();
        let answer = self.send(source, method, path, fields);
        assert_eq!(answer.status, 429, "{method} {path}: {answer:?}\n{}", self.front.log());
        assert_eq!(self.application.count(), before, "{method} {path} was denied and reached the application");
        answer
    }
}

fn allowed_requests_pass_and_denied_ones_do_not(front: &fronts::Front) {
    let scene = Scene::start(front);
    for left in (0..CAPACITY).rev() {
        let answer = scene.passes(ALICE, "GET", "/api/orders?page=1", DEMO_KEY);
        assert_eq!(answer.body, application::BODY);
        // Sluicegate's value replaces that of the application.
        let told = if front.tells_limits { left.to_string() } else { application::OWN_REMAINING.to_owned() };
        assert_eq!(answer.headers("x-ratelimit-remaining"), [told]);
        let is_told = LIMITS.iter().all(|name| answer.headers(name).len() == 1);
        assert_eq!(is_told, front.tells_limits, "{answer:?}");
    }
    let denied = scene.is_denied(ALICE, "GET", "/api/orders?page=1", DEMO_KEY);
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.header("retry-after").is_some_and(|wait| wait.parse::<u32>().is_ok_and(|wait| wait >= 1)));
    assert!(LIMITS.iter().all(|name| denied.headers(name).len() == 1), "{denied:?}");
    assert_eq!(denied.json()["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    for hidden in ["x-sluicegate-identifier", "x-sluicegate-status", "x-sluicegate-tenant"] {
        assert_eq!(denied.header(hidden), None, "{hidden} is not the client's to know");
    }
    // A request without a matching rule passes, without limit headers.
    let free = scene.passes(ALICE, "GET", "/about", DEMO_KEY);
    assert_eq!((free.header("ratelimit"), free.header("x-ratelimit-limit")), (None, None));
}

fn bad_credentials_are_401_and_charge_no_client(front: &fronts::Front) {
    let scene = Scene::start(front);
    for key in ["x-api-key: wrong\r\n", "x-api-key:\r\n", "x-api-key: demo-key\r\nx-api-key: demo-key\r\n"] {
        let refused = scene.send(ALICE, "GET", "/api/orders", key);
        assert_eq!(refused.status, 401, "{key:?}: {refused:?}");
        assert!(refused.header("www-authenticate").is_some(), "{refused:?}");
    }
    assert_eq!(scene.application.count(), 0);
    for _ in 0..CAPACITY {
        scene.passes(ALICE, "GET", "/api/orders", "");
    }
}

fn methods_and_spellings_of_a_path_share_one_quota(front: &fronts::Front) {
    let scene = Scene::start(front);
    scene.passes(ALICE, "HEAD", "/api/orders", "");
    scene.passes(ALICE, "OPTIONS", "/api/orders", "");
    scene.passes(ALICE, "GET", "/api/./orders", "");
    scene.passes(ALICE, "GET", "/%61pi/orders", "");
    scene.passes(ALICE, "DELETE", "/API/orders", "");
    for (method, path) in [
        ("HEAD", "/api/orders"),
        ("OPTIONS", "/api/x"),
        ("GET", "/api/a/../b"),
        ("GET", "/api/%6frders"),
        ("PUT", "/Api/"),
    ] {
        scene.is_denied(ALICE, method, path, "");
    }
}

/// Row 60: every way for a client to impersonate another client, or to disguise its request.
fn claims_of_a_client_change_nothing(front: &fronts::Front) {
    let scene = Scene::start(front);
    for _ in 0..CAPACITY {
        scene.passes(ALICE, "POST", "/api/orders", "content-length: 0\r\n");
    }
    let reached = scene.application.count();
    for claim in [
        "x-forwarded-for: 192.0.2.1\r\n",
        "x-forwarded-for: 192.0.2.1, 192.0.2.2\r\nx-forwarded-for: 192.0.2.3\r\n",
        "forwarded: for=192.0.2.1\r\n",
        "x-real-ip: 192.0.2.1\r\n",
        "x-forwarded-uri: /about\r\n",
        "x-original-uri: /about\r\n",
        "x-original-uri: /about\r\nx-original-method: GET\r\n",
        "x-forwarded-uri: /about\r\nx-forwarded-method: GET\r\nx-forwarded-host: other.test\r\n",
        "x-sluicegate-identifier: demo\r\nx-sluicegate-tier: admin\r\n",
        "x-http-method-override: GET\r\n",
    ] {
        scene.is_denied(ALICE, "POST", "/api/orders", &format!("content-length: 0\r\n{claim}"));
    }
    // The client also controls the query.
    for query in ["?deny_status=401", "?deny_status=200", "?deny_status=403&deny_status=403", "?"] {
        scene.is_denied(ALICE, "GET", &format!("/api/orders{query}"), "");
    }
    assert_eq!(scene.application.count(), reached);
    // The key is the address: another client has a quota of its own, in spite of its forged headers.
    scene.passes(BOB, "GET", "/api/orders", "x-forwarded-for: 127.0.0.2\r\nforwarded: for=127.0.0.2\r\n");
}

fn the_application_gets_the_identity_only_from_the_server(front: &fronts::Front) {
    let scene = Scene::start(front);
    let names = ["identifier", "tenant", "tier"];
    let claim = |name| {
        ["x-sluicegate-", "x_sluicegate_", "X-Sluicegate_", "X_SLUICEGATE-"]
            .map(|start| format!("{start}{name}: gold\r\n"))
    };
    let claims = names.map(|name| claim(name).concat()).concat();
    scene.passes(ALICE, "GET", "/api/orders", &format!("{DEMO_KEY}{claims}"));
    let known = scene.application.last();
    assert_eq!(known.field("x-sluicegate-identifier"), Some("demo"));
    assert_eq!(known.field("x-sluicegate-tenant"), Some("default"));
    assert_eq!(known.field("x-sluicegate-tier").unwrap_or_default(), "");

    scene.passes(ALICE, "GET", "/api/orders", &claims);
    let nameless = scene.application.last();
    assert_eq!(nameless.field("x-sluicegate-identifier").unwrap_or_default(), "");
    assert_eq!(nameless.field("x-sluicegate-tier").unwrap_or_default(), "");
}

/// The rule fails closed, so its requests are denied without the store. Requests without a rule do not need the store.
fn a_store_that_is_gone_is_503_under_a_closed_rule(front: &fronts::Front) {
    let redis = RedisServer::start();
    let open = "    per: identifier\n";
    let closed = format!("{open}    on_store_failure: closed\n    deadline: 1s\n");
    let config = page::at(page::block("Sluicegate", "yaml", 0), &[(open, &closed)]);
    let scene = Scene::with(front, config, &["--store", &redis.url()]);
    scene.passes(ALICE, "GET", "/api/orders", DEMO_KEY);
    redis.kill();
    let refused = scene.send(ALICE, "GET", "/api/orders", DEMO_KEY);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.headers("retry-after"), ["1"]);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(scene.application.count(), 1);
    scene.passes(ALICE, "GET", "/about", DEMO_KEY);
}

fn nothing_passes_while_the_server_is_unreachable(front: &fronts::Front) {
    let scene = Scene::start(front);
    scene.passes(ALICE, "GET", "/api/orders", DEMO_KEY);
    let Scene { server, application, front: proxy, _config } = scene;
    drop(server);
    let mut connection = Connection::open_from(ALICE, proxy.address());
    connection.send("GET /about HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n");
    assert_eq!(connection.answer().status, front.status_without_sluicegate, "{}", proxy.log());
    assert_eq!(application.count(), 1);
}

/// nginx reports and forwards the path as the client wrote it. The application may take an encoded slash for a
/// separator or for data.
#[test]
fn encoded_slashes_share_the_quota_of_both_readings() {
    let scene = Scene::start(&fronts::NGINX);
    for path in ["/api%2Forders", "/x%2f..%2fapi/orders", "/%2FAPI%2f", "/x/..%2Fapi", "/api/a%2Fb"] {
        scene.passes(ALICE, "GET", path, "");
    }
    for path in ["/api/orders", "/api%2F", "/x%2F%2e%2e%2FApi;v=1/", "/api/..%2Fabout", "/%61pi%2fx"] {
        scene.is_denied(ALICE, "GET", path, "");
    }
    let reached = scene.application.count();
    for path in ["/about%2Fx/../../api", "/x%5c..%5capi", "/x%2Fy/../api"] {
        assert_ne!(scene.send(ALICE, "GET", path, "").status, 200, "{path}");
    }
    assert_eq!(scene.application.count(), reached);
    for path in ["/about%2Fapi", "/x%252Fapi"] {
        scene.passes(ALICE, "GET", path, "");
    }
}

/// The same tests behind every proxy.
macro_rules! behind {
    ($($proxy:ident => $front:expr),* $(,)?) => {$(
        mod $proxy {
            use super::fronts;

            behind!(@tests $front,
                allowed_requests_pass_and_denied_ones_do_not,
                bad_credentials_are_401_and_charge_no_client,
                methods_and_spellings_of_a_path_share_one_quota,
                claims_of_a_client_change_nothing,
                the_application_gets_the_identity_only_from_the_server,
                a_store_that_is_gone_is_503_under_a_closed_rule,
                nothing_passes_while_the_server_is_unreachable,
            );
        }
    )*};
    (@tests $front:expr, $($test:ident),* $(,)?) => {$(
        #[test]
        fn $test() {
            super::$test(&$front);
        }
    )*};
}

behind! {
    nginx => fronts::NGINX,
    caddy => fronts::CADDY,
    traefik => fronts::TRAEFIK,
    haproxy => fronts::HAPROXY,
}
