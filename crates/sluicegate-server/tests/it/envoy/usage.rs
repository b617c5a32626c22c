//! A budget of tokens with real Envoys: the cost of a request is known after its response, from a header field of it, and Envoy
//! reports it when the stream is done. Two Envoys and two servers share one Redis.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Instant;

use sluicegate_testkit::front_proxy::FrontProxy;
use sluicegate_testkit::redis_server::RedisServer;

use super::Scene;
use super::real::envoy_with;
use crate::client::{Answer, Connection, post};
use crate::forward_auth::application::{Application, TOKENS};
use crate::server::PATIENCE;

/// The tokens of each user in a window longer than any test, and a store that a busy machine may be slow to reach. The second rule
/// is never exceeded: it counts what is charged.
const BUDGET: u64 = 1_000;
const COUNTED_MAX: u64 = 1_000_000;
const CONFIG: &str = "
headers: { styles: [ietf] }
rules:
  - { name: tokens, match: { tenant: edge }, per: identifier, on_store_failure: closed, deadline: 10s,
      limits: [ { algorithm: fixed_window, limit: 1000, window: 365d } ] }
  - { name: counted, match: { tenant: edge }, per: identifier, on_store_failure: closed, deadline: 10s,
      limits: [ { algorithm: fixed_window, limit: 1000000, window: 365d } ] }
";

/// The most tokens of a response.
const TOKENS_MAX: u64 = 400;

/// The action of the page, checked for room before the request, and charged with the tokens of the response after it.
const ACTION: &str = "- actions: [ { request_headers: { header_name: x-user, descriptor_key: user } } ]\n";
const MEASURED: &str = "                                  hits_addend: { number: 0 }
                                - actions: [ { request_headers: { header_name: x-user, descriptor_key: user } } ]
                                  hits_addend: { format: \"%RESP(x-tokens)%\" }
                                  apply_on_stream_done: true
";
fn envoy(api: SocketAddr, application: SocketAddr) -> FrontProxy {
    let actions = format!("{ACTION}{MEASURED}");
    envoy_with(api, application, true, &[(ACTION, &actions)])
}

fn ask(front: &FrontProxy, tokens: u64) -> Answer {
    let mut connection = Connection::open_from(Ipv4Addr::LOCALHOST, front.address());
    let head = format!("GET / HTTP/1.1\r\nhost: shop.test\r\nx-user: ann\r\n{TOKENS}: {tokens}\r\n");
    connection.send(format!("{head}connection: close\r\n\r\n"));
    connection.answer()
}

/// The tokens that are charged so far.
fn charged(api: SocketAddr) -> u64 {
    let peeked = post(api, "/v1/peek", r#"{"tenant":"edge","resource":"user","identifier":"ann"}"#).json();
    let limits = peeked["limits"].as_array().expect("limits");
    let counted = limits.iter().find(|limit| limit["rule"] == "counted").expect("the second rule");
    COUNTED_MAX - counted["remaining"].as_u64().expect("a number")
}

/// Waits until this many tokens are charged. Envoy reports without making the client wait for it.
fn wait_until_charged(api: SocketAddr, tokens: u64) {
    let started = Instant::now();
    while charged(api) != tokens {
        assert!(started.elapsed() < PATIENCE, "{} tokens are charged, and not {tokens}", charged(api));
        thread::yield_now();
    }
}

/// Each round has four requests in flight. They start when the usage of the round before is known, so a budget can be exceeded
/// by the responses of one round at most.
#[tokio::test]
async fn a_budget_is_exceeded_by_the_responses_in_flight_at_most_and_then_closed() {
    let (redis, application) = (RedisServer::start(), Application::start());
    let start = || Scene::with(CONFIG, &["--store", &redis.url()]);
    let scenes = [start(), start()];
    let apis = scenes.each_ref().map(|scene| scene.server.address("api"));
    let fronts = apis.map(|api| envoy(api, application.address()));

    let mut served = 0;
    loop {
        let answers: Vec<(u64, Answer)> = thread::scope(|scope| {
            let clients: Vec<_> = fronts
                .iter()
                .flat_map(|front| [front, front])
                .map(|front| {
                    let tokens = fastrand::u64(1..=TOKENS_MAX);
                    scope.spawn(move || (tokens, ask(front, tokens)))
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        let before = served;
        for (tokens, answer) in &answers {
            assert!([200, 429].contains(&answer.status), "{answer:?}\n{}", fronts[0].log());
            // A budget that is not used up denies no request: the others of the round are reported while it is decided.
            assert!(answer.status == 200 || before + 3 * TOKENS_MAX >= BUDGET, "{before} of {BUDGET}: {answer:?}");
            served += if answer.status == 200 { *tokens } else { 0 };
        }
        assert!(served == before || before < BUDGET, "served {served} after {before} of {BUDGET}");
        wait_until_charged(apis[0], served);
        if served >= BUDGET {
            break;
        }
    }
    assert!(served < BUDGET + 4 * TOKENS_MAX, "{served}");
    for front in &fronts {
        let denied = ask(front, 1);
        assert_eq!(denied.status, 429, "{denied:?}");
        let reset = denied.headers("x-ratelimit-reset").into_iter().find_map(|reset| reset.parse::<u64>().ok());
        assert!(reset.is_some_and(|seconds| (1..=365 * 86_400).contains(&seconds)), "{denied:?}");
    }
    assert_eq!((charged(apis[0]), charged(apis[1])), (served, served));
}
