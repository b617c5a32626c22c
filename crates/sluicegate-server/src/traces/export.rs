//! Spans on their way out: a bounded queue, and counts of what became of each.
//!
//! OpenTelemetry's batch processor collects and sends on a thread of its own; a request never waits for it. It drops what
//! does not fit without saying how much, so the bound is kept here, before it: a span that is taken in is sent or failed,
//! and one that is not is counted as dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};

/// The most spans that wait to be sent, those on their way included. One has about a kilobyte.
const QUEUE_MAX: usize = 4_096;
/// The most spans in one message: a few hundred kilobytes, which every collector takes.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to be sent with.
const DELAY: Duration = Duration::from_secs(1);

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

impl SpanCounts {
    /// How many, by what became of them.
    pub(crate) fn totals(&self) -> [(&'static str, u64); 3] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("exported", of(&self.exported)), ("failed", of(&self.failed)), ("dropped", of(&self.dropped))]
    }
}

/// Takes spans in as long as there is room.
#[derive(Debug)]
pub(super) struct BoundedQueue {
    batches: BatchSpanProcessor,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Spans that were taken in and are neither sent nor failed.
    waiting: AtomicUsize,
    counts: Arc<SpanCounts>,
    is_failing: AtomicBool,
}

impl BoundedQueue {
    /// A queue to this exporter that counts here.
    pub(super) fn new(exporter: impl SpanExporter + 'static, counts: Arc<SpanCounts>) -> Self {
        let state = Arc::new(State { counts, ..State::default() });
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(DELAY)
            .build();
        let counted = Counted { exporter, state: Arc::clone(&state) };
        Self { batches: BatchSpanProcessor::new(counted, config), state }
    }
}

impl SpanProcessor for BoundedQueue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let room = |waiting: usize| (waiting < QUEUE_MAX).then_some(waiting + 1);
        if self.state.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok() {
            self.batches.on_end(span);
        } else {
            self.state.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// An exporter whose outcomes are counted.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    state: Arc<State>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.exporter.export(batch).await;
        let state = &self.state;
        state.waiting.fetch_sub(count, Ordering::Relaxed);
        let counts = &state.counts;
        let counter = if sent.is_ok() { &counts.exported } else { &counts.failed };
        counter.fetch_add(count as u64, Ordering::Relaxed);
        state.tell(&sent);
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl State {
    /// One line when it begins to fail, and one when it works again: a collector may be gone for days.
    fn tell(&self, sent: &OTelSdkResult) {
        match (sent, self.is_failing.swap(sent.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => tracing::warn!(%error, "spans cannot be sent to the collector"),
            (Ok(()), true) => tracing::info!("spans are sent to the collector again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use parking_lot::Mutex;

    use super::*;

    /// Sends when it is told to, as it is told.
    #[derive(Debug)]
    struct Told {
        begun: Sender<usize>,
        orders: Mutex<Receiver<OTelSdkResult>>,
    }

    impl SpanExporter for Told {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.begun.send(batch.len()).expect("somebody listens");
            self.orders.lock().recv().unwrap_or(Ok(()))
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_every_span_is_counted() {
        let counts = Arc::new(SpanCounts::default());
        let ((begun, batches), (orders, receiver)) = (channel(), channel());
        let exporter = Told { begun, orders: Mutex::new(receiver) };
        let queue = BoundedQueue::new(exporter, Arc::clone(&counts));
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        // The collector is slow: it has the first batch and does not answer.
        (0..BATCH_MAX).for_each(|_| drop(tracer.start("span")));
        assert_eq!(batches.recv(), Ok(BATCH_MAX));
        (0..QUEUE_MAX).for_each(|_| drop(tracer.start("span")));
        assert_eq!(counts.totals(), [("exported", 0), ("failed", 0), ("dropped", BATCH_MAX as u64)]);

        orders.send(Err(OTelSdkError::InternalFailure("told to".to_owned()))).expect("it listens");
        // From here on it takes everything.
        drop(orders);
        provider.shutdown_with_timeout(Duration::from_secs(30)).expect("all is sent");
        let (queue, batch) = (QUEUE_MAX as u64, BATCH_MAX as u64);
        assert_eq!(counts.totals(), [("exported", queue - batch), ("failed", batch), ("dropped", batch)]);
    }
}
