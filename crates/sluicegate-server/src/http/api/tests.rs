//! The description held against the router: every route is described and every description is true.

use std::collections::BTreeSet;

use axum::http::HeaderName;
use axum::response::IntoResponse as _;
use serde_json::{Map, Value, json};
use sluicegate::CheckError;
use sluicegate::headers::HeaderOptions;
use sluicegate::identify::address::TrustedProxies;
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::{Identify, Principal, Source};
use sluicegate::rules::{RuleSet, Unmatched};
use sluicegate::store::{ErrorClass, StoreError};

use super::*;
use crate::engine::EngineOptions;
use crate::health::Health;
use crate::http::endpoint::HotEndpoint;
use crate::http::{HttpEndpoint, HttpEndpoints};
use crate::secret::Secret;
use crate::testing::{self, Reply, TOKEN, hourly};
use crate::{api_response, problem};

const JSON: (&str, &str) = ("content-type", "application/json");

fn document() -> Value {
    serde_json::from_str(docs::OPENAPI).expect("JSON")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("not an object: {value}"))
}

/// A part of the description, or the part that it refers to.
fn resolve<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').expect("a reference into the document");
            document.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
        }
        None => value,
    }
}

/// Every operation of the document as path, method and description.
fn operations(document: &Value) -> Vec<(&str, String, &Value)> {
    let paths = object(&document["paths"]).iter();
    paths
        .flat_map(|(path, methods)| {
            object(methods)
                .iter()
                .map(move |(method, operation)| (path.as_str(), method.to_ascii_uppercase(), operation))
        })
        .collect()
}

/// The operations that are about a JSON body.
fn with_body(document: &Value) -> Vec<(&str, String, &Value)> {
    operations(document).into_iter().filter(|(.., operation)| operation["requestBody"].is_object()).collect()
}

/// The key of the demo or the address identifies clients, and the peer of every test is a trusted proxy.
fn identify() -> Identify {
    let demo = Principal { identifier: "demo".into(), tier: None, tenant: None };
    let keys = ApiKeys::new(HeaderName::from_static("x-api-key"), [(KeyHash::of(b"demo-key"), demo)]);
    let proxies = TrustedProxies::parse(["192.0.2.7"]).expect("valid");
    Identify::new(vec![Source::ApiKeys(keys), Source::Address]).behind(proxies)
}

/// An api with a rule as the demo's, only slower, under which `bob` has just used all he has.
async fn demo_api(token: Option<&str>) -> HttpEndpoint {
    let admin_token = token.map(|token| Secret::new(token.to_owned()));
    let rules = RuleSet::new(vec![hourly("demo", 10)], Vec::new(), Unmatched::Allow).expect("valid");
    let engine =
        testing::embedded(EngineOptions { rules, admin_token, identify: identify(), ..EngineOptions::default() });
    let router = HttpEndpoints::new(&engine, &Health::default()).api;
    let all = r#"{"resource":"demo","identifier":"bob","cost":10}"#;
    assert_eq!(testing::ask(&router, "POST", "/v1/check", &[JSON], all).await.status, 200);
    router
}

/// The parts of JSON Schema that the document uses. Returns where `value` does not fit.
fn misfits(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let schema = resolve(document, schema);
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    assert!(!kinds.is_empty(), "no type at {at}");
    let mut misfits = Vec::new();
    if !kinds.contains(&kind) {
        misfits.push(format!("{at} is {value}, not {kinds:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        misfits.push(format!("{at} is {value}, not one of {allowed:?}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            misfits.push(format!("{at}.{name} is missing"));
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(schema) => misfits.extend(self::misfits(document, schema, member, &format!("{at}.{name}"))),
            None if schema["additionalProperties"] == false => misfits.push(format!("{at}.{name} is unknown")),
            None => {}
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        misfits.extend(self::misfits(document, &schema["items"], item, &format!("{at}[{index}]")));
    }
    misfits
}

/// Compares a response with the operation's description of its status.
#[track_caller]
fn assert_described(document: &Value, operation: &Value, reply: &Reply) {
    let status = reply.status.to_string();
    let response = resolve(document, &operation["responses"][&status]);
    assert!(!response.is_null(), "{status} is not described: {reply:?}");
    let media_type = reply.header("content-type").split(';').next().unwrap_or_default();
    let content = &response["content"][media_type];
    assert_eq!(content.is_null(), reply.body.is_empty(), "{media_type} is not described for {status}");
    if media_type.ends_with("json") && !reply.body.is_empty() {
        assert_eq!(misfits(document, &content["schema"], &reply.json(), "body"), Vec::<String>::new());
    }
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        assert!(resolve(document, header)["description"].is_string(), "{name}");
        let is_absent = match name.as_str() {
            // There is none when waiting does not help.
            "Retry-After" => !reply.body.is_empty() && reply.json().get("retryAfter").is_some_and(Value::is_null),
            // It is off by default.
            "X-RateLimit-Degraded" => true,
            _ => false,
        };
        assert_eq!(reply.headers.get(name).is_none(), is_absent, "{name} in {reply:?}");
    }
}

/// Every path of the listener: a router reveals its paths only in its debug output.
fn served(site: &HttpEndpoint) -> Vec<String> {
    let paths = |router: &Router| -> Vec<String> {
        let printed = format!("{router:?}");
        printed.split('"').filter(|text| text.starts_with('/')).map(str::to_owned).collect()
    };
    let mut served = paths(&site.router);
    served.extend(HotEndpoint::ALL.map(|hot| hot.path().to_owned()));
    for of_fallback in paths(&problem::with_fallbacks(Router::new(), |_| None)) {
        let place = served.iter().position(|path| *path == of_fallback).expect("the fallback");
        served.swap_remove(place);
    }
    served
}

/// The services of gRPC are described by reflection, and the page's own parts are no interface.
fn is_described_here(path: &str) -> bool {
    let is_grpc = path[1..].split_once('/').is_some_and(|(service, _)| service.contains('.'));
    !is_grpc && !path.starts_with("/docs/")
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let document = document();
    let served = served(&demo_api(None).await);
    assert!(served.iter().any(|path| path.starts_with("/envoy.service.ratelimit.v3.RateLimitService/")));
    let served: BTreeSet<String> = served.into_iter().filter(|path| is_described_here(path)).collect();
    let described: BTreeSet<String> =
        operations(&document).into_iter().map(|(path, ..)| path.to_owned()).collect();
    assert_eq!(served, described);
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn every_method_is_described_and_no_other_is_served() {
    let document = document();
    let router = demo_api(Some(TOKEN)).await;
    for (path, methods) in object(&document["paths"]) {
        let described: BTreeSet<String> =
            object(methods).keys().map(|method| method.to_ascii_uppercase()).collect();
        let refused = testing::ask(&router, "DELETE", path, &[], "").await;
        let served: BTreeSet<String> = refused.header("allow").split(',').map(str::to_owned).collect();
        assert_eq!((refused.status, served), (405, described), "{path}");
    }
    let operations = operations(&document);
    let names: BTreeSet<&str> =
        operations.iter().filter_map(|(.., operation)| operation["operationId"].as_str()).collect();
    assert_eq!(names.len(), operations.len(), "two operations have one name");
}

#[tokio::test]
async fn every_example_is_answered_as_described() {
    let document = document();
    let mut sent = 0;
    for (path, method, operation) in with_body(&document) {
        let responses = object(&operation["responses"]);
        let examples = object(&operation["requestBody"]["content"]["application/json"]["examples"]);
        for (name, example) in examples {
            let router = demo_api(Some(TOKEN)).await;
            let bearer = format!("Bearer {TOKEN}");
            let headers = [JSON, ("authorization", bearer.as_str())];
            let reply = testing::ask(&router, &method, path, &headers, example["value"].to_string()).await;
            assert_described(&document, operation, &reply);
            // The answer has an example of the same name, under the status that was really given.
            let media_type = reply.header("content-type");
            let pointer = format!("/content/{}/examples/{name}/value", media_type.replace('/', "~1"));
            let response = resolve(&document, &responses[&reply.status.to_string()]);
            let shown =
                response.pointer(&pointer).unwrap_or_else(|| panic!("{path} {name}: {pointer}: {reply:?}"));
            assert_alike(shown, &reply.json());
            sent += 1;
        }
    }
    assert!(sent >= 12, "only {sent} examples");
}

/// Whether two responses are equal except for times. An absent value equals no present one.
#[track_caller]
fn assert_alike(shown: &Value, real: &Value) {
    fn names(fields: &[Value]) -> Value {
        fields.iter().map(|field| field["key"].clone()).collect()
    }
    fn without_times(value: &Value) -> Value {
        match value {
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| {
                    let coarse = match name.as_str() {
                        "resetAt" | "retryAfter" | "retryAfterMs" => {
                            member.as_u64().map(|time| time.min(1).into())
                        }
                        "durationUntilReset" => member.as_str().map(|time| (time != "0s").into()),
                        // Headers, most of which contain a time.
                        "responseHeadersToAdd" => member.as_array().map(|fields| names(fields)),
                        _ => None,
                    };
                    (name.clone(), coarse.unwrap_or_else(|| without_times(member)))
                })
                .collect(),
            Value::Array(items) => items.iter().map(without_times).collect(),
            other => other.clone(),
        }
    }
    assert_eq!(without_times(shown), without_times(real));
}

#[tokio::test]
async fn every_example_of_an_answer_fits_its_schema() {
    let document = document();
    let mut seen = 0;
    for (path, _, operation) in operations(&document) {
        for (status, response) in object(&operation["responses"]) {
            let contents = resolve(&document, response)["content"].as_object();
            for content in contents.into_iter().flat_map(Map::values) {
                for (name, example) in content["examples"].as_object().into_iter().flatten() {
                    let found = misfits(&document, &content["schema"], &example["value"], "example");
                    assert_eq!(found, Vec::<String>::new(), "{path} {status} {name}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen >= 12, "only {seen} examples");
}

#[tokio::test]
async fn refusals_that_need_no_body_are_described() {
    let document = document();
    let (open, closed) = (demo_api(Some(TOKEN)).await, demo_api(None).await);
    for (path, method, operation) in with_body(&document) {
        let needs_token = operation["security"].as_array().is_some_and(|ways| !ways.contains(&json!({})));
        // Envoy's service accepts JSON under any media type.
        let of_text = if operation["responses"]["415"].is_null() { 400 } else { 415 };
        let bearer = format!("Bearer {TOKEN}");
        let authorized = ("authorization", bearer.as_str());
        let text = ("content-type", "text/plain");
        let large = ("content-length", "2000000");
        for (headers, expected) in [(&[authorized, text][..], of_text), (&[authorized, JSON, large], 413)] {
            let reply = testing::ask(&open, &method, path, headers, "x").await;
            assert_eq!(reply.status, expected, "{path}");
            assert_described(&document, operation, &reply);
        }
        for (router, expected) in [(&open, 401), (&closed, 403)] {
            let reply = testing::ask(router, &method, path, &[], "").await;
            assert_eq!(reply.status == expected, needs_token, "{path} {reply:?}");
            assert_described(&document, operation, &reply);
        }
    }
}

#[tokio::test]
async fn a_refund_as_json_without_the_token_is_described() {
    let document = document();
    let operation = &document["paths"]["/json"]["post"];
    let refund = &operation["requestBody"]["content"]["application/json"]["examples"]["refund"]["value"];
    let reply = testing::ask(&demo_api(Some(TOKEN)).await, "POST", "/json", &[JSON], refund.to_string()).await;
    assert_eq!(reply.status, 403);
    assert_shown(&document, operation, "no-token", &reply);
}

#[tokio::test]
async fn requests_without_a_body_are_described() {
    let (document, router) = (document(), demo_api(None).await);
    for path in ["/openapi.json", "/docs"] {
        for method in ["get", "head"] {
            let reply = testing::ask(&router, &method.to_ascii_uppercase(), path, &[], "").await;
            assert_eq!((reply.status, reply.body.is_empty()), (200, method == "head"), "{path}");
            assert_described(&document, &document["paths"][path][method], &reply);
        }
    }
}

#[tokio::test]
async fn forward_auth_is_answered_as_described() {
    let document = document();
    let long = format!("/{}", "a".repeat(8_192));
    let uri = ("x-forwarded-uri", "/api/orders");
    // From the quota of the proxy itself, which the first question uses up.
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("no-uri", &[]),
        ("bad-key", &[uri, ("x-api-key", "wrong")]),
        ("too-long", &[("x-forwarded-uri", &long)]),
        ("allowed", &[uri]),
        ("denied", &[uri]),
    ];
    let auth = operations(&document).into_iter().filter(|(path, ..)| *path == "/v1/auth");
    for (path, method, operation) in auth {
        let rules = RuleSet::new(vec![hourly("demo", 1)], Vec::new(), Unmatched::Allow).expect("valid");
        let engine = testing::embedded(EngineOptions { rules, identify: identify(), ..EngineOptions::default() });
        let site = HttpEndpoints::new(&engine, &Health::default()).api;
        for (name, fields) in cases {
            let reply = testing::ask(&site, &method, path, fields, "").await;
            assert_shown(&document, operation, name, &reply);
        }
        let stranger = HttpEndpoints::new(&testing::engine(Vec::new()), &Health::default()).api;
        let reply = testing::ask(&stranger, &method, path, &[uri], "").await;
        assert_shown(&document, operation, "stranger", &reply);
        for parameter in operation["parameters"].as_array().expect("parameters") {
            assert!(resolve(&document, parameter)["description"].is_string(), "{parameter}");
        }
    }
}

/// Holds an answer against the description, and against the example of that name if it has a body.
#[track_caller]
fn assert_shown(document: &Value, operation: &Value, name: &str, reply: &Reply) {
    assert_described(document, operation, reply);
    if !reply.body.is_empty() {
        let response = resolve(document, &operation["responses"][&reply.status.to_string()]);
        let content = &response["content"][reply.header("content-type")];
        assert_eq!(content["examples"][name]["value"], reply.json(), "{name}");
    }
}

#[tokio::test]
async fn a_store_that_could_not_decide_is_described() {
    let document = document();
    let can_fail = |path: &str| path != "/v1/check/batch";
    let of_limiter = with_body(&document).into_iter().filter(|(path, ..)| can_fail(path));
    for (path, _, operation) in of_limiter {
        let failed = CheckError::from(StoreError::new(ErrorClass::Connection, "gone"));
        let response = match path {
            "/v1/check" | "/v1/peek" => api_response::decided(Err(failed), HeaderOptions::default()),
            _ => Err(failed.into()),
        };
        let reply = testing::reply(response.into_response()).await;
        assert_eq!(reply.status, 503);
        assert_described(&document, operation, &reply);
        let described = resolve(&document, &operation["responses"]["503"]);
        let content = &described["content"][reply.header("content-type")];
        assert_eq!(content["examples"]["store"]["value"], reply.json(), "{path}");
    }
}

#[tokio::test]
async fn the_page_loads_only_its_own_files() {
    let router = demo_api(None).await;
    for (path, media_type) in [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/docs.css", "text/css; charset=utf-8"),
        ("/docs/docs.js", "text/javascript; charset=utf-8"),
        ("/openapi.json", "application/json"),
    ] {
        let reply = testing::ask(&router, "GET", path, &[], "").await;
        assert_eq!((reply.status, reply.header("content-type")), (200, media_type), "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(
            reply.header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        for foreign in ["http://", "https://", "innerHTML", "<style", "style=", "onclick=", "<script>"] {
            assert!(path == "/openapi.json" || !reply.body.contains(foreign), "{foreign} in {path}");
        }
    }
    let page = testing::ask(&router, "GET", "/docs", &[], "").await.body;
    assert!(page.contains("href=\"/docs/docs.css\"") && page.contains("src=\"/docs/docs.js\""));
}
