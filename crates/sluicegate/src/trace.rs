//! OpenTelemetry spans of decisions and store calls.
//!
//! [`Spans`] is an [`Observer`]. It creates a span when the call is complete, from the times that the limiter
//! measured. So an untraced request costs one look at the current [`Context`], and no span is open while the limiter
//! waits for the store. The span of a decision is a child of the current span, and the span of the store call is its
//! child. If several requests share one call to Redis, each gets a span for its own wait.
//!
//! The module neither exports nor samples, and knows no protocol: the given tracer does all of that.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer};
use opentelemetry::{Context, KeyValue, Value};
use sluicegate_core::{Cost, Outcome, Timestamp};

use crate::decision::{Headline, LimitOutcome};
use crate::error::CheckError;
use crate::identity::{Identity, Request};
use crate::observe::{CompletionEvent, Observer, Operation};
use crate::rules::Mode;

/// The text that a span contains of an identity.
type Shown = dyn Fn(Identity<'_>) -> String + Send + Sync;

/// Creates spans of the limiter's calls.
///
/// ```
/// use opentelemetry::global;
/// use sluicegate::clock::SystemClock;
/// use sluicegate::rules::RuleSet;
/// use sluicegate::trace::Spans;
/// use sluicegate::{Limiter, MemoryStore};
///
/// let spans = Spans::new(global::tracer("sluicegate")).store("memory");
/// let limiter = Limiter::new(RuleSet::default(), MemoryStore::default(), SystemClock::new()).observed(spans);
/// # let _ = limiter;
/// ```
pub struct Spans<T> {
    tracer: T,
    store: Cow<'static, str>,
    shown: Option<Box<Shown>>,
}

impl<T> Spans<T> {
    /// Spans of this tracer, without identities.
    pub fn new(tracer: T) -> Self {
        Self { tracer, store: Cow::Borrowed("unknown"), shown: None }
    }

    /// Sets the name of the store in the spans: `memory` or `redis`.
    #[must_use]
    pub fn store(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { store: name.into(), ..self }
    }

    /// Adds identities to the spans, as `shown` renders them: for example as a hash, because many people read spans.
    #[must_use]
    pub fn identities(self, shown: impl Fn(Identity<'_>) -> String + Send + Sync + 'static) -> Self {
        Self { shown: Some(Box::new(shown)), ..self }
    }
}

impl<T: fmt::Debug> fmt::Debug for Spans<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tracer, store, shown } = self;
        let shows_identities = shown.is_some();
        formatter.debug_struct("Spans").field("tracer", tracer).field("store", store).finish_non_exhaustive()?;
        write!(formatter, " (identities: {shows_identities})")
    }
}

impl<T: Tracer + Send + Sync> Observer for Spans<T> {
    fn wants_durations(&self) -> bool {
        true
    }

    fn finished(&self, finished: &CompletionEvent<'_>) {
        let is_left_out = |context: &Context| {
            let span = context.span();
            span.span_context().is_valid() && !span.span_context().is_sampled()
        };
        // The frequent case: few requests are sampled.
        if Context::map_current(is_left_out) {
            return;
        }
        let parent = Context::current();
        let builder = SpanBuilder::from_name(name_of(finished.operation)).with_kind(SpanKind::Internal);
        let began = instant(finished.began);
        let mut span = self.tracer.build_with_context(builder.with_start_time(began), &parent);
        if !span.is_recording() {
            return;
        }
        span.set_attributes(self.attributes(finished));
        if finished.asked_store {
            self.store_call(finished, &parent.with_remote_span_context(span.span_context().clone()));
        }
        span.end_with_timestamp(began + Duration::from_micros(finished.took.as_micros()));
    }
}

impl<T: Tracer> Spans<T> {
    fn store_call(&self, finished: &CompletionEvent<'_>, parent: &Context) {
        let is_elsewhere = self.store != "memory";
        let kind = if is_elsewhere { SpanKind::Client } else { SpanKind::Internal };
        let name = format!("store {}", finished.operation.name());
        let builder = SpanBuilder::from_name(name).with_kind(kind);
        let builder = builder.with_start_time(instant(finished.asked_at));
        let mut span = self.tracer.build_with_context(builder, parent);
        span.set_attribute(KeyValue::new("ratelimit.store", self.store.clone()));
        if is_elsewhere {
            span.set_attribute(KeyValue::new("db.system.name", self.store.clone()));
            span.set_attribute(KeyValue::new("db.operation.name", finished.operation.name()));
        }
        if let Some(error) = finished.store_error() {
            span.set_attribute(KeyValue::new("error.type", error.class.name()));
            span.set_status(Status::error(error.class.name()));
        }
        let ended = finished.began.plus(finished.took);
        span.end_with_timestamp(instant(ended));
    }

    fn attributes(&self, finished: &CompletionEvent<'_>) -> Vec<KeyValue> {
        let mut attributes = Attributes(Vec::with_capacity(16));
        match finished.answer {
            Ok(decision) => attributes.headline(&Headline::of(decision), decision.is_degraded()),
            Err(CheckError::Store(_)) => attributes.add("ratelimit.outcome", LimitOutcome::FailedClosed.name()),
            Err(_) => {}
        }
        attributes.add("ratelimit.store", self.store.clone());
        if let [request] = finished.requests {
            attributes.request(request);
            if let Some(shown) = &self.shown {
                attributes.add("ratelimit.identity", shown(request.identity));
            }
        } else {
            attributes.count("ratelimit.requests", finished.requests.len() as u64);
            attributes.tenant(finished.requests.first());
        }
        attributes.0
    }
}

/// The attributes of one span.
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(name, value));
    }

    /// A count beyond OpenTelemetry's signed range becomes the largest number of that range.
    fn count(&mut self, name: &'static str, count: u64) {
        self.add(name, i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn headline(&mut self, headline: &Headline<'_>, is_degraded: bool) {
        self.add("ratelimit.outcome", headline.outcome.name());
        self.add("ratelimit.degraded", is_degraded);
        let Some(limit) = headline.limit else { return };
        self.add("ratelimit.rule", limit.rule.to_owned());
        self.add("ratelimit.algorithm", limit.quota.algorithm());
        self.add("ratelimit.mode", mode_name(limit.mode));
        self.count("ratelimit.limit", limit.verdict.limit);
        self.count("ratelimit.remaining", limit.verdict.remaining);
        if let Outcome::Denied { retry_after } = limit.verdict.outcome {
            self.count("ratelimit.retry_after_ms", retry_after.ceil_millis());
        }
    }

    fn tenant(&mut self, request: Option<&Request<'_>>) {
        if let Some(request) = request {
            self.add("ratelimit.tenant", request.tenant.to_owned());
        }
    }

    /// A path may contain anything, so the span contains the resource only if the client names it.
    fn request(&mut self, request: &Request<'_>) {
        self.tenant(Some(request));
        if request.target.is_none() && request.descriptor.is_none() {
            self.add("ratelimit.resource", request.resource.to_owned());
        }
        if let Some(tier) = request.tier {
            self.add("ratelimit.tier", tier.to_owned());
        }
        if let Some(cost) = request.cost.map(Cost::units) {
            self.count("ratelimit.cost", cost);
        }
    }
}

const fn name_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Charge => "ratelimit check",
        Operation::Peek => "ratelimit peek",
        Operation::Refund => "ratelimit refund",
        Operation::Report => "ratelimit report",
        Operation::Reset => "ratelimit reset",
    }
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

/// An instant of the limiter's clock as OpenTelemetry expects it.
fn instant(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.as_micros())
}
