//! Spans of an application's own tracer: their parents, and the cases without spans.

use opentelemetry::trace::{
    FutureExt as _, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    TracerProvider as _,
};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use sluicegate::clock::ManualClock;
use sluicegate::core::Timestamp;
use sluicegate::rules::{Limits, Mode, OnStoreFailure, Rule, RuleSet, Unmatched};
use sluicegate::store::ErrorClass;
use sluicegate::trace::Spans;
use sluicegate::{Limiter, MemoryStore, Observer, Request};
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};

use crate::support::{block_on, hourly};

/// A limiter with one rule and spans.
struct Scene<O> {
    limiter: Limiter<FaultyStore, ManualClock, O>,
    store: FaultyStore,
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
}

fn scene(mode: Mode, sampler: Sampler) -> Scene<impl Observer> {
    let exporter = InMemorySpanExporter::default();
    let provider =
        SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).with_sampler(sampler).build();
    let limits = Limits::all("few", [(None, hourly(1))]);
    let rule = Rule { mode, on_store_failure: OnStoreFailure::Closed, ..Rule::new("few", limits) };
    let rules = RuleSet::new(vec![rule], vec![], Unmatched::Allow).unwrap();
    let store = FaultyStore::new(MemoryStore::default());
    let spans = Spans::new(provider.tracer("test")).store("redis").identities(|_| "masked".to_owned());
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    let limiter = Limiter::new(rules, store.clone(), clock).observed(spans);
    Scene { limiter, store, exporter, _provider: provider }
}

/// The context of a parent span.
fn caller(flags: TraceFlags) -> Context {
    let (trace, span) = (TraceId::from(0xace), SpanId::from(0xcafe));
    Context::new().with_remote_span_context(SpanContext::new(trace, span, flags, true, TraceState::default()))
}

impl<O: Observer> Scene<O> {
    fn spans(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    fn named(&self, name: &str) -> Vec<SpanData> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == name).map(|found| found.value.clone())
}

#[test]
fn decision_span_has_the_current_parent_and_the_store_call_as_child() {
    let scene = scene(Mode::Enforce, Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
    let request = Request::new("r", "alice").tenant("acme");
    block_on(scene.limiter.check(&request).with_context(caller(TraceFlags::SAMPLED))).unwrap();
    let [store, check] = &scene.spans()[..] else { panic!("{:?}", scene.spans()) };
    assert_eq!((check.name.as_ref(), check.parent_span_id), ("ratelimit check", SpanId::from(0xcafe)));
    assert_eq!((store.name.as_ref(), store.parent_span_id), ("store charge", check.span_context.span_id()));
    assert_eq!(store.span_kind, SpanKind::Client);
    for (name, value) in [
        ("ratelimit.outcome", "allowed"),
        ("ratelimit.rule", "few"),
        ("ratelimit.tenant", "acme"),
        ("ratelimit.identity", "masked"),
        ("ratelimit.mode", "enforce"),
    ] {
        assert_eq!(attribute(check, name), Some(value.into()), "{name}");
    }
}

#[test]
fn unsampled_requests_have_no_spans_and_root_requests_follow_the_sampler() {
    let request = Request::new("r", "alice");
    let silent = scene(Mode::Enforce, Sampler::ParentBased(Box::new(Sampler::AlwaysOn)));
    block_on(silent.limiter.check(&request).with_context(caller(TraceFlags::default()))).unwrap();
    assert!(silent.spans().is_empty());
    block_on(silent.limiter.check(&request)).unwrap();
    assert_eq!(silent.named("ratelimit check")[0].parent_span_id, SpanId::INVALID);
    let off = scene(Mode::Enforce, Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
    block_on(off.limiter.check(&request)).unwrap();
    assert!(off.spans().is_empty());
}

#[test]
fn every_outcome_and_operation_has_its_span_text() {
    let request = Request::new("r", "alice");
    for (mode, expected) in [(Mode::Enforce, "denied"), (Mode::Shadow, "shadow_denied")] {
        let scene = scene(mode, Sampler::AlwaysOn);
        for _ in 0..2 {
            block_on(scene.limiter.check(&request)).unwrap();
        }
        let last = scene.named("ratelimit check").pop().unwrap();
        assert_eq!(attribute(&last, "ratelimit.outcome"), Some(expected.into()));
    }
    let scene = scene(Mode::Enforce, Sampler::AlwaysOn);
    block_on(scene.limiter.peek(&request)).unwrap();
    block_on(scene.limiter.refund(&request)).unwrap();
    block_on(scene.limiter.reset(&request)).unwrap();
    block_on(scene.limiter.check_all(&scene.limiter.rules(), &[request, request])).unwrap();
    for name in ["ratelimit peek", "ratelimit refund", "ratelimit reset", "ratelimit check"] {
        assert_eq!(scene.named(name).len(), 1, "{name}");
    }
    let several = scene.named("ratelimit check").pop().unwrap();
    assert_eq!(attribute(&several, "ratelimit.requests"), Some(2.into()));

    scene.store.set(Some(Trouble::Fails(ErrorClass::Busy)));
    block_on(scene.limiter.check(&request)).unwrap_err();
    let (check, store) =
        (scene.named("ratelimit check").pop().unwrap(), scene.named("store charge").pop().unwrap());
    assert_eq!(attribute(&check, "ratelimit.outcome"), Some("failed_closed".into()));
    assert_eq!(attribute(&store, "error.type"), Some(ErrorClass::Busy.name().into()));
}
