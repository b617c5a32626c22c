//! Requests to Envoy's rate limit service. The first byte selects protobuf or JSON, and which hits are usage.
//!
//! Properties: a message is the same after encoding and decoding. An accepted request keeps every
//! bound, and its descriptors become requests that the limiter accepts, with one decision per descriptor.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use sluicegate::clock::ManualClock;
use sluicegate::core::{Align, FixedWindow, Micros, Quota, Timestamp};
use sluicegate::identity::{ENTRIES_MAX, ENTRY_BYTES_MAX};
use sluicegate::rules::{Limits, Per, Rule, RuleSet, Unmatched};
use sluicegate::{CheckError, Limiter, MemoryStore, Request};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[rustfmt::skip]
#[allow(dead_code, unused_qualifications, clippy::all)]
#[path = "../../crates/sluicegate-server/src/grpc/messages.rs"]
mod messages;
#[rustfmt::skip]
#[allow(dead_code)]
#[path = "../../crates/sluicegate-server/src/grpc/parsed_request.rs"]
mod parsed_request;

// The path of this file; without it, the compiler would search for its parser in a folder that does not exist.
#[path = "."]
mod json {
    use crate::messages::envoy::service::ratelimit::v3::RateLimitRequest;

    #[rustfmt::skip]
    #[path = "../../crates/sluicegate-server/src/grpc/json/request.rs"]
    mod request;

    pub(crate) fn read(bytes: &[u8]) -> Option<RateLimitRequest> {
        request::read(bytes).ok()
    }
}

use messages::envoy::service::ratelimit::v3::RateLimitRequest;
use parsed_request::Charging;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, input)) = bytes.split_first() else { return };
    let read = if kind % 2 == 0 { RateLimitRequest::decode(input).ok() } else { json::read(input) };
    let Some(message) = read else { return };
    assert_eq!(RateLimitRequest::decode(&*message.encode_to_vec()).as_ref(), Ok(&message));
    let charging = [Charging::ByDescriptor, Charging::Always, Charging::IfAllowed][usize::from(kind / 2 % 3)];
    let Ok(asked) = parsed_request::parse(&message, charging) else { return };
    assert_eq!(asked.len(), message.descriptors.len());
    assert!(asked.len() <= parsed_request::DESCRIPTORS_MAX);
    for each in &asked {
        assert!((1..=ENTRIES_MAX).contains(&each.entries.len()));
        assert!(each.entries.iter().all(|entry| entry.value.len() <= ENTRY_BYTES_MAX));
    }
    let requests: Vec<Request<'_>> = asked.iter().map(|each| each.request(&message.domain)).collect();
    decide(&requests);
});

fn decide(requests: &[Request<'_>]) {
    let rule = |name: &str, per: Per| {
        let window = FixedWindow::new(1_000, Micros::from_secs(60), Align::Epoch).expect("a window");
        Rule { per, ..Rule::new(name, Limits::all(name, [(None, Quota::from(window))])) }
    };
    let rules = vec![rule("own", Per::IDENTIFIER), rule("all", Per::GLOBAL)];
    let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).expect("rules");
    let now = Timestamp::now(1_705_312_800_123_456);
    let limiter = Limiter::new(rules, MemoryStore::new(Default::default(), now), ManualClock::at(now));
    let rules = limiter.rules();
    let mut deciding = pin!(limiter.check_all(&rules, requests));
    // The embedded store never waits. A large batch yields to other tasks.
    let decided = loop {
        if let Poll::Ready(decided) = deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            break decided;
        }
    };
    match decided {
        Ok(decisions) => {
            assert_eq!(decisions.each().len(), requests.len());
            assert!(!decisions.is_allowed() || decisions.each().iter().all(|each| each.is_allowed()));
        }
        Err(error) => assert!(matches!(error, CheckError::TooMuch), "{error}"),
    }
}
