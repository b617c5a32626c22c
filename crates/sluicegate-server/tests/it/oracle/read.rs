//! Parses the responses of front doors into a common form.

use serde_json::Value;
use sluicegate_testkit::oracle::shown::{Shown, ShownLimit, ShownTime, ShownWait};

use crate::client::Answer;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// The response of the HTTP API to one check.
pub(super) fn json(body: &Value, prefix: &str) -> Shown {
    let allowed = body["allowed"].as_bool().expect("a truth value");
    assert_eq!(body["degraded"], false, "{body}");
    let limits = body["limits"].as_array().expect("a list");
    let limits = limits.iter().map(|limit| ShownLimit {
        shadow: limit["shadow"] == true,
        debt: Some(limit["debt"].as_u64().unwrap_or(0)),
        ..of_json(limit, prefix)
    });
    let speaks = body["limit"].is_u64().then(|| of_json(body, prefix));
    let secs = body["retryAfterMs"].as_u64().map(|millis| millis.div_ceil(1_000));
    assert_eq!(body["retryAfter"].as_u64(), secs, "{body}");
    Shown {
        allowed,
        unit: MILLI,
        speaks: Some(speaks),
        remaining_of_all: true,
        limits: Some(limits.collect()),
        with_shadow: true,
        is_granted: false,
    }
}

fn of_json(limit: &Value, prefix: &str) -> ShownLimit {
    let number = |field: &str| limit[field].as_u64().unwrap_or_else(|| panic!("{field} in {limit}"));
    let wait = match (limit["allowed"] == true, limit["retryAfterMs"].as_u64()) {
        (true, waits) => {
            assert_eq!(waits, Some(0), "{limit}");
            ShownWait::None
        }
        (false, None) => ShownWait::Never,
        (false, Some(millis)) => ShownWait::Units(millis),
    };
    ShownLimit {
        rule: limit["rule"].as_str().map(|name| without(name, prefix)),
        limit: number("limit"),
        remaining: number("remaining"),
        wait: Some(wait),
        restored: Some(ShownTime::At(number("resetAt"))),
        ..ShownLimit::default()
    }
}

/// The rule names of a case have a prefix of their own.
fn without(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or_else(|| panic!("{name} of another case than {prefix}")).to_owned()
}

/// The header fields of gateway and forward-auth.
pub(super) fn fields(answer: &Answer, allowed: bool, prefix: &str) -> Shown {
    let number = |name: &str| answer.header(name).map(|text| text.parse::<u64>().expect("a number"));
    let waits = match (allowed, number("retry-after")) {
        (true, waits) => {
            assert_eq!(waits, None, "{answer:?}");
            ShownWait::None
        }
        (false, None) => ShownWait::Never,
        (false, Some(secs)) => ShownWait::Units(secs),
    };
    let speaks = number("x-ratelimit-limit").map(|limit| ShownLimit {
        limit,
        remaining: number("x-ratelimit-remaining").expect("what remains"),
        wait: Some(waits),
        restored: number("x-ratelimit-reset").map(ShownTime::At),
        ..ShownLimit::default()
    });
    let (policies, states) = (items(answer, "ratelimit-policy"), items(answer, "ratelimit"));
    let limits = policies.iter().zip(&states).map(|(policy, state)| {
        assert_eq!(policy.0, state.0, "{answer:?}");
        let time = state.parameter("t");
        ShownLimit {
            label: Some(without(&policy.0, prefix)),
            limit: policy.parameter("q").expect("a quota"),
            remaining: state.parameter("r").expect("what remains"),
            wait: if allowed { Some(ShownWait::None) } else { time.is_none().then_some(ShownWait::Never) },
            wait_or_restored: time,
            ..ShownLimit::default()
        }
    });
    assert_eq!(policies.len(), states.len(), "{answer:?}");
    Shown {
        allowed,
        unit: SECOND,
        speaks: Some(speaks),
        remaining_of_all: true,
        limits: Some(limits.collect()),
        with_shadow: false,
        is_granted: false,
    }
}

/// A name and its parameters.
struct Item(String, Vec<(String, u64)>);

impl Item {
    fn parameter(&self, name: &str) -> Option<u64> {
        self.1.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// The items of a list such as `"payments";q=100;w=60, "all";q=5;w=1`.
fn items(answer: &Answer, field: &str) -> Vec<Item> {
    let list = answer.header(field).unwrap_or_default();
    let items = list.split(", ").filter(|item| !item.is_empty());
    let item = |item: &str| {
        let mut parts = item.split(';');
        let name = parts.next().expect("a name").trim_matches('"').to_owned();
        let parameter = |part: &str| {
            let (name, value) = part.split_once('=').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        Item(name, parts.map(parameter).collect())
    };
    items.map(item).collect()
}

/// The six values of a `SG.CHECK` reply.
pub(super) fn six(six: &[Value], prefix: &str) -> Shown {
    let [allowed, limit, remaining, retry, reset, rule] = six else { panic!("{six:?}") };
    let allowed = *allowed == 1;
    let wait = match retry.as_i64() {
        Some(0) if allowed => ShownWait::None,
        Some(-1) => ShownWait::Never,
        Some(millis) if !allowed => ShownWait::Units(millis.unsigned_abs()),
        _ => ShownWait::Never,
    };
    let speaks = limit.as_u64().map(|limit| ShownLimit {
        rule: rule.as_str().map(|name| without(name, prefix)),
        limit,
        remaining: remaining.as_u64().expect("what remains"),
        wait: Some(wait),
        restored: reset.as_u64().map(ShownTime::After),
        ..ShownLimit::default()
    });
    let unit = MILLI;
    Shown {
        allowed,
        unit,
        speaks: Some(speaks),
        remaining_of_all: true,
        limits: None,
        with_shadow: false,
        is_granted: false,
    }
}

/// The response of Envoy's service: for several descriptors first the overall result, then that of each.
pub(super) fn envoy(body: &Value, is_refund: bool, prefix: &str) -> Vec<Shown> {
    let each = body["statuses"].as_array().expect("a list").iter();
    let each = each.map(|status| Shown { is_granted: is_refund, ..status_of(status, prefix) }).collect::<Vec<_>>();
    if let [one] = &each[..] {
        return vec![one.clone()];
    }
    let speaks_of_nothing = Shown {
        allowed: body["overallCode"] == "OK",
        unit: SECOND,
        speaks: None,
        remaining_of_all: false,
        limits: None,
        with_shadow: false,
        is_granted: is_refund,
    };
    [speaks_of_nothing].into_iter().chain(each).collect()
}

/// The JSON form omits zero values.
fn status_of(status: &Value, prefix: &str) -> Shown {
    let allowed = status["code"] == "OK";
    let speaks = status["currentLimit"].as_object().map(|limit| {
        let number = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
        let secs = status["durationUntilReset"].as_str().expect("a duration").trim_end_matches('s');
        ShownLimit {
            label: limit.get("name").and_then(Value::as_str).map(|name| without(name, prefix)),
            limit: number(limit.get("requestsPerUnit")),
            remaining: number(status.get("limitRemaining")),
            wait_or_restored: Some(secs.parse().expect("whole seconds")),
            ..ShownLimit::default()
        }
    });
    Shown {
        allowed,
        unit: SECOND,
        speaks: Some(speaks),
        remaining_of_all: false,
        limits: None,
        with_shadow: false,
        is_granted: false,
    }
}
