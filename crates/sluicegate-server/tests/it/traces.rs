//! Traces of the real binary: spans of every front door reach a collector with the correct parents, and no request waits for it.

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use serde_json::json;
use sluicegate_testkit::envoy_client::{Descriptor, EnvoyClient, Question};
use sluicegate_testkit::otlp_collector::{OtlpCollector, ReceivedSpan};
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{Answer, Connection, Session, post_with, send};
use crate::gateway::upstream::{Upstream, header, headers};
use crate::server::{ConfigFile, Server};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// The kinds of spans in OTLP.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

struct Scene {
    server: Server,
    collector: OtlpCollector,
    upstream: Upstream,
    _config: ConfigFile,
}

impl Scene {
    fn start(test: &str, traces: &str) -> Self {
        Self::with(test, traces, &["--store", "memory"])
    }

    /// A server with a collector and an upstream.
    fn with(test: &str, traces: &str, arguments: &[&str]) -> Self {
        let (collector, upstream) = (OtlpCollector::start(), Upstream::echo(""));
        let config =
            ConfigFile::new(&format!("traces-{test}"), config(&collector.endpoint(), traces, upstream.address));
        let arguments = [&["--resp", "127.0.0.1:0", "--config", config.path()], arguments].concat();
        Self { server: Server::start(&arguments), collector, upstream, _config: config }
    }

    /// Sends a request with these header lines to the gateway.
    fn get(&self, path: &str, lines: &str) -> Answer {
        get(self.server.address("gateway"), path, lines)
    }

    fn check(&self, identifier: &str, lines: &str) -> Answer {
        let body = json!({ "resource": "few", "identifier": identifier, "cost": 1 }).to_string();
        post_with(self.server.address("api"), "/v1/check", lines, body)
    }

    fn span(&self, name: &str) -> ReceivedSpan {
        self.collector.wait_for_span(TRACE, name)
    }

    fn count(&self, outcome: &str) -> u64 {
        let metrics = send(self.server.address("admin"), "GET", "/metrics").body;
        let series = format!("sluicegate_trace_spans_total{{outcome=\"{outcome}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {series} in {metrics}"))
    }
}

fn config(endpoint: &str, traces: &str, upstream: SocketAddr) -> String {
    format!(
        "
traces: {{ endpoint: '{endpoint}', {traces} }}
trusted_proxies: [127.0.0.1]
gateway: {{ routes: [{{ path: /shop/**, upstream: 'http://{upstream}' }}] }}
rules:
  - {{ name: pages, match: {{ path: /shop/** }}, deadline: 5s, limits: [ {{ algorithm: fixed_window, limit: 1000000, window: 1d }} ] }}
  - {{ name: few, match: {{ resource: few }}, deadline: 5s, limits: [ {{ algorithm: token_bucket, capacity: 1, refill: 1/d }} ] }}
  - {{ name: users, match: {{ descriptor: [ {{ key: user }} ] }}, deadline: 5s, limits: [ {{ algorithm: fixed_window, limit: 9, window: 1d }} ] }}
"
    )
}

fn get(gateway: SocketAddr, path: &str, lines: &str) -> Answer {
    let mut connection = Connection::open(gateway);
    connection.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n{lines}connection: close\r\n\r\n"));
    connection.answer()
}

/// A `traceparent` header line of a client.
fn parent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{CALLER}-{flags}\r\n")
}

/// The values of attributes; `None` for absent ones.
fn attributes<const N: usize>(span: &ReceivedSpan, names: [&str; N]) -> [Option<String>; N] {
    names.map(|name| span.attribute(name))
}

fn some<const N: usize>(values: [&str; N]) -> [Option<String>; N] {
    values.map(|value| Some(value.to_owned()))
}

#[test]
fn a_request_through_the_gateway_is_one_trace_from_the_client_to_the_upstream() {
    let scene = Scene::start("gateway", "service_name: edge");
    let lines = format!("{}tracestate: a=1\r\ntracestate: b=2\r\n", parent("01"));
    assert_eq!(scene.get("/shop/secret-path?q=secret", &lines).status, 200);
    let is_of = |kind: i32| move |span: &&ReceivedSpan| span.trace_id() == TRACE && span.span.kind == kind;
    let by_kind = |kind| scene.collector.wait_for("a span", |spans| spans.iter().find(is_of(kind)).cloned());
    let (request, proxying) = (by_kind(SERVER), by_kind(CLIENT));
    let (check, store) = (scene.span("ratelimit check"), scene.span("store charge"));

    assert_eq!((request.parent_id().as_str(), request.span.name.as_str()), (CALLER, "GET /shop/**"));
    assert_eq!(check.parent_id(), request.span_id());
    assert_eq!(store.parent_id(), check.span_id());
    assert_eq!((proxying.parent_id(), proxying.span.name.as_str()), (request.span_id(), "GET /shop/**"));
    assert_eq!((check.span.kind, store.span.kind), (INTERNAL, INTERNAL));

    let told = &scene.upstream.heads()[0];
    let expected = format!("00-{TRACE}-{}-01", proxying.span_id());
    assert_eq!(header(told, "traceparent"), Some(&*expected));
    assert_eq!(header(told, "tracestate"), Some("a=1,b=2"));

    let names = ["http.request.method", "http.route", "http.response.status_code", "sluicegate.listener"];
    assert_eq!(attributes(&request, names), some(["GET", "/shop/**", "200", "gateway"]));
    assert_eq!(attributes(&proxying, ["http.response.status_code"]), some(["200"]));
    assert_eq!(request.of_sender("service.name").as_deref(), Some("edge"));
    // The times of the spans are nested.
    for (inner, outer) in [(&check, &request), (&store, &check), (&proxying, &request)] {
        assert!(outer.span.start_time_unix_nano <= inner.span.start_time_unix_nano, "{inner:?} in {outer:?}");
        assert!(inner.span.end_time_unix_nano <= outer.span.end_time_unix_nano, "{inner:?} in {outer:?}");
    }
    assert!(check.span.end_time_unix_nano <= proxying.span.start_time_unix_nano);
    let all = format!("{:?}", scene.collector.messages());
    assert!(!all.contains("secret"), "{all}");
}

#[test]
fn a_decision_span_has_its_outcome_and_a_hashed_identity() {
    let scene = Scene::start("check", "");
    assert_eq!((scene.check("alice", "").status, scene.check("alice", &parent("01")).status), (200, 429));
    let (request, check) = (scene.span("POST /v1/check"), scene.span("ratelimit check"));
    let names =
        ["ratelimit.outcome", "ratelimit.rule", "ratelimit.algorithm", "ratelimit.mode", "ratelimit.tenant"];
    assert_eq!(attributes(&check, names), some(["denied", "few", "token_bucket", "enforce", "default"]));
    let names =
        ["ratelimit.cost", "ratelimit.limit", "ratelimit.remaining", "ratelimit.store", "ratelimit.resource"];
    assert_eq!(attributes(&check, names), some(["1", "1", "0", "memory", "few"]));
    assert_eq!(attributes(&request, ["http.response.status_code", "sluicegate.listener"]), some(["429", "api"]));
    let identity = check.attribute("ratelimit.identity").expect("a hash");
    assert!(identity.len() == 16 && !format!("{:?}", scene.collector.messages()).contains("alice"), "{identity}");
    assert_eq!(request.of_sender("service.name").as_deref(), Some("sluicegate"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_front_door_has_spans() {
    let scene = Scene::start("doors", "");
    let lines = format!("x-forwarded-method: GET\r\nx-forwarded-uri: /shop/1\r\n{}", parent("01"));
    assert_eq!(get(scene.server.address("api"), "/v1/auth", &lines).status, 204);
    assert_eq!(scene.span("ratelimit check").parent_id(), scene.span("GET /v1/auth").span_id());

    // The Envoy client of the test sends no context, so the spans start a new trace.
    let client = EnvoyClient::new(scene.server.address("api"));
    let question = Question::new("d", [Descriptor::new(&[("user", "a")]), Descriptor::new(&[("user", "b")])]);
    client.ask(question).await.expect("an answer");
    let rpc = "POST /envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let request = scene.collector.wait_for(rpc, |spans| spans.iter().find(|span| span.span.name == rpc).cloned());
    assert_eq!(
        (request.parent_id().as_str(), request.attribute("rpc.system.name").as_deref()),
        ("", Some("grpc"))
    );
    let check = scene.collector.wait_for_span(&request.trace_id(), "ratelimit check");
    assert_eq!(attributes(&check, ["ratelimit.requests", "ratelimit.tenant"]), some(["2", "d"]));

    // RESP has neither contexts nor request spans, only decisions.
    let mut resp = Connection::open(scene.server.address("resp"));
    resp.send("SG.CHECK few resp\r\n");
    let is_alone = |span: &&ReceivedSpan| span.span.name == "ratelimit check" && span.parent_id().is_empty();
    let alone = scene.collector.wait_for("RESP's span", |spans| spans.iter().find(is_alone).cloned());
    assert_eq!(alone.attribute("ratelimit.rule").as_deref(), Some("few"));
}

#[test]
fn successful_and_failed_redis_calls_have_spans() {
    let redis = RedisServer::start();
    let scene = Scene::with("redis", "", &["--store", &redis.url()]);
    assert_eq!(scene.check("alice", &parent("01")).status, 200);
    let (check, store) = (scene.span("ratelimit check"), scene.span("store charge"));
    assert_eq!((store.parent_id(), store.span.kind), (check.span_id(), CLIENT));
    assert_eq!(attributes(&store, ["db.system.name", "db.operation.name"]), some(["redis", "charge"]));

    redis.kill();
    const OTHER: &str = "0af7651916cd43dd8448eb211c80319d";
    let line = format!("traceparent: 00-{OTHER}-{CALLER}-01\r\n");
    assert_eq!(scene.check("alice", &line).status, 200, "the rule is open");
    let check = scene.collector.wait_for_span(OTHER, "ratelimit check");
    let store = scene.collector.wait_for_span(OTHER, "store charge");
    assert_eq!(attributes(&check, ["ratelimit.outcome", "ratelimit.degraded"]), some(["failed_open", "true"]));
    assert!(store.attribute("error.type").is_some() && store.span.status.is_some(), "{store:?}");
}

#[test]
fn an_unsampled_request_has_no_spans_and_propagates_its_flag() {
    let scene = Scene::start("unsampled", "");
    assert_eq!(scene.get("/shop/1", &parent("00")).status, 200);
    let told = header(&scene.upstream.heads()[0], "traceparent").expect("a context").to_owned();
    assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"), "{told}");
    // The spans of a later request prove that earlier spans would have arrived.
    assert_eq!(scene.get("/shop/2", "").status, 200);
    let sampled = scene.collector.wait_for("the other", |spans| spans.first().cloned());
    assert_ne!(sampled.trace_id(), TRACE);
    assert!(scene.collector.spans().iter().all(|span| span.trace_id() == sampled.trace_id()));

    let scene = Scene::start("sample-none", "sample: 0%");
    assert_eq!(scene.get("/shop/1", "").status, 200);
    assert!(header(&scene.upstream.heads()[0], "traceparent").is_some_and(|told| told.ends_with("-00")));
    // The client's sampling flag overrides the share.
    assert_eq!(scene.get("/shop/2", &parent("01")).status, 200);
    scene.span("ratelimit check");
    assert!(scene.collector.spans().iter().all(|span| span.trace_id() == TRACE));
}

#[test]
fn invalid_contexts_are_replaced_and_untrusted_ones_on_request() {
    let scene = Scene::start("invalid", "");
    for lines in [
        "traceparent: junk\r\ntracestate: a=1\r\n".to_owned(),
        parent("01").repeat(2),
        "traceparent: 00-1-2-01\r\n".to_owned(),
    ] {
        assert_eq!(scene.get("/shop/1", &lines).status, 200);
        let head = scene.upstream.heads().pop().expect("a request");
        let [told] = headers(&head, "traceparent").collect::<Vec<_>>()[..] else { panic!("{head}") };
        assert!(told.len() == 55 && told.ends_with("-01") && !told.contains(TRACE), "{told}");
        assert_eq!(headers(&head, "tracestate").next(), None, "{head}");
    }

    let scene = Scene::start("untrusted", "parents: trusted_proxies");
    let mut connection = Connection::open_from([127, 0, 0, 2].into(), scene.server.address("gateway"));
    connection.send(format!("GET /shop/1 HTTP/1.1\r\nhost: t\r\n{}connection: close\r\n\r\n", parent("01")));
    assert_eq!(connection.answer().status, 200);
    assert_eq!(scene.get("/shop/1", &parent("01")).status, 200);
    let told: Vec<bool> = scene.upstream.heads().iter().map(|head| head.contains(TRACE)).collect();
    assert_eq!(told, [false, true]);
}

#[test]
fn without_traces_a_context_passes_unchanged() {
    let upstream = Upstream::echo("");
    let config = ConfigFile::new(
        "traces-off",
        format!("gateway: {{ routes: [{{ path: /**, upstream: 'http://{}' }}] }}\nrules: []", upstream.address),
    );
    let server = Server::start(&["--config", config.path()]);
    let lines = format!("{}tracestate: a=1\r\n", parent("01"));
    assert_eq!(get(server.address("gateway"), "/", &lines).status, 200);
    let head = upstream.heads().pop().expect("a request");
    assert_eq!(header(&head, "traceparent"), Some(&*format!("00-{TRACE}-{CALLER}-01")));
    let metrics = send(server.address("admin"), "GET", "/metrics").body;
    assert!(!metrics.contains("sluicegate_trace_spans_total"), "{metrics}");
}

#[test]
fn an_unreachable_collector_changes_no_response_and_no_stop() {
    // A port without a listener.
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let upstream = Upstream::echo("");
    let config = ConfigFile::new("traces-gone", config(&format!("http://{gone}"), "", upstream.address));
    let mut server = Server::start(&["--config", config.path()]);
    for _ in 0..20 {
        assert_eq!(get(server.address("gateway"), "/shop/1", "").status, 200);
    }
    server.wait_for_line("spans cannot be sent to the collector");
    server.signal("TERM");
    let sent = Instant::now();
    assert!(server.wait().status.success());
    assert!(sent.elapsed().as_secs() < 10, "it took {:?} to stop", sent.elapsed());
}

#[test]
fn an_unresponsive_collector_fills_the_queue_and_blocks_no_request() {
    let scene = Scene::start("silent", "");
    scene.collector.be_silent(true);
    let body = json!({ "checks": vec![json!({ "resource": "few", "identifier": "a" }); 1_000] }).to_string();
    let mut session = Session::open(scene.server.address("api"));
    // Each batch has 2,001 spans, and the queue holds 4,096.
    const BATCHES: u64 = 10;
    for _ in 0..BATCHES {
        assert_eq!(session.post("/v1/check/batch", &body).status, 200);
    }
    let (dropped, failed) = (scene.count("dropped"), scene.count("failed"));
    assert!(dropped > 0 && BATCHES * 2_001 - dropped - failed <= 4_096, "{dropped} {failed}");
    assert_eq!(scene.count("exported"), 0);
    let metrics = send(scene.server.address("admin"), "GET", "/metrics").body;
    assert!(metrics.contains("sluicegate_decisions_total"), "everything else goes on");
    scene.server.signal("TERM");
    assert!(scene.server.wait().status.success());
}

#[test]
fn remaining_spans_are_exported_at_the_end() {
    let scene = Scene::start("last", "");
    assert_eq!(scene.check("alice", &parent("01")).status, 200);
    scene.server.signal("TERM");
    assert!(scene.server.wait().status.success());
    // The process has ended, so all spans have arrived.
    let names: Vec<String> = scene.collector.spans().into_iter().map(|span| span.span.name).collect();
    for name in ["POST /v1/check", "ratelimit check", "store charge"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
}

#[test]
fn a_collector_with_tls_needs_a_trusted_certificate() {
    let (collector, certificate) = OtlpCollector::start_with_tls();
    let folder = tempfile::tempdir().expect("a folder");
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, certificate).expect("a file");
    let upstream = Upstream::echo("");
    let start = |traces: &str| {
        let config = ConfigFile::new("traces-tls", config(&collector.endpoint(), traces, upstream.address));
        Server::start(&["--config", config.path()])
    };
    let mut stranger = start("");
    assert_eq!(get(stranger.address("gateway"), "/shop/1", "").status, 200);
    stranger.wait_for_line("spans cannot be sent to the collector");
    assert!(collector.spans().is_empty());
    let friend = start(&format!("ca_file: '{}'", ca_file.display()));
    assert_eq!(get(friend.address("gateway"), "/shop/1", &parent("01")).status, 200);
    collector.wait_for_span(TRACE, "ratelimit check");
}

#[test]
fn standard_variables_enable_traces() {
    let collector = OtlpCollector::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.endpoint()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=blue"),
        ("OTEL_SERVICE_NAME", "from-outside"),
    ];
    let server = Server::start_with(&variables, &[]);
    assert_eq!(send(server.address("gateway"), "GET", "/api/ping").status, 200);
    let name = "GET /api/ping";
    let span = collector.wait_for(name, |spans| spans.iter().find(|span| span.span.name == name).cloned());
    assert_eq!(span.of_sender("service.name").as_deref(), Some("from-outside"));
    assert!(collector.messages()[0].contains("x-scope: blue"));
}
