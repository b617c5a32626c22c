//! The export of spans: a bounded queue, and counts of spans by outcome.
//!
//! OpenTelemetry's batch processor batches and sends spans on a separate thread, so a request never waits for it. It does not
//! report the number of spans that it drops. This module therefore enforces the bound in front of it: an accepted span is
//! exported or fails, and any other span is counted as dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};

/// The most spans in the queue, including the batch in flight. A span has about one kilobyte.
const QUEUE_MAX: usize = 4_096;
/// The most spans per message: a few hundred kilobytes, which every collector accepts.
const BATCH_MAX: usize = 512;
/// How long a span waits for its batch to fill.
const DELAY: Duration = Duration::from_secs(1);

/// The numbers of spans by outcome.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

impl SpanCounts {
    /// The counts with the names of the outcomes.
    pub(crate) fn totals(&self) -> [(&'static str, u64); 3] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("exported", of(&self.exported)), ("failed", of(&self.failed)), ("dropped", of(&self.dropped))]
    }
}

/// A span processor with a bounded queue.
#[derive(Debug)]
pub(super) struct BoundedQueue {
    batches: BatchSpanProcessor,
    state: Arc<SpanQueue>,
}

#[derive(Debug, Default)]
struct SpanQueue {
    /// Accepted spans that are neither exported nor failed.
    waiting: AtomicUsize,
    counts: Arc<SpanCounts>,
    is_failing: AtomicBool,
}

impl BoundedQueue {
    /// A queue for `exporter` that updates `counts`.
    pub(super) fn new(exporter: impl SpanExporter + 'static, counts: Arc<SpanCounts>) -> Self {
        let state = Arc::new(SpanQueue { counts, ..SpanQueue::default() });
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(DELAY)
            .build();
        let counting = CountingExporter { exporter, state: Arc::clone(&state) };
        Self { batches: BatchSpanProcessor::new(counting, config), state }
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

/// Counts the outcomes of an exporter.
#[derive(Debug)]
struct CountingExporter<E> {
    exporter: E,
    state: Arc<SpanQueue>,
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.exporter.export(batch).await;
        let state = &self.state;
        state.waiting.fetch_sub(count, Ordering::Relaxed);
        let counts = &state.counts;
        let counter = if sent.is_ok() { &counts.exported } else { &counts.failed };
        counter.fetch_add(count as u64, Ordering::Relaxed);
        state.log(&sent);
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

impl SpanQueue {
    /// Logs the first failure and the first success after failures, because an outage of the collector can last for days.
    fn log(&self, sent: &OTelSdkResult) {
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

    /// An exporter that returns the next result of a channel, and success after the channel is closed.
    #[derive(Debug)]
    struct SteppedExporter {
        begun: Sender<usize>,
        results: Mutex<Receiver<OTelSdkResult>>,
    }

    impl SpanExporter for SteppedExporter {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.begun.send(batch.len()).expect("the test receives");
            self.results.lock().recv().unwrap_or(Ok(()))
        }
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_every_span_is_counted() {
        let counts = Arc::new(SpanCounts::default());
        let ((begun, batches), (results, receiver)) = (channel(), channel());
        let exporter = SteppedExporter { begun, results: Mutex::new(receiver) };
        let queue = BoundedQueue::new(exporter, Arc::clone(&counts));
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        // The collector received the first batch and does not respond.
        (0..BATCH_MAX).for_each(|_| drop(tracer.start("span")));
        assert_eq!(batches.recv(), Ok(BATCH_MAX));
        (0..QUEUE_MAX).for_each(|_| drop(tracer.start("span")));
        assert_eq!(counts.totals(), [("exported", 0), ("failed", 0), ("dropped", BATCH_MAX as u64)]);

        results.send(Err(OTelSdkError::InternalFailure("as requested".to_owned()))).expect("it listens");
        // From here on, every export succeeds.
        drop(results);
        provider.shutdown_with_timeout(Duration::from_secs(30)).expect("all is sent");
        let (queue, batch) = (QUEUE_MAX as u64, BATCH_MAX as u64);
        assert_eq!(counts.totals(), [("exported", queue - batch), ("failed", batch), ("dropped", batch)]);
    }
}
