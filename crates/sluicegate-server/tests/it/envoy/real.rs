//! A real Envoy in front of our server, with the configuration of `docs/envoy.md`, and fleets of both.
//!
//! The tests block their threads. They have a runtime because the client of every [`Scene`] needs one.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use sluicegate_testkit::front_proxy::{FrontProgram, FrontProxy};
use sluicegate_testkit::redis_server::RedisServer;

use super::{Scene, TOKEN};
use crate::client::{Answer, Connection};
use crate::forward_auth::application::Application;
use crate::forward_auth::page::at;

const PAGE: &str = include_str!("../../../../../docs/envoy.md");

/// Three requests for each user, in a window longer than any test.
const THREE: &str = "
headers: { styles: [ietf] }
rules:
  - { name: per-user, match: { tenant: edge, descriptor: [ { key: user } ] }, on_store_failure: closed, deadline: 10s,
      limits: [ { algorithm: fixed_window, limit: 3, window: 365d } ] }
";

/// The first block of the page under a heading.
pub(super) fn block(heading: &str) -> String {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the heading is on the page");
    let (_, block) = section.split_once("\n```yaml\n").expect("a block");
    let (block, _) = block.split_once("\n```\n").expect("the block ends");
    format!("{block}\n")
}

/// A route like that of the page, with these `hits` options.
fn route(prefix: &str, hits: &str) -> String {
    let page = block("Envoy");
    let (_, route) = page.split_once("                      routes:\n").expect("routes");
    let (route, _) = route.split_once("                http_filters:\n").expect("filters");
    let route = route.replace("prefix: / }", &format!("prefix: {prefix} }}"));
    format!("{route}                                  hits_addend: {hits}\n")
}

/// Our metadata in Envoy, as header fields of the response to the client.
const SHOWN: &str = r#"                      response_headers_to_add:
                        - header: { key: x-plan, value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:plan)%" }
                        - header: { key: x-seats, value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:seats)%" }
"#;

/// Envoy as on the page, with a timeout for busy machines and more routes.
fn envoy(api: SocketAddr, application: SocketAddr, is_denied_without: bool) -> FrontProxy {
    let more = [route("/three", "{ number: 3 }"), route("/back", "{ number: 2, is_negative_hits: true }")];
    let routes = format!("{SHOWN}                      routes:\n{}", more.concat());
    envoy_with(api, application, is_denied_without, &[("                      routes:\n", &routes)])
}

/// Envoy as on the page, with a timeout for busy machines and these replacements.
pub(super) fn envoy_with(
    api: SocketAddr,
    application: SocketAddr,
    is_denied_without: bool,
    more: &[(&str, &str)],
) -> FrontProxy {
    FrontProxy::start(FrontProgram::Envoy, |port| {
        let (here, there, behind) = (port.to_string(), api.port().to_string(), application.port().to_string());
        let service = "                          envoy_grpc: { cluster_name: sluicegate }\n";
        let token = format!(
            "{service}                          initial_metadata: [{{ key: authorization, value: Bearer {TOKEN} }}]\n"
        );
        let replaced = [
            ("port_value: 8000", format!("port_value: {here}")),
            ("port_value: 8081", format!("port_value: {there}")),
            ("port_value: 3000", format!("port_value: {behind}")),
            ("timeout: 0.05s", "timeout: 20s".to_owned()),
            ("failure_mode_deny: true", format!("failure_mode_deny: {is_denied_without}")),
            (service, token),
        ];
        let own = replaced.iter().map(|(shown, real)| (*shown, real.as_str()));
        let replaced: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        vec![("envoy.yaml", at(block("Envoy"), &replaced))]
    })
}

fn ask(front: &FrontProxy, user: &str, path: &str) -> Answer {
    let mut connection = Connection::open_from(Ipv4Addr::LOCALHOST, front.address());
    connection
        .send(format!("GET {path} HTTP/1.1\r\nhost: shop.test\r\nx-user: {user}\r\nconnection: close\r\n\r\n"));
    connection.answer()
}

#[tokio::test]
async fn the_configuration_of_the_page_limits_envoy() {
    let (scene, application) = (Scene::start(&block("Sluicegate")), Application::start());
    let front = envoy(scene.server.address("api"), application.address(), true);
    let answer = ask(&front, "ann", "/");
    assert_eq!(answer.status, 200, "{answer:?}\n{}", front.log());
    assert_eq!(answer.header("ratelimit"), Some("\"per-user\";r=99;t=1"));
    assert!(answer.headers("x-ratelimit-limit").contains(&"100, 100;w=60;name=\"per-user\""), "{answer:?}");
    assert_eq!(application.count(), 1);
}

#[tokio::test]
async fn envoy_denies_and_sets_headers_from_the_statuses() {
    let (scene, application) = (Scene::start(THREE), Application::start());
    let front = envoy(scene.server.address("api"), application.address(), true);
    for left in ["2", "1", "0"] {
        let answer = ask(&front, "ann", "/");
        assert_eq!(answer.status, 200, "{answer:?}\n{}", front.log());
        assert_eq!(answer.headers("x-ratelimit-limit"), ["3, 3;w=31536000;name=\"per-user\""]);
        assert!(answer.headers("x-ratelimit-remaining").contains(&left), "{answer:?}");
        assert_eq!(answer.header("x-envoy-ratelimited"), None);
    }
    let denied = ask(&front, "ann", "/");
    assert_eq!(denied.status, 429, "{denied:?}");
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    let wait = denied.header("retry-after").expect("a wait");
    assert!(
        denied.header("ratelimit").is_some_and(|value| value.ends_with(&format!(";r=0;t={wait}"))),
        "{denied:?}"
    );
    assert!(denied.headers("x-ratelimit-reset").contains(&wait), "{denied:?}");
    assert_eq!(ask(&front, "ben", "/").status, 200);
    assert_eq!(application.count(), 4);
}

#[tokio::test]
async fn envoys_hits_are_charged_and_given_back() {
    let (scene, application) = (Scene::start(THREE), Application::start());
    let front = envoy(scene.server.address("api"), application.address(), true);
    let status = |path| ask(&front, "ann", path).status;
    assert_eq!(status("/three"), 200, "{}", front.log());
    assert_eq!(status("/"), 429);
    assert_eq!(status("/back"), 200);
    assert_eq!([status("/"), status("/"), status("/")], [200, 200, 429]);
}

#[tokio::test]
async fn without_the_service_envoy_applies_its_failure_mode() {
    let (scene, application) = (Scene::start(THREE), Application::start());
    let api = scene.server.address("api");
    let (strict, lenient) = (envoy(api, application.address(), true), envoy(api, application.address(), false));
    assert_eq!((ask(&strict, "ann", "/").status, ask(&lenient, "ann", "/").status), (200, 200));
    drop(scene);
    assert_eq!((ask(&strict, "ann", "/").status, ask(&lenient, "ann", "/").status), (500, 200));
}

#[tokio::test]
async fn an_undecided_closed_rule_is_an_error_to_envoy() {
    let redis = RedisServer::start();
    let (scene, application) = (Scene::with(THREE, &["--store", &redis.url()]), Application::start());
    let api = scene.server.address("api");
    let (strict, lenient) = (envoy(api, application.address(), true), envoy(api, application.address(), false));
    assert_eq!(ask(&strict, "ann", "/").status, 200, "{}", strict.log());
    drop(redis);
    assert_eq!((ask(&strict, "ann", "/").status, ask(&lenient, "ann", "/").status), (500, 200));
}

/// Rules in the format of `envoyproxy/ratelimit`: two requests per year for each user, and metadata for allowed
/// requests.
const THEIRS: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
    metadata: { plan: gold, seats: 5 }
";

#[tokio::test]
async fn a_directory_of_envoyproxy_ratelimit_limits_envoy_and_returns_metadata() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("edge.yaml"), THEIRS).expect("a file");
    let directory = folder.path().to_str().expect("a path of text");
    let scene = Scene::with("rules: []", &["--envoy-ratelimit", directory]);
    let application = Application::start();
    let front = envoy(scene.server.address("api"), application.address(), true);
    for left in ["1", "0"] {
        let answer = ask(&front, "ann", "/");
        assert_eq!(answer.status, 200, "{answer:?}\n{}", front.log());
        assert!(answer.headers("x-ratelimit-remaining").contains(&left), "{answer:?}");
        assert_eq!((answer.header("x-plan"), answer.header("x-seats")), (Some("gold"), Some("5")), "{answer:?}");
    }
    let denied = ask(&front, "ann", "/");
    assert_eq!((denied.status, denied.header("x-envoy-ratelimited")), (429, Some("true")), "{denied:?}");
    assert_eq!(denied.header("x-plan"), None, "only who passes has it");
    assert_eq!(ask(&front, "ben", "/").status, 200);
    assert_eq!(application.count(), 3);
}

/// The number of requests of each client. Together they exceed the limit.
const ASKED: usize = 25;
const LIMIT: usize = 40;

#[tokio::test]
async fn two_envoys_and_two_servers_with_one_redis_admit_exactly_the_limit() {
    let config = THREE.replace("limit: 3", &format!("limit: {LIMIT}"));
    let (redis, application) = (RedisServer::start(), Application::start());
    let start = || Scene::with(&config, &["--store", &redis.url()]);
    let scenes = [start(), start()];
    let fronts = scenes.each_ref().map(|scene| envoy(scene.server.address("api"), application.address(), true));
    let statuses: Vec<u16> = thread::scope(|scope| {
        let clients: Vec<_> = fronts
            .iter()
            .flat_map(|front| [front, front])
            .map(|front| scope.spawn(|| (0..ASKED).map(|_| ask(front, "ann", "/").status).collect::<Vec<_>>()))
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(429)), (LIMIT, 4 * ASKED - LIMIT), "{statuses:?}");
    assert_eq!(application.count(), LIMIT);
}
