//! The W3C's `traceparent` and `tracestate`: read strictly, and never handed on in a form that is none.
//!
//! OpenTelemetry's propagator does both; it is lenient about what it reads (short numbers, several fields), so what it
//! is shown here is either exactly what the specification has, or nothing.

use std::collections::HashSet;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest `tracestate` that is kept, in bytes: what the specification asks everybody to keep.
const TRACESTATE_BYTES_MAX: usize = 512;
/// The most entries that a `tracestate` may have, by the specification.
const MEMBERS_MAX: usize = 32;

/// What the fields of a request say, if it is something.
pub(super) fn parent_of(headers: &HeaderMap) -> Context {
    let fields = Fields { parent: parent_field(headers), state: state_fields(headers) };
    TraceContextPropagator::new().extract_with_context(&Context::new(), &fields)
}

/// Replaces what a request says by this context.
pub(super) fn replace(headers: &mut HeaderMap, context: &Context) {
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
    TraceContextPropagator::new().inject_context(context, &mut Into(headers));
}

/// The two fields, if they are good.
struct Fields<'h> {
    parent: Option<&'h str>,
    state: Option<String>,
}

impl Extractor for Fields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.parent,
            "tracestate" => self.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

struct Into<'h>(&'h mut HeaderMap);

impl Injector for Into<'_> {
    fn set(&mut self, key: &str, value: String) {
        if value.is_empty() {
            return;
        }
        if let Some((name, value)) = key.parse::<HeaderName>().ok().zip(HeaderValue::try_from(value).ok()) {
            self.0.insert(name, value);
        }
    }
}

/// Several parents are none: nobody knows which one counts.
fn parent_field(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(TRACEPARENT).iter();
    let only = fields.next().filter(|_| fields.next().is_none())?;
    only.to_str().ok().filter(|text| is_traceparent(text))
}

/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits, all in lower case; a later version may have more after another `-`.
fn is_traceparent(text: &str) -> bool {
    const LENGTH: usize = 55;
    let (bytes, is_digit) = (text.as_bytes(), |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let has_form = bytes.len() >= LENGTH
        && bytes[..LENGTH].iter().enumerate().all(|(place, byte)| match place {
            2 | 35 | 52 => *byte == b'-',
            _ => is_digit(byte),
        });
    match (has_form, bytes.get(..2)) {
        (true, Some(b"00")) => bytes.len() == LENGTH,
        (true, Some(b"ff")) => false,
        (true, _) => bytes.len() == LENGTH || bytes[LENGTH] == b'-',
        (false, _) => false,
    }
}

/// Several lines are one list. A list that is too long, or of which a part is no state, is left out whole: nobody knows
/// which part matters.
fn state_fields(headers: &HeaderMap) -> Option<String> {
    let lines: Option<Vec<&str>> = headers.get_all(TRACESTATE).iter().map(|line| line.to_str().ok()).collect();
    let members =
        lines?.into_iter().flat_map(|line| line.split(',')).map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).take(MEMBERS_MAX + 1).collect();
    let keys: Option<HashSet<&str>> = members.iter().map(|member| key_of(member)).collect();
    let is_good = members.len() <= MEMBERS_MAX && keys.is_some_and(|keys| keys.len() == members.len());
    is_good.then(|| members.join(",")).filter(|state| !state.is_empty() && state.len() <= TRACESTATE_BYTES_MAX)
}

/// The key of one entry, if the entry is one. OpenTelemetry looks at its letters, but takes keys and values of nothing,
/// values with tabs, and several `=` in a row.
fn key_of(member: &str) -> Option<&str> {
    let (key, value) = member.split_once('=')?;
    let is_value = value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    (is_value && !key.is_empty() && !value.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt as _;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    fn is_believed(parent: &str) -> bool {
        parent_of(&headers(&[("traceparent", parent)])).span().span_context().is_valid()
    }

    #[test]
    fn a_parent_is_read_and_handed_on() {
        let context = parent_of(&headers(&[("traceparent", GOOD), ("tracestate", "a=1"), ("tracestate", "b=2")]));
        let span = context.span();
        assert_eq!(span.span_context().trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(span.span_context().is_sampled() && span.span_context().is_remote());
        let mut onward = headers(&[("traceparent", "junk"), ("traceparent", "more"), ("tracestate", "x=y")]);
        replace(&mut onward, &context);
        assert_eq!(onward.get_all("traceparent").iter().collect::<Vec<_>>(), [GOOD]);
        assert_eq!(onward.get_all("tracestate").iter().collect::<Vec<_>>(), ["a=1,b=2"]);
    }

    #[test]
    fn what_is_not_exactly_a_parent_is_none() {
        assert!(is_believed(GOOD));
        assert!(is_believed(&format!("cc{}-more", &GOOD[2..])), "of a later version");
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &format!("{GOOD}-"),
            &format!("{GOOD}-more"),
            &format!("cc{}more", &GOOD[2..]),
            &format!("ff{}", &GOOD[2..]),
            "00-1-2-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
        ] {
            assert!(!is_believed(bad), "{bad}");
        }
        let twice = parent_of(&headers(&[("traceparent", GOOD), ("traceparent", GOOD)]));
        assert!(!twice.span().span_context().is_valid());
    }

    fn handed_on(states: &[&str]) -> Option<String> {
        let fields: Vec<_> = states.iter().map(|state| ("tracestate", *state)).collect();
        let context = parent_of(&headers(&[&[("traceparent", GOOD)], &fields[..]].concat()));
        let mut onward = HeaderMap::new();
        replace(&mut onward, &context);
        onward.get("tracestate").map(|state| state.to_str().expect("text").to_owned())
    }

    #[test]
    fn a_state_is_handed_on_as_the_specification_has_it() {
        let most: Vec<String> = (0..32).map(|member| format!("k{member}=v")).collect();
        for (states, expected) in [
            (&["a=1"][..], "a=1"),
            (&["a=1 ,\tb=2", "c=3"], "a=1,b=2,c=3"),
            (&["a=1,,b=2,"], "a=1,b=2"),
            (&["1a_-*/@vendor=x y!~"], "1a_-*/@vendor=x y!~"),
            (&[&most.join(",")], &most.join(",")),
        ] {
            assert_eq!(handed_on(states).as_deref(), Some(expected), "{states:?}");
        }
    }

    #[test]
    fn a_state_that_is_none_is_never_handed_on() {
        let too_many: Vec<String> = (0..33).map(|member| format!("k{member}=v")).collect();
        let long_key = format!("{}=v", "k".repeat(257));
        for state in [
            "=x",
            "a=",
            "a==x",
            "a=b=c",
            "a=1\t2",
            "A=1",
            "a b=1",
            "_a=1",
            "@v=1",
            "a=1,a=2",
            "a",
            ",",
            "a=1,b",
            &too_many.join(","),
            &long_key,
        ] {
            assert_eq!(handed_on(&[state]), None, "{state}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_kept_is_left_out_and_the_parent_stays() {
        for state in [&"a=1,".repeat(200)[..], "not a state"] {
            let context = parent_of(&headers(&[("traceparent", GOOD), ("tracestate", state)]));
            let mut onward = headers(&[("tracestate", state)]);
            replace(&mut onward, &context);
            assert_eq!((onward.contains_key("traceparent"), onward.contains_key("tracestate")), (true, false));
        }
    }
}
