//! An OpenTelemetry collector that a test owns. It receives OTLP over gRPC with the official messages, stores
//! everything, and can stop answering on request.
//!
//! It runs on its own thread and ends with the value. Reading the spans blocks, so tests need no runtime.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::{Condvar, Mutex};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// The time limit for a span to arrive; a passing test needs a second or two.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running collector.
#[derive(Debug)]
pub struct OtlpCollector {
    scheme: &'static str,
    address: SocketAddr,
    shared: Arc<Shared>,
    is_silent: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Received>,
    changed: Condvar,
}

/// Everything received so far.
#[derive(Debug, Default)]
struct Received {
    /// Each message as debug text, preceded by its header fields.
    messages: Vec<String>,
    spans: Vec<ReceivedSpan>,
}

/// A span with the resource that sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedSpan {
    /// The span.
    pub span: Span,
    /// The attributes of the sender.
    pub resource: Vec<KeyValue>,
}

impl ReceivedSpan {
    /// The trace, in hexadecimal digits.
    pub fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    /// The span, in hexadecimal digits.
    pub fn span_id(&self) -> String {
        hex(&self.span.span_id)
    }

    /// The parent, in hexadecimal digits; nothing if there is none.
    pub fn parent_id(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    /// An attribute as text.
    pub fn attribute(&self, name: &str) -> Option<String> {
        find(&self.span.attributes, name)
    }

    /// An attribute of the sending resource as text.
    pub fn of_sender(&self, name: &str) -> Option<String> {
        find(&self.resource, name)
    }
}

fn find(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?;
    Some(match value.value.as_ref()? {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::BoolValue(flag) => flag.to_string(),
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl OtlpCollector {
    /// Starts a collector on a port chosen by the kernel.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// The same with TLS. Also returns the certificate in PEM that exporters must trust.
    pub fn start_with_tls() -> (Self, String) {
        let certified = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()]);
        let certified = certified.unwrap_or_else(|error| panic!("no certificate: {error}"));
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certificate, key));
        (Self::start_with(Some(tls)), certificate)
    }

    fn start_with(tls: Option<ServerTlsConfig>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (started, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let (is_silent, silence) = watch::channel(false);
        let shared = Arc::<Shared>::default();
        let service = Service { shared: Arc::clone(&shared), silence };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
            runtime.block_on(serve(service, tls, started, stopped));
        });
        let address = address.recv().unwrap_or_else(|error| panic!("the collector did not start: {error}"));
        Self { scheme, address, shared, is_silent, stop: Some(stop), thread: Some(thread) }
    }

    /// The URL of the collector.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// If true, the collector from now on receives everything but never answers; if false, it answers again.
    pub fn be_silent(&self, is_silent: bool) {
        self.is_silent.send_replace(is_silent);
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.shared.received.lock().spans.clone()
    }

    /// Everything received so far as debug text, including header fields.
    pub fn messages(&self) -> Vec<String> {
        self.shared.received.lock().messages.clone()
    }

    /// Waits until `find` returns a value for the spans.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut find: impl FnMut(&[ReceivedSpan]) -> Option<T>) -> T {
        let mut received = self.shared.received.lock();
        loop {
            if let Some(found) = find(&received.spans) {
                return found;
            }
            if self.shared.changed.wait_for(&mut received, PATIENCE).timed_out() {
                panic!("{what} did not come; these did: {:#?}", received.spans);
            }
        }
    }

    /// Waits for a span with this name in this trace.
    #[track_caller]
    pub fn wait_for_span(&self, trace_id: &str, name: &str) -> ReceivedSpan {
        let is_it = |span: &&ReceivedSpan| span.trace_id() == trace_id && span.span.name == name;
        self.wait_for(&format!("{name} in {trace_id}"), |spans| spans.iter().find(is_it).cloned())
    }
}

impl Drop for OtlpCollector {
    fn drop(&mut self) {
        self.is_silent.send_replace(false);
        // Both fail harmlessly if the thread has already ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(
    service: Service,
    tls: Option<ServerTlsConfig>,
    started: std::sync::mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.unwrap_or_else(|error| panic!("no port: {error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
    if started.send(address).is_err() {
        return;
    }
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap_or_else(|error| panic!("no TLS: {error}"));
    }
    let served = server.add_service(TraceServiceServer::new(service));
    tokio::select! {
        outcome = served.serve_with_incoming(TcpIncoming::from(listener)) => {
            outcome.unwrap_or_else(|error| panic!("the collector failed: {error}"));
        }
        // Connections are cut: the shutdown does not wait for open exports.
        _ = stopped => {}
    }
}

#[derive(Debug)]
struct Service {
    shared: Arc<Shared>,
    silence: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.shared.take(&request);
        let mut silence = self.silence.clone();
        // The sender lives as long as the collector, and the end of the collector also ends this wait.
        let _ = silence.wait_for(|is_silent| !is_silent).await;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Shared {
    fn take(&self, request: &Request<ExportTraceServiceRequest>) {
        let mut received = self.received.lock();
        let fields = request.metadata().clone().into_headers();
        let lines = fields.iter().map(|(name, value)| format!("{name}: {}\n", value.as_bytes().escape_ascii()));
        received.messages.push(lines.chain([format!("{:?}", request.get_ref())]).collect());
        for sender in &request.get_ref().resource_spans {
            let resource = sender.resource.as_ref().map(|resource| resource.attributes.clone());
            let resource = resource.unwrap_or_default();
            let spans = sender.scope_spans.iter().flat_map(|scope| &scope.spans);
            received
                .spans
                .extend(spans.map(|span| ReceivedSpan { span: span.clone(), resource: resource.clone() }));
        }
        self.changed.notify_all();
    }
}
