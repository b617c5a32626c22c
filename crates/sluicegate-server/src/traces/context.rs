//! W3C Trace Context: strict parsing of `traceparent` and `tracestate`, and their propagation to the upstream.
//!
//! OpenTelemetry's propagator parses and writes both fields, but accepts short numbers and repeated fields. This module
//! passes it only fields that conform exactly to the specification.

use std::collections::HashSet;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest `tracestate` that is propagated, in bytes: the minimum that the specification requires.
const TRACESTATE_BYTES_MAX: usize = 512;
/// The most entries of a `tracestate`, by the specification.
const MEMBERS_MAX: usize = 32;

/// The remote parent in the fields of a request, or an empty context.
pub(super) fn parent_of(headers: &HeaderMap) -> Context {
    let fields = ContextFields { parent: parent_field(headers), state: state_fields(headers) };
    TraceContextPropagator::new().extract_with_context(&Context::new(), &fields)
}

/// Replaces the fields of a request by this context.
pub(super) fn replace(headers: &mut HeaderMap, context: &Context) {
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
    TraceContextPropagator::new().inject_context(context, &mut HeaderInjector(headers));
}

/// The two fields, if they are valid.
struct ContextFields<'h> {
    parent: Option<&'h str>,
    state: Option<String>,
}

impl Extractor for ContextFields<'_> {
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

/// Writes the propagator's fields into headers.
struct HeaderInjector<'h>(&'h mut HeaderMap);

impl Injector for HeaderInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        if value.is_empty() {
            return;
        }
        if let Some((name, value)) = key.parse::<HeaderName>().ok().zip(HeaderValue::try_from(value).ok()) {
            self.0.insert(name, value);
        }
    }
}

/// The parent, if it is valid and occurs once. Several fields are ambiguous, so they count as absent.
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
        && bytes[..LENGTH].iter().enumerate().all(|(index, byte)| match index {
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

/// Joins several fields to one list. If the list is too long or an entry is invalid, the whole list is omitted, because a part
/// of it could be misleading.
fn state_fields(headers: &HeaderMap) -> Option<String> {
    let lines: Option<Vec<&str>> = headers.get_all(TRACESTATE).iter().map(|line| line.to_str().ok()).collect();
    let members =
        lines?.into_iter().flat_map(|line| line.split(',')).map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).take(MEMBERS_MAX + 1).collect();
    let keys: Option<HashSet<&str>> = members.iter().map(|member| key_of(member)).collect();
    let is_valid = members.len() <= MEMBERS_MAX && keys.is_some_and(|keys| keys.len() == members.len());
    is_valid.then(|| members.join(",")).filter(|state| !state.is_empty() && state.len() <= TRACESTATE_BYTES_MAX)
}

/// The key of an entry, if the entry is valid. OpenTelemetry checks the characters of keys, but accepts empty keys and values,
/// tabs in values, and repeated `=`.
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

    fn is_accepted(parent: &str) -> bool {
        parent_of(&headers(&[("traceparent", parent)])).span().span_context().is_valid()
    }

    #[test]
    fn a_valid_context_is_parsed_and_propagated() {
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
    fn invalid_parents_are_ignored() {
        assert!(is_accepted(GOOD));
        assert!(is_accepted(&format!("cc{}-more", &GOOD[2..])), "of a later version");
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
            assert!(!is_accepted(bad), "{bad}");
        }
        let twice = parent_of(&headers(&[("traceparent", GOOD), ("traceparent", GOOD)]));
        assert!(!twice.span().span_context().is_valid());
    }

    fn propagated(states: &[&str]) -> Option<String> {
        let fields: Vec<_> = states.iter().map(|state| ("tracestate", *state)).collect();
        let context = parent_of(&headers(&[&[("traceparent", GOOD)], &fields[..]].concat()));
        let mut onward = HeaderMap::new();
        replace(&mut onward, &context);
        onward.get("tracestate").map(|state| state.to_str().expect("text").to_owned())
    }

    #[test]
    fn a_valid_state_is_propagated_in_canonical_form() {
        let most: Vec<String> = (0..32).map(|member| format!("k{member}=v")).collect();
        for (states, expected) in [
            (&["a=1"][..], "a=1"),
            (&["a=1 ,\tb=2", "c=3"], "a=1,b=2,c=3"),
            (&["a=1,,b=2,"], "a=1,b=2"),
            (&["1a_-*/@vendor=x y!~"], "1a_-*/@vendor=x y!~"),
            (&[&most.join(",")], &most.join(",")),
        ] {
            assert_eq!(propagated(states).as_deref(), Some(expected), "{states:?}");
        }
    }

    #[test]
    fn an_invalid_state_is_never_propagated() {
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
            assert_eq!(propagated(&[state]), None, "{state}");
        }
    }

    #[test]
    fn an_unusable_state_is_omitted_and_the_parent_is_kept() {
        for state in [&"a=1,".repeat(200)[..], "not a state"] {
            let context = parent_of(&headers(&[("traceparent", GOOD), ("tracestate", state)]));
            let mut onward = headers(&[("tracestate", state)]);
            replace(&mut onward, &context);
            assert_eq!((onward.contains_key("traceparent"), onward.contains_key("tracestate")), (true, false));
        }
    }
}
