//! The front doors: the operations that each supports, and their requests.

use serde_json::{Value, json};
use sluicegate_testkit::oracle::operation::{Action, Ask};
use sluicegate_testkit::oracle::shown::Shown;

use super::read;
use super::scene::{AUTHORIZATION, Scene, key};
use crate::client::Answer;

/// A front door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// The HTTP API.
    Http,
    /// Envoy's rate limit service, as JSON.
    Rls,
    /// `SG.CHECK`.
    Resp,
    /// The gateway.
    Gateway,
    /// Forward-auth.
    Auth,
}

impl Door {
    pub(super) const ALL: [Self; 5] = [Self::Http, Self::Rls, Self::Resp, Self::Gateway, Self::Auth];

    /// The front doors of a name on the command line. No front door except the HTTP API supports all operations, so
    /// the HTTP API is always included.
    pub(super) fn named(name: &str) -> Vec<Self> {
        match name {
            "http" => vec![Self::Http],
            "rls" => vec![Self::Rls, Self::Http],
            "resp" => vec![Self::Resp, Self::Http],
            "gateway" => vec![Self::Gateway, Self::Auth, Self::Http],
            _ => panic!("SLUICEGATE_ORACLE_DOOR is '{name}'; use http, rls, resp, gateway or all"),
        }
    }

    /// The requests in the form that this front door can express, or `None` if it does not support the operation.
    pub(super) fn fit(self, action: Action, asks: &[Ask]) -> Option<Vec<Ask>> {
        let first = asks[0];
        let away = |ask: Ask| Ask { address: None, is_report: false, ..ask };
        match (self, action) {
            (Self::Http, _) | (Self::Resp, Action::Check | Action::Peek | Action::Report) => {
                Some(vec![away(first)])
            }
            (Self::Rls, Action::Check | Action::Peek | Action::Refund) => {
                let cost = match action {
                    Action::Check => first.cost.filter(|cost| *cost > 0),
                    // A peek tests one unit. Other operations use at least one, and one by default.
                    Action::Peek => Some(1),
                    _ => Some(first.cost.unwrap_or(1).max(1)),
                };
                Some(asks.iter().map(|ask| Ask { tenant: first.tenant, tier: None, cost, ..away(*ask) }).collect())
            }
            (Self::Gateway | Self::Auth, Action::Check) => Some(vec![Ask {
                cost: None,
                address: Some(first.address.unwrap_or(3)),
                is_report: false,
                ..first
            }]),
            _ => None,
        }
    }

    /// Sends the requests of an operation.
    pub(super) fn ask(self, scene: &mut Scene, action: Action, asks: &[Ask], prefix: &str) -> Vec<Shown> {
        match self {
            Self::Http => vec![http(scene, action, &asks[0], prefix)],
            Self::Rls => rls(scene, action, asks, prefix),
            Self::Resp => vec![resp(scene, action, &asks[0], prefix)],
            Self::Gateway => {
                let ask = &asks[0];
                let path = format!("/{}", ask.resource.replace('.', "/"));
                let answer = scene.get("gateway", &path, &lines(ask));
                assert!(matches!(answer.status, 200 | 429), "{ask}: {answer:?}");
                vec![read::fields(&answer, answer.status == 200, prefix)]
            }
            Self::Auth => {
                let ask = &asks[0];
                let path = ask.resource.replace('.', "/");
                let told = format!("x-forwarded-method: GET\r\nx-forwarded-uri: /{path}\r\n{}", lines(ask));
                let answer = scene.get("api", "/v1/auth", &told);
                assert!(matches!(answer.status, 204 | 429), "{ask}: {answer:?}");
                vec![read::fields(&answer, answer.status == 204, prefix)]
            }
        }
    }
}

/// The header lines of a client behind a proxy: its key and its address.
fn lines(ask: &Ask) -> String {
    let address = ask.address.expect("an address");
    let key = key(ask.tenant, ask.identifier, ask.tier);
    format!("x-api-key: {key}\r\nx-forwarded-for: 192.0.2.{address}\r\n")
}

fn body(ask: &Ask) -> Value {
    let Ask { tenant, resource, identifier, tier, cost, .. } = ask;
    let mut body = json!({ "tenant": tenant, "resource": resource, "identifier": identifier });
    if let Some(tier) = tier {
        body["tier"] = json!(tier);
    }
    if let Some(cost) = cost {
        body["cost"] = json!(cost);
    }
    body
}

fn http(scene: &mut Scene, action: Action, ask: &Ask, prefix: &str) -> Shown {
    let (path, token) = match action {
        Action::Check => ("/v1/check", ""),
        Action::Peek => ("/v1/peek", ""),
        Action::Refund => ("/v1/refund", AUTHORIZATION),
        Action::Report => ("/v1/report", ""),
        Action::Reset => ("/v1/reset", AUTHORIZATION),
    };
    let answer = scene.api.try_post(path, token, &body(ask).to_string()).expect("an answer");
    let json = answer.json();
    assert!(matches!(answer.status, 200 | 429), "{action:?} {ask}: {answer:?}");
    let is_ok = json["allowed"] == true || matches!(action, Action::Refund | Action::Report | Action::Reset);
    assert_eq!(answer.status == 200, is_ok, "{action:?} {ask}: {answer:?}");
    says_in_fields_what_it_says_in_json(&answer, &json);
    read::json(&json, prefix)
}

fn says_in_fields_what_it_says_in_json(answer: &Answer, json: &Value) {
    let secs = |value: &Value| value.as_u64().map(|millis| millis.div_ceil(1_000));
    let expected = [
        ("x-ratelimit-limit", json["limit"].as_u64()),
        ("x-ratelimit-remaining", json["remaining"].as_u64()),
        ("x-ratelimit-reset", secs(&json["resetAt"])),
        ("retry-after", json["retryAfter"].as_u64().filter(|secs| *secs > 0 && answer.status == 429)),
    ];
    for (field, number) in expected {
        assert_eq!(answer.header(field).map(str::to_owned), number.map(|number| number.to_string()), "{answer:?}");
    }
}

/// Several independent checks in one batch.
pub(super) fn batch(scene: &mut Scene, asks: &[Ask], prefix: &str) -> Vec<Shown> {
    let checks: Vec<Value> = asks.iter().map(body).collect();
    let answer = scene.api.post("/v1/check/batch", &json!({ "checks": checks }).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let results = answer.json();
    results["results"].as_array().expect("a list").iter().map(|result| read::json(result, prefix)).collect()
}

fn rls(scene: &mut Scene, action: Action, asks: &[Ask], prefix: &str) -> Vec<Shown> {
    let descriptor = |ask: &Ask| {
        let mut descriptor = json!({ "entries": [{ "key": ask.resource, "value": ask.identifier }] });
        match action {
            Action::Peek => descriptor["hitsAddend"] = json!(0),
            Action::Refund => descriptor["isNegativeHits"] = json!(true),
            Action::Check | Action::Report | Action::Reset => {}
        }
        descriptor
    };
    let descriptors: Vec<Value> = asks.iter().map(descriptor).collect();
    let mut question = json!({ "domain": asks[0].tenant, "descriptors": descriptors });
    if let (Some(cost), Action::Check | Action::Refund) = (asks[0].cost, action) {
        question["hitsAddend"] = json!(cost);
    }
    let token = if action == Action::Refund { AUTHORIZATION } else { "" };
    let answer = scene.api.try_post("/json", token, &question.to_string()).expect("an answer");
    let json = answer.json();
    assert_eq!(answer.status, if json["overallCode"] == "OK" { 200 } else { 429 }, "{question}: {answer:?}");
    read::envoy(&json, action == Action::Refund, prefix)
}

fn resp(scene: &mut Scene, action: Action, ask: &Ask, prefix: &str) -> Shown {
    let Ask { tenant, resource, identifier, tier, cost, .. } = ask;
    let tier = tier.map(|tier| format!(" TIER {tier}")).unwrap_or_default();
    let cost = cost.map(|cost| format!(" COST {cost}")).unwrap_or_default();
    let (name, peek) = match action {
        Action::Report => ("SG.REPORT", ""),
        Action::Peek => ("SG.CHECK", " PEEK"),
        _ => ("SG.CHECK", ""),
    };
    scene.resp.send(format!("{name} {resource} {identifier} TENANT {tenant}{tier}{cost}{peek}\r\n"));
    read::six(&scene.resp.read_values(), prefix)
}
