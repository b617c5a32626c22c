//! The limits in a response, in a form for comparison.

use serde_json::Value;

use super::requests::TestRequest;
use crate::client::Answer;

/// The parts that must be equal, and the times among them, which may differ slightly.
#[derive(Debug)]
pub(super) struct Shown {
    status: u16,
    /// Lines of the fields, sorted, with `#` for times.
    fields: Vec<String>,
    problem: Option<Value>,
    times: Vec<u64>,
}

impl Shown {
    /// All compared parts of a response.
    pub(super) fn of(answer: &Answer, request: &TestRequest) -> Self {
        let mut shown = Self::limits_of(answer);
        if shown.status != 200 {
            let more = ["content-type", "cache-control", "www-authenticate"];
            shown.fields.extend(more.map(|name| format!("{name}: {:?}", answer.headers(name))));
            shown.problem = (request.method != "HEAD").then(|| answer.json());
        }
        if let Some(problem) = &mut shown.problem {
            if let Some(wait) = problem.get_mut("retry_after") {
                shown.times.extend(wait.take().as_u64());
            }
            let detail = problem["detail"].as_str().expect("a detail").to_owned();
            problem["detail"] = without_number_after("try again in ", &detail, &mut shown.times).into();
        }
        shown
    }

    /// Only the status and the rate-limit fields, which checks have in common with the other doors.
    pub(super) fn limits_of(answer: &Answer) -> Self {
        let mut times = Vec::new();
        let is_about_limits = |name: &&str| name.contains("ratelimit") || *name == "retry-after";
        let mut names: Vec<&str> = answer.names().filter(is_about_limits).collect();
        names.sort_unstable();
        let fields = names.into_iter().map(|name| {
            let value = answer.headers(name).join(", ");
            let value = match name {
                "x-ratelimit-reset" | "retry-after" => without_number_after("", &value, &mut times),
                _ => without_number_after(";t=", &value, &mut times),
            };
            format!("{name}: {value}")
        });
        let fields = fields.collect();
        // Forward-auth allows a request with status 204.
        let status = if answer.status == 204 { 200 } else { answer.status };
        Self { status, fields, problem: None, times }
    }
}

/// The text with `#` for every number that follows `mark`; the numbers go to `times`.
fn without_number_after(mark: &str, text: &str, times: &mut Vec<u64>) -> String {
    let mut parts = match mark {
        "" => vec!["", text].into_iter(),
        _ => text.split(mark).collect::<Vec<_>>().into_iter(),
    };
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        times.push(number.parse().expect("a time"));
        // The unit goes, too, because it is singular for one second.
        let rest = rest.strip_prefix(" seconds").or(rest.strip_prefix(" second")).unwrap_or(rest);
        shown.extend([mark, "#", rest]);
    }
    shown
}

/// Asserts equality, with times up to this many seconds apart.
#[track_caller]
pub(super) fn assert_same(one: &Shown, other: &Shown, seconds: u64, which: &str) {
    assert_eq!(one.status, other.status, "{which}\n{one:#?}\n{other:#?}");
    assert_eq!(one.fields, other.fields, "{which}");
    assert_eq!(one.problem, other.problem, "{which}");
    assert_eq!(one.times.len(), other.times.len(), "{which}");
    let are_near = one.times.iter().zip(&other.times).all(|(one, other)| one.abs_diff(*other) <= seconds);
    assert!(are_near, "{which}: {:?} and {:?} in {:?}", one.times, other.times, one.fields);
}
