//! Traces: spans of requests, decisions, store calls and proxying, sent to an OpenTelemetry collector.
//!
//! ```text
//! effective_settings.rs  the settings from the configuration and the OTEL_… variables
//! context.rs             traceparent and tracestate, from the client and to the upstream
//! request.rs             the span of a request, and the span of the upstream request
//! export.rs              the bounded queue to the collector, and counts of spans by outcome
//! ```
//!
//! The library creates the spans of decisions and store calls (`sluicegate::trace`). Without traces, a request pays for one
//! branch. No request waits for the collector, and a slow or absent collector changes no response. Spans contain no path, query,
//! header field or credential. They contain identities in the same form as the decision log.

mod context;
mod effective_settings;
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
use sluicegate::rules::file::{Environment, ValueError};
use sluicegate::trace::Spans;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::config::traces::{Parents, TraceSettings};
use crate::telemetry::identities::IdentityDisplay;
use effective_settings::EffectiveSettings;
use export::BoundedQueue;
pub(crate) use export::SpanCounts;
pub(crate) use request::FrontDoor;

/// The timeout for sending one batch, including all attempts.
const EXPORT_WITHIN: Duration = Duration::from_secs(5);
/// The timeout for connecting. Without it, the system tries for minutes if the collector does not respond, and no error appears.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// The time for the last spans when the server stops, out of ten seconds in total.
const FLUSH_WITHIN: Duration = Duration::from_millis(500);

/// The reason why traces cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TracesError {
    /// An invalid URL of the collector in a variable. It may contain a password, so the message omits it.
    #[error("{name}: {}; {}", wrong.message, wrong.remedy)]
    Endpoint {
        /// The variable.
        name: &'static str,
        /// The problem and its remedy.
        wrong: ValueError,
    },
    /// An unsupported protocol.
    #[error("{name}: `{}` is not supported; use `grpc`, which collectors accept on port 4317", value.escape_debug())]
    Protocol {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// An unsupported sampler.
    #[error(
        "OTEL_TRACES_SAMPLER: `{}` is not a supported sampler; use always_on, always_off or traceidratio, with or without \
         the prefix parentbased_, or the key `traces.sample`",
        .0.escape_debug()
    )]
    Sampler(String),
    /// An invalid ratio.
    #[error("OTEL_TRACES_SAMPLER_ARG: `{}` is not a ratio; use a number from 0 to 1", .0.escape_debug())]
    Ratio(String),
    /// The file with certificate authorities cannot be read.
    #[error("traces.ca_file: {} cannot be read ({source}); check the path and its permissions", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The connection settings are invalid.
    #[error("traces: {0}; check `traces.endpoint` and `traces.ca_file`")]
    Channel(#[from] tonic::transport::Error),
    /// OpenTelemetry rejects the settings.
    #[error("traces: {0}; check `traces.endpoint` and `traces.ca_file`")]
    Exporter(#[from] ExporterBuildError),
}

/// Creates spans and exports them. Clones share all state.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Arc<TracingState>);

#[derive(Debug)]
struct TracingState {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    counts: Arc<SpanCounts>,
    parents: Parents,
    proxies: TrustedProxies,
    display: Arc<IdentityDisplay>,
}

impl Traces {
    /// Traces as configured in the section `traces` and the variables of OpenTelemetry; `None` if they are off. Connects in the
    /// background, so it needs a runtime.
    pub(crate) fn open(
        section: Option<&TraceSettings>,
        environment: &Environment,
        proxies: &TrustedProxies,
        display: &Arc<IdentityDisplay>,
    ) -> Result<Option<Self>, TracesError> {
        let Some(effective) = EffectiveSettings::resolve(section, environment)? else { return Ok(None) };
        let default = TraceSettings::default();
        let settings = section.unwrap_or(&default);
        let counts = Arc::new(SpanCounts::default());
        let queue = BoundedQueue::new(exporter(&effective, settings)?, Arc::clone(&counts));
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(effective.sample.ratio())));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_sampler(sampler)
            .with_resource(resource(&effective, &settings.attributes))
            .build();
        let scope = InstrumentationScope::builder("sluicegate").with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        let (parents, proxies, display) = (settings.parents, proxies.clone(), Arc::clone(display));
        tracing::info!(endpoint = effective.endpoint, "spans are sent to a collector");
        Ok(Some(Self(Arc::new(TracingState { provider, tracer, counts, parents, proxies, display }))))
    }

    /// The source of spans for decisions on this store.
    pub(crate) fn spans(&self, store: &'static str) -> Spans<SdkTracer> {
        let display = Arc::clone(&self.0.display);
        Spans::new(self.0.tracer.clone()).store(store).identities(move |identity| display.text(identity))
    }

    /// The numbers of spans by outcome.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        self.0.counts.totals()
    }

    /// Exports the remaining spans within [`FLUSH_WITHIN`]. It blocks, and the runtime must keep running meanwhile.
    pub(crate) fn stop(&self) {
        if self.0.provider.shutdown_with_timeout(FLUSH_WITHIN).is_err() {
            tracing::warn!("the last spans could not be sent to the collector");
        }
    }
}

fn exporter(effective: &EffectiveSettings, settings: &TraceSettings) -> Result<SpanExporter, TracesError> {
    let endpoint = Endpoint::from_shared(effective.endpoint.clone())?;
    let endpoint = match effective.endpoint.starts_with("https://") {
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

/// The resource of the spans: OpenTelemetry's own variables, overridden by the configuration.
fn resource(effective: &EffectiveSettings, attributes: &[(&'static str, String)]) -> Resource {
    let further = attributes.iter().map(|(key, value)| KeyValue::new(*key, value.clone()));
    let resource = Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(further);
    match &effective.service_name {
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

    /// More than the timeouts of all attempts.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread")]
    async fn an_unresponsive_collector_is_reported_within_the_timeouts() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let silent = socket.listen(1).expect("a listener");
        let address = silent.local_addr().expect("bound");
        // The listener never accepts. When its backlog is full, the system drops further connections.
        let waiting: Vec<TcpStream> =
            std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();

        let section = TraceSettings { endpoint: Some(format!("http://{address}")), ..TraceSettings::default() };
        let display = Arc::new(IdentityDisplay::new(&LogSettings::default()).expect("randomness"));
        let traces = Traces::open(Some(&section), &Environment::default(), &TrustedProxies::default(), &display);
        let traces = traces.expect("good").expect("traces");
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let context = traces.begin(FrontDoor::Api, false, &Request::new(()), [127, 0, 0, 1].into(), now);
        traces.end(&context, &Response::new(()), now);
        poll::until_true("the span has failed", PATIENCE, || traces.counts()[1] == ("failed", 1));
        drop((waiting, silent));
    }
}
