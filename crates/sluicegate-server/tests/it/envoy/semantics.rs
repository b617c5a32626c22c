//! The semantics of the service: codes, statuses, hits, refunds, header fields, errors.

use sluicegate_testkit::envoy_client::{Answer, Code, CurrentLimit, Descriptor, EnvoyClient, Question};
use sluicegate_testkit::redis_server::RedisServer;
use tonic::Code as Grpc;

use super::{Scene, TOKEN};
use crate::client::post_with;

/// Windows so long that none ends within a test.
const CONFIG: &str = r#"
rules:
  - { name: per-user, match: { tenant: shop, descriptor: [ { key: user } ] }, per: identifier,
      limits: [ { algorithm: fixed_window, limit: 3, window: 365d } ] }
  - { name: inside, match: { tenant: shop, descriptor: [ { key: remote_address, value: "10.*" } ] }, per: identifier,
      limits: [ { algorithm: token_bucket, capacity: 5, refill: 1/1h } ] }
  - { name: tried, match: { tenant: shop, descriptor: [ { key: tried } ] }, mode: shadow,
      limits: [ { algorithm: fixed_window, limit: 0, window: 1h } ] }
"#;

const OVER: Code = Code::OverLimit;
const OK: Code = Code::Ok;

fn user(name: &str) -> Descriptor {
    Descriptor::new(&[("user", name)])
}

fn shop(descriptors: impl IntoIterator<Item = Descriptor>) -> Question {
    Question::new("shop", descriptors)
}

async fn ask(client: &EnvoyClient, question: Question) -> Answer {
    client.ask(question).await.expect("an answer")
}

#[tokio::test]
async fn native_rules_decide_about_descriptors_in_order() {
    let scene = Scene::start(CONFIG);
    let inside = Descriptor::new(&[("path", "/login"), ("remote_address", "10.1.2.3")]);
    let outside = Descriptor::new(&[("remote_address", "192.0.2.1")]);
    let answer = ask(&scene.client, shop([user("ann"), outside, inside])).await;
    assert_eq!((answer.overall_code(), answer.codes()), (OK, vec![OK, OK, OK]));
    assert_eq!(answer.remaining(), [2, 0, 4]);
    let limit = |status: usize| answer.statuses[status].current_limit.clone();
    assert_eq!(limit(0), Some(CurrentLimit { requests_per_unit: 3, unit: 6, name: "per-user".to_owned() }));
    assert_eq!(limit(1), None);
    // A bucket of five that fills in five hours is reported as five per day, because a day is the next longer unit.
    assert_eq!(limit(2), Some(CurrentLimit { requests_per_unit: 5, unit: 4, name: "inside".to_owned() }));
    let reset = answer.statuses[2].duration_until_reset.expect("a reset");
    assert_eq!((reset.seconds, reset.nanos), (3_600, 0));
}

#[tokio::test]
async fn over_limit_charges_no_descriptor_and_ok_charges_all() {
    let scene = Scene::start(CONFIG);
    let full = ask(&scene.client, shop([user("ann").hits(3)])).await;
    assert_eq!((full.overall_code(), full.remaining()), (OK, vec![0]));
    let both = ask(&scene.client, shop([user("ben"), user("ann")])).await;
    assert_eq!((both.overall_code(), both.codes()), (OVER, vec![OK, OVER]));
    assert_eq!(both.remaining(), [3, 0]);
    // A repeated descriptor charges the sum of its hits.
    let twice = ask(&scene.client, Question { hits_addend: 2, ..shop([user("ben"), user("ben")]) }).await;
    assert_eq!((twice.overall_code(), twice.codes()), (OVER, vec![OVER, OVER]));
    let thrice = ask(&scene.client, shop([user("ben"), user("ben"), user("ben")])).await;
    assert_eq!((thrice.overall_code(), thrice.remaining()), (OK, vec![0, 0, 0]));
}

#[tokio::test]
async fn hits_are_the_descriptors_own_or_the_requests_and_none_only_looks() {
    let scene = Scene::start(CONFIG);
    let of_request = Question { hits_addend: 2, ..shop([user("ann")]) };
    assert_eq!(ask(&scene.client, of_request.clone()).await.remaining(), [1]);
    let own = Question { hits_addend: 2, ..shop([user("ben").hits(1)]) };
    assert_eq!(ask(&scene.client, own).await.remaining(), [2]);
    let look = || Question { hits_addend: 2, ..shop([user("ann").hits(0)]) };
    for _ in 0..5 {
        let looked = ask(&scene.client, look()).await;
        assert_eq!((looked.overall_code(), looked.remaining()), (OK, vec![1]));
    }
    assert_eq!(ask(&scene.client, shop([user("ann")])).await.overall_code(), OK);
    assert_eq!(ask(&scene.client, look()).await.overall_code(), OVER);
    // A denied descriptor of zero hits prevents the charge of the others.
    let mixed = ask(&scene.client, shop([user("ben"), user("ann").hits(0)])).await;
    assert_eq!((mixed.overall_code(), mixed.remaining()), (OVER, vec![2, 0]));
    assert_eq!(ask(&scene.client, shop([user("ben").hits(2)])).await.overall_code(), OK);
}

#[tokio::test]
async fn refunds_need_the_admin_token() {
    let scene = Scene::start(CONFIG);
    assert_eq!(ask(&scene.client, shop([user("ann").hits(3)])).await.overall_code(), OK);
    let refund = || shop([user("ann").hits(2).refund()]);
    let wrong = EnvoyClient::new(scene.server.address("api")).with_token("guess");
    for client in [&scene.client, &wrong] {
        let refused = client.ask(refund()).await.expect_err("no token");
        assert_eq!(refused.code(), Grpc::PermissionDenied, "{refused:?}");
    }
    assert_eq!(ask(&scene.client, shop([user("ann")])).await.overall_code(), OVER);
    let admin = scene.client.clone().with_token(TOKEN);
    let given = ask(&admin, refund()).await;
    assert_eq!((given.overall_code(), given.codes(), given.remaining()), (OK, vec![OK], vec![2]));
    // A refund never raises the remaining quota above the limit, and is OK nevertheless.
    let full = ask(&admin, shop([user("ann").hits(100).refund()])).await;
    assert_eq!((full.overall_code(), full.codes(), full.remaining()), (OK, vec![OK], vec![3]));
}

/// Hits that a descriptor has of its own report usage. Those of the request are charged only if they fit.
#[tokio::test]
async fn usage_is_charged_in_full_even_where_it_does_not_fit() {
    let redis = RedisServer::start();
    let config = CONFIG.replace("match:", "deadline: 10s, match:");
    for arguments in [&[][..], &["--store", &redis.url()]] {
        let scene = Scene::with(&config, arguments);
        let usage = |hits| shop([user("ann").hits(hits)]);
        assert_eq!(ask(&scene.client, usage(2)).await.remaining(), [1]);
        let over = ask(&scene.client, usage(3)).await;
        assert_eq!((over.overall_code(), over.codes(), over.remaining()), (OVER, vec![OVER], vec![0]));
        // A denied request charges its usage and nothing else. The usage of two descriptors is two reports.
        let mixed = ask(&scene.client, shop([user("ben"), user("ann").hits(1), user("cid").hits(2)])).await;
        assert_eq!((mixed.overall_code(), mixed.codes()), (OVER, vec![OK, OVER, OK]));
        assert_eq!(mixed.remaining(), [3, 0, 1]);
        // Of the six units, three are a debt, which a refund pays first.
        let admin = scene.client.clone().with_token(TOKEN);
        assert_eq!(ask(&admin, shop([user("ann").hits(3).refund()])).await.remaining(), [0]);
        assert_eq!(ask(&admin, shop([user("ann").hits(2).refund()])).await.remaining(), [2]);
        assert_eq!(ask(&scene.client, shop([user("ben"), user("cid")])).await.remaining(), [2, 0]);
    }
}

#[tokio::test]
async fn metadata_says_for_a_whole_call_whether_usage_is_reported() {
    let scene = Scene::start(CONFIG);
    let (always, if_allowed) =
        (scene.client.clone().with_charging("always"), scene.client.clone().with_charging("if_allowed"));
    let hits = |name| Question { hits_addend: 5, ..shop([user(name)]) };
    // Without it, hits of the request are charged only if they fit.
    assert_eq!(ask(&scene.client, hits("ann")).await.remaining(), [3]);
    assert_eq!(ask(&always, hits("ann")).await.overall_code(), OVER);
    assert_eq!(ask(&scene.client, shop([user("ann")])).await.overall_code(), OVER);
    // Hits of a descriptor are charged only if they fit.
    assert_eq!(ask(&if_allowed, shop([user("ben").hits(5)])).await.remaining(), [3]);
    assert_eq!(ask(&if_allowed, shop([user("ben").hits(3)])).await.remaining(), [0]);
    assert_eq!(ask(&if_allowed, shop([user("ben").hits(0)])).await.codes(), [OVER]);
    // One hit without any `hits_addend`.
    assert_eq!(ask(&always, shop([user("cid")])).await.remaining(), [2]);
    let refused = scene.client.clone().with_charging("yes").ask(shop([user("cid")])).await.expect_err("no choice");
    let message = "`x-sluicegate-charge` is yes: use `always` or `if_allowed`, or leave it out";
    assert_eq!((refused.code(), refused.message()), (Grpc::InvalidArgument, message));
    assert_eq!(ask(&scene.client, shop([user("cid")])).await.remaining(), [1]);

    let body = r#"{"domain":"shop","hitsAddend":4,"descriptors":[{"entries":[{"key":"user","value":"dan"}]}]}"#;
    let post = |header| post_with(scene.server.address("api"), "/json", header, body).status;
    assert_eq!((post(""), post("x-sluicegate-charge: maybe\r\n")), (429, 400));
    assert_eq!(ask(&scene.client, shop([user("dan")])).await.remaining(), [2]);
    assert_eq!(post("x-sluicegate-charge: always\r\n"), 429);
    assert_eq!(ask(&scene.client, shop([user("dan")])).await.overall_code(), OVER);
}

#[tokio::test]
async fn shadow_rules_and_unknown_domains_let_pass() {
    let scene = Scene::start(CONFIG);
    let tried = ask(&scene.client, shop([Descriptor::new(&[("tried", "x")])])).await;
    assert_eq!((tried.overall_code(), tried.codes()), (OK, vec![OK]));
    assert_eq!(tried.statuses[0].current_limit, None);
    let unknown = ask(&scene.client, Question::new("elsewhere", [user("ann").hits(100)])).await;
    assert_eq!((unknown.overall_code(), unknown.codes()), (OK, vec![OK]));
}

#[tokio::test]
async fn header_fields_are_those_of_the_other_front_doors() {
    let scene = Scene::start(CONFIG);
    let answer = ask(&scene.client, shop([user("ann")])).await;
    assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"per-user\";q=3;w=31536000"));
    assert_eq!(answer.header("retry-after"), None);
    let denied = ask(&scene.client, Question { hits_addend: 3, ..shop([user("ann")]) }).await;
    assert_eq!(denied.overall_code(), OVER);
    let wait = denied.header("retry-after").expect("a wait").to_owned();
    let told = denied.statuses[0].duration_until_reset.expect("a wait").seconds;
    assert_eq!(wait, told.to_string());
    assert!(denied.header("ratelimit").is_some_and(|value| value.ends_with(&format!(";t={wait}"))));
}

#[tokio::test]
async fn two_different_descriptors_never_share_a_state() {
    let scene = Scene::start(CONFIG);
    let pairs = [("a|b", "c"), ("a", "b|c"), ("a%7Cb", "c"), ("", "a|b|c"), ("a", ""), ("", "a"), ("", "")];
    for (user, other) in pairs {
        let descriptor = Descriptor::new(&[("user", user), ("other", other)]).hits(3);
        let answer = ask(&scene.client, shop([descriptor])).await;
        assert_eq!(answer.overall_code(), OK, "{user:?} {other:?}");
    }
    assert_eq!(ask(&scene.client, shop([user("").hits(3)])).await.overall_code(), OK);
    assert_eq!(ask(&scene.client, shop([user("a\tb").hits(3)])).await.overall_code(), OK);
    assert_eq!(ask(&scene.client, shop([user("a\tb")])).await.overall_code(), OVER);
}

#[tokio::test]
async fn invalid_requests_are_invalid_argument_and_charge_nothing() {
    let scene = Scene::start(CONFIG);
    let (long, many) = ("x".repeat(16_385), vec![("k", "v"); 137]);
    let unit = |unit| Descriptor { limit: Some(given(1, unit)), ..user("ann") };
    let cases = [
        (Question::new("", [user("ann")]), "`domain` is empty: name the domain of the rate limits"),
        (shop([]), "`descriptors` is empty: give it at least one descriptor"),
        (shop(vec![user("ann"); 257]), "`descriptors` has 257 descriptors: use at most 256"),
        (
            shop([user("ann"), Descriptor::default()]),
            "in `descriptors[1]`, `entries` is empty: give it at least one entry",
        ),
        (
            shop([Descriptor::new(&[("", "v")])]),
            "in `descriptors[0]`, `key` is empty: give it at least one character",
        ),
        (shop([Descriptor::new(&many)]), "in `descriptors[0]`, `entries` has 137 entries: use at most 136"),
        (shop([user(&long)]), "in `descriptors[0]`, `value` has 16385 bytes: use at most 16384"),
        (
            shop([Descriptor::new(&[(&long, "v")])]),
            "in `descriptors[0]`, `key` has 16385 bytes: use at most 16384",
        ),
        (Question::new(&long[..257], [user("ann")]), "`domain` has 257 bytes: use at most 256"),
        (
            shop([user("ann").hits(1 << 32)]),
            "in `descriptors[0]`, `hits_addend` is 4294967296: use at most 4294967295",
        ),
        (
            Question { hits_addend: u32::MAX, ..shop([user("ann"), user("ann")]) },
            "`hits_addend` adds up to more than 4294967295: ask for less at once",
        ),
        (shop([unit(0)]), "in `descriptors[0]`, `limit.unit` is 0: use 1 (second) to 6 (year)"),
        (shop([unit(99)]), "in `descriptors[0]`, `limit.unit` is 99: use 1 (second) to 6 (year)"),
    ];
    for (question, message) in cases {
        let refused = scene.client.ask(question).await.expect_err(message);
        assert_eq!((refused.code(), refused.message()), (Grpc::InvalidArgument, message));
    }
    assert_eq!(ask(&scene.client, shop([user("ann").hits(3)])).await.overall_code(), OK);
}

fn given(requests_per_unit: u32, unit: i32) -> sluicegate_testkit::envoy_client::Given {
    sluicegate_testkit::envoy_client::Given { requests_per_unit, unit }
}
