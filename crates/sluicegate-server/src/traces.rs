//! Traces: spans of requests, decisions, store calls and proxying, sent to a collector of OpenTelemetry.
//!
//! ```text
//! choice.rs     whether there are any, and how: configuration, then OTEL_… variables
//! context.rs    traceparent and tracestate, from the caller and to the upstream
//! request.rs    the span of a request, and that of sending it on
//! export.rs     the bounded queue to the collector, and what became of every span
//! ```
//!
//! Spans of decisions and store calls are the library's (`sluicegate::trace`). Without traces nothing of this is made,
//! and a request pays for one branch. No request ever waits for the collector, and none is answered otherwise because it
//! is slow or gone. Spans hold no path, query, header field or credential, and of an identity as much as the decision
//! log.

mod choice;
mod context;
mod export;
mod request;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use sluicegate::identify::address::TrustedProxies;
use sluicegate::rules::file::{Environment, Wrong};
use sluicegate::trace::Spans;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::config::traces::{Parents, TraceSettings};
use crate::telemetry::identities::Shown;
use choice::Choice;
use export::BoundedQueue;
pub(crate) use export::SpanCounts;
pub(crate) use request::Door;

/// How long sending one batch may take on a connection, all attempts together.
const EXPORT_WITHIN: Duration = Duration::from_secs(5);
/// How long connecting may take. Where nobody answers at all, the system would try for minutes, and nobody would be told.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How long the last spans may take when the server stops. It is what the ten seconds to stop have to spare.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// Why there can be no traces as they are asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TracesError {
    /// The collector's URL in a variable. It may hold a password, so it is not shown.
    #[error("{name}: {}; {}", wrong.message, wrong.remedy)]
    Endpoint {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        wrong: Wrong,
    },
    /// A protocol that is not spoken.
    #[error("{name}: `{}` is not spoken; use `grpc`, which collectors take on port 4317", value.escape_debug())]
    Protocol {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// A sampler that there is none of.
    #[error(
        "OTEL_TRACES_SAMPLER: `{}` is no sampler here; use always_on, always_off or traceidratio, each also with \
         parentbased_ before it, or the key `traces.sample`",
        .0.escape_debug()
    )]
    Sampler(String),
    /// A ratio that is none.
    #[error("OTEL_TRACES_SAMPLER_ARG: `{}` is no ratio; use a number from 0 to 1", .0.escape_debug())]
    Ratio(String),
    /// The file with the authorities.
    #[error("traces.ca_file: {} cannot be read ({source}); check the path and its rights", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No connection can be made by these settings.
    #[error("traces: {0}; check `traces.endpoint` and `traces.ca_file`")]
    Channel(#[from] tonic::transport::Error),
    /// OpenTelemetry refuses.
    #[error("traces: {0}; check `traces.endpoint` and `traces.ca_file`")]
    Exporter(#[from] ExporterBuildError),
}

/// Makes spans and sends them. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    counts: Arc<SpanCounts>,
    parents: Parents,
    proxies: TrustedProxies,
    shown: Arc<Shown>,
}

impl Traces {
    /// Traces as the section and the variables of OpenTelemetry ask for them, if they do. Connects in the background, so
    /// it needs a runtime.
    pub(crate) fn open(
        section: Option<&TraceSettings>,
        environment: &Environment,
        proxies: &TrustedProxies,
        shown: &Arc<Shown>,
    ) -> Result<Option<Self>, TracesError> {
        let Some(choice) = Choice::of(section, environment)? else { return Ok(None) };
        let default = TraceSettings::default();
        let settings = section.unwrap_or(&default);
        let counts = Arc::new(SpanCounts::default());
        let queue = BoundedQueue::new(exporter(&choice, settings)?, Arc::clone(&counts));
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(choice.sample.ratio())));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(sampler)
            .with_resource(resource(&choice))
            .build();
        let scope = InstrumentationScope::builder("sluicegate").with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        let (parents, proxies, shown) = (settings.parents, proxies.clone(), Arc::clone(shown));
        tracing::info!(endpoint = choice.endpoint, "spans are sent to a collector");
        Ok(Some(Self(Arc::new(Shared { provider, tracer, counts, parents, proxies, shown }))))
    }

    /// What makes spans of decisions on this store.
    pub(crate) fn spans(&self, store: &'static str) -> Spans<SdkTracer> {
        let shown = Arc::clone(&self.0.shown);
        Spans::new(self.0.tracer.clone()).store(store).identities(move |identity| shown.of(identity))
    }

    /// What became of spans.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        self.0.counts.totals()
    }

    /// Sends what is left, as far as that is possible within [`FLUSH_WITHIN`]. Blocks; the runtime must go on meanwhile.
    pub(crate) fn stop(&self) {
        if self.0.provider.shutdown_with_timeout(FLUSH_WITHIN).is_err() {
            tracing::warn!("the last spans could not be sent to the collector");
        }
    }
}

fn exporter(choice: &Choice, settings: &TraceSettings) -> Result<SpanExporter, TracesError> {
    let endpoint = Endpoint::from_shared(choice.endpoint.clone())?;
    let endpoint = match choice.endpoint.starts_with("https://") {
        true => endpoint.tls_config(tls(settings.ca_file.as_deref())?)?,
        false => endpoint,
    };
    let channel = endpoint.connect_timeout(CONNECT_WITHIN).timeout(EXPORT_WITHIN).connect_lazy();
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_channel(channel)
        .with_timeout(EXPORT_WITHIN)
        .with_metadata(MetadataMap::from_headers(settings.headers.clone()));
    Ok(exporter.build()?)
}

fn tls(ca_file: Option<&Path>) -> Result<ClientTlsConfig, TracesError> {
    let Some(path) = ca_file else { return Ok(ClientTlsConfig::new().with_native_roots()) };
    let pem = std::fs::read(path).map_err(|source| TracesError::Unreadable { path: path.to_owned(), source })?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
}

/// Who sends the spans: what OpenTelemetry's own variables say, and over that what the configuration says.
fn resource(choice: &Choice) -> Resource {
    let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    match &choice.service_name {
        Some(name) => resource.with_service_name(name.clone()).build(),
        None => resource.build(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use axum::http::{Request, Response};
    use sluicegate::core::Timestamp;
    use sluicegate_testkit::poll;
    use tokio::net::TcpSocket;

    use super::*;
    use crate::config::log::LogSettings;

    /// Far more than all attempts may take.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collector_that_never_answers_is_told_soon() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let silent = socket.listen(1).expect("a listener");
        let address = silent.local_addr().expect("bound");
        // Nobody accepts. As soon as there is no room for more who wait, the system drops whatever comes.
        let waiting: Vec<TcpStream> =
            std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();

        let section = TraceSettings { endpoint: Some(format!("http://{address}")), ..TraceSettings::default() };
        let shown = Arc::new(Shown::new(&LogSettings::default()).expect("randomness"));
        let traces = Traces::open(Some(&section), &Environment::default(), &TrustedProxies::default(), &shown);
        let traces = traces.expect("good").expect("traces");
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let context = traces.begin(Door::Api, &Request::new(()), [127, 0, 0, 1].into(), now);
        traces.end(&context, &Response::new(()), now);
        poll::until_true("the span has failed", PATIENCE, || traces.counts()[1] == ("failed", 1));
        drop((waiting, silent));
    }
}
