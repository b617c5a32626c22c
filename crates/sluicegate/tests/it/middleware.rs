//! The layer in front of real services: axum's router, a plain service, and a gRPC client's view.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use http::{Extensions, HeaderMap, Request, Response, StatusCode, Uri};
use sluicegate::clock::ManualClock;
use sluicegate::core::Timestamp;
use sluicegate::gate::Gate;
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::{Client, Identify, Principal, Source};
use sluicegate::middleware::RateLimitLayer;
use sluicegate::path::EncodedSlashes;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Identity, Limiter, MemoryStore};
use std::net::{IpAddr, SocketAddr};
use tower::ServiceExt as _;

type Layer = RateLimitLayer<MemoryStore, ManualClock>;

const TWO: &str = "rules: [{ name: two, limits: [{ algorithm: fixed_window, limit: 2, window: 1h }] }]";

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

fn layer(rules: &str) -> Layer {
    let rules = RuleSet::from_yaml(rules, "t.yaml", &Environment::new()).unwrap();
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    let owner = Principal { identifier: "alice".into(), tier: None, tenant: Some("shop".into()) };
    let keys = ApiKeys::new("x-api-key".parse().unwrap(), [(KeyHash::of(b"alices"), owner)]);
    let identify = Identify::new(vec![Source::ApiKeys(keys), Source::Address]);
    RateLimitLayer::new(Gate::new(Limiter::new(rules, MemoryStore::default(), clock), identify), peer)
}

async fn who(client: Client) -> String {
    match client.identity() {
        Identity::Named(name) => format!("{name} of {}", client.tenant()),
        identity => format!("{identity:?}"),
    }
}

fn application(layer: Layer) -> Router {
    let own =
        [("x-ratelimit-limit", "7"), ("x-ratelimit-remaining", "7"), ("ratelimit", "own"), ("x-own", "kept")];
    Router::new().route("/who", get(who)).route("/own", get(async move || (own, "own"))).layer(layer)
}

fn request(path: &str, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 7], 5_000)));
    let fields = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    *request.headers_mut() = HeaderMap::from_iter(fields);
    request
}

async fn send(application: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = application.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 65_536).await.unwrap();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn handlers_receive_the_client_and_the_last_request_is_denied() {
    let application = application(layer(TWO));
    for remaining in ["1", "0"] {
        let (status, headers, body) = send(&application, request("/who", &[("x-api-key", "alices")])).await;
        assert_eq!((status, &*body), (StatusCode::OK, "alice of shop"));
        assert_eq!(headers["x-ratelimit-remaining"], remaining);
    }
    let (status, headers, body) = send(&application, request("/who", &[("x-api-key", "alices")])).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["content-type"], "application/problem+json");
    assert!(headers.contains_key("retry-after") && headers.contains_key("ratelimit-policy"));
    assert!(body.contains(r#""violated-policies":["two"]"#), "{body}");
    let (status, _, body) = send(&application, request("/who", &[])).await;
    assert_eq!((status, &*body), (StatusCode::OK, "Address(192.0.2.7)"));
}

#[tokio::test]
async fn rate_limit_fields_of_the_application_are_replaced() {
    let application = application(layer(TWO));
    let (_, headers, body) = send(&application, request("/own", &[])).await;
    let all = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((all("x-ratelimit-limit"), all("x-ratelimit-remaining")), (vec!["2"], vec!["1"]));
    assert_eq!((all("ratelimit").len(), all("x-own"), &*body), (1, vec!["kept"], "own"));
}

#[tokio::test]
async fn rate_limit_fields_of_the_application_are_removed_without_a_limit() {
    let application = application(layer("rules: []"));
    let (_, headers, _) = send(&application, request("/own", &[])).await;
    assert!(!headers.contains_key("x-ratelimit-limit") && !headers.contains_key("ratelimit"), "{headers:?}");
}

#[tokio::test]
async fn invalid_credentials_and_ambiguous_paths_never_reach_the_application() {
    let application = application(layer(TWO));
    let (status, headers, _) = send(&application, request("/who", &[("x-api-key", "nobodys")])).await;
    assert_eq!((status, headers.contains_key("www-authenticate")), (StatusCode::UNAUTHORIZED, true));
    let (status, _, body) = send(&application, request("/who/..;/own", &[])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
}

#[tokio::test]
async fn encoded_slashes_are_matched_in_both_readings_or_rejected() {
    let rules = "rules: [{ name: no, match: { path: /own/** }, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }]";
    let router = |layer: Layer| Router::new().fallback(async |uri: Uri| uri.to_string()).layer(layer);
    let (kept, refused) = (router(layer(rules)), router(layer(rules).encoded_slashes(EncodedSlashes::Refuse)));
    for (path, status) in [
        ("/@scope%2fname?a=%2F", 200),
        ("/x/..%2Fother", 200),
        ("/own%2Fx", 429),
        ("/x%2f..%2fOWN", 429),
        ("/x%2fy/../own", 400),
        ("/x%5c..%5cown", 400),
    ] {
        let (got, _, body) = send(&kept, request(path, &[])).await;
        assert_eq!(got, status, "{path}");
        assert!(status != 200 || body == path, "{path} is {body}");
        assert_eq!(send(&refused, request(path, &[])).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn missing_client_address_rejects_all_requests() {
    let application = application(layer(TWO));
    let (status, _, body) = send(&application, Request::new(Body::empty())).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("does not find the address of the client"), "{body}");
}

#[tokio::test]
async fn handler_without_the_layer_reports_the_missing_layer() {
    let application = Router::new().route("/who", get(who));
    let (status, _, body) = send(&application, request("/who", &[])).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("put the rate limit layer in front"), "{body}");
}

#[tokio::test]
async fn grpc_denial_is_resource_exhausted() {
    let none = "rules: [{ name: none, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }]";
    let application = application(layer(none));
    let (status, headers, body) =
        send(&application, request("/who", &[("content-type", "application/grpc")])).await;
    assert_eq!((status, &*body), (StatusCode::OK, ""));
    assert_eq!(headers["grpc-status"], "8");
    assert_eq!(headers["content-type"], "application/grpc");
}

/// A service other than axum's, with a body that is not `Sync`.
#[tokio::test]
async fn any_service_will_do() {
    use tower::{ServiceBuilder, service_fn};

    let service =
        ServiceBuilder::new().layer(layer(TWO)).service(service_fn(async |_: Request<std::cell::Cell<u8>>| {
            Ok::<_, std::convert::Infallible>(Response::new(()))
        }));
    let mut request = Request::new(std::cell::Cell::new(1));
    request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 7], 5_000)));
    assert_eq!(service.oneshot(request).await.unwrap().status(), StatusCode::OK);
}
