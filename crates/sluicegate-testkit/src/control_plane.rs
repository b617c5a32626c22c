//! A control plane of rate limit configurations that a test owns: it serves snapshots over xDS as go-control-plane does.
//!
//! A stream gets a response as soon as there is a snapshot, and another after each new one; after a NACK it waits for the
//! next. Everything that clients send is recorded. The server runs on its own thread and ends with the value. The messages
//! are written by hand from the protocol's definition, so that an error in our definitions is not repeated here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use http::{Request as HttpRequest, Response as HttpResponse};
use parking_lot::{Condvar, Mutex};
use prost::Message;
use prost_types::Any;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// The time limit for an event; a passing test needs a second or two.
const PATIENCE: Duration = Duration::from_secs(60);
/// The type of the resources.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// `DiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryRequest {
    /// The version that the client has accepted.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// The client.
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    /// Names; none for all.
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    /// The type.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// The response that this is about.
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// The error of that response.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<RpcStatus>,
}

/// `Node`.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Its name.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its attributes.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<prost_types::Struct>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// The code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The description.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryResponse {
    /// The version of the snapshot.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// Its resources.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    /// Their type.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// The name of this response.
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// `RateLimitConfig`.
#[derive(Clone, PartialEq, Message)]
pub struct Config {
    /// The name of the resource.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The domain.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Its descriptors.
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<Descriptor>,
}

/// `RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Descriptor {
    /// The key of the entry.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value of the entry.
    #[prost(string, tag = "2")]
    pub value: String,
    /// The limit.
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<Policy>,
    /// The descriptors below.
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<Self>,
    /// Whether the limit only watches.
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
}

/// `RateLimitPolicy`.
#[derive(Clone, PartialEq, Message)]
pub struct Policy {
    /// The unit: 1 is a second, 2 a minute, 3 an hour, 4 a day.
    #[prost(int32, tag = "1")]
    pub unit: i32,
    /// The number of requests.
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
}

impl Config {
    /// A domain with these descriptors.
    pub fn new(domain: &str, descriptors: Vec<Descriptor>) -> Self {
        Self { name: domain.to_owned(), domain: domain.to_owned(), descriptors }
    }

    /// As a resource.
    pub fn any(&self) -> Any {
        Any { type_url: TYPE_URL.to_owned(), value: self.encode_to_vec() }
    }
}

impl Descriptor {
    /// A limit per day for every value of a key.
    pub fn daily(key: &str, requests_per_unit: u32) -> Self {
        let rate_limit = Some(Policy { unit: 4, requests_per_unit });
        Self { key: key.to_owned(), rate_limit, ..Self::default() }
    }
}

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Received {
    /// The number of its stream, from 0.
    pub stream: usize,
    /// The header fields of its stream.
    pub headers: HashMap<String, String>,
    /// The request.
    pub request: DiscoveryRequest,
}

impl Received {
    /// The error of a NACK; `None` for any other request.
    pub fn rejection(&self) -> Option<&str> {
        self.request.error_detail.as_ref().map(|status| &*status.message)
    }
}

/// The response of each stream.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    generation: u64,
    content: Option<Content>,
}

#[derive(Clone, Debug)]
enum Content {
    Resources(String, Vec<Any>),
    /// The beginning of a message, and the end of the stream.
    Half,
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    address: SocketAddr,
    shared: Arc<Shared>,
    snapshot: watch::Sender<Snapshot>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    changed: Condvar,
    streams: AtomicUsize,
}

impl ControlPlane {
    /// Starts a control plane without a snapshot on a port chosen by the kernel.
    pub fn start() -> Self {
        Self::start_with(None, None)
    }

    /// Starts one at the address of another that has ended, or on a port chosen by the kernel; plain or with TLS.
    pub fn start_with(address: Option<SocketAddr>, tls: Option<ServerTlsConfig>) -> Self {
        let (started, address_of) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::<Shared>::default();
        let snapshot = watch::Sender::new(Snapshot::default());
        let service = Ads { shared: Arc::clone(&shared), snapshot: snapshot.subscribe() };
        let address = address.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
            runtime.block_on(serve(service, address, tls, started, stopped));
        });
        let address = address_of.recv().unwrap_or_else(|error| panic!("the control plane did not start: {error}"));
        Self { address, shared, snapshot, stop: Some(stop), thread: Some(thread) }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends these domains to all clients.
    pub fn push(&self, version: &str, configs: &[Config]) {
        self.push_resources(version, configs.iter().map(Config::any).collect());
    }

    /// Sends these resources to all clients.
    pub fn push_resources(&self, version: &str, resources: Vec<Any>) {
        self.set(Content::Resources(version.to_owned(), resources));
    }

    /// From now on, every new stream gets half a message.
    pub fn push_half_messages(&self) {
        self.set(Content::Half);
    }

    fn set(&self, content: Content) {
        self.snapshot.send_modify(|snapshot| {
            *snapshot = Snapshot { generation: snapshot.generation + 1, content: Some(content) };
        });
    }

    /// The number of streams so far.
    pub fn streams(&self) -> usize {
        self.shared.streams.load(Ordering::SeqCst)
    }

    /// Everything that clients have sent.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().clone()
    }

    /// Waits until `find` returns a value for the requests.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut find: impl FnMut(&[Received]) -> Option<T>) -> T {
        let mut received = self.shared.received.lock();
        loop {
            if let Some(found) = find(&received) {
                return found;
            }
            if self.shared.changed.wait_for(&mut received, PATIENCE).timed_out() {
                panic!("{what} did not come; these did: {received:#?}");
            }
        }
    }

    /// Waits for the ACK of a version.
    #[track_caller]
    pub fn wait_for_ack(&self, version: &str) -> Received {
        let is_it = |each: &&Received| {
            let DiscoveryRequest { version_info, response_nonce, .. } = &each.request;
            version_info == version && !response_nonce.is_empty() && each.rejection().is_none()
        };
        self.wait_for(&format!("the ACK of {version}"), |all| all.iter().find(is_it).cloned())
    }

    /// Waits for the NACK with this number, from 0.
    #[track_caller]
    pub fn wait_for_nack(&self, number: usize) -> Received {
        let is_it = |each: &&Received| each.rejection().is_some();
        self.wait_for("a NACK", |all| all.iter().filter(is_it).nth(number).cloned())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Both fail harmlessly if the thread has already ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(
    service: Ads,
    address: SocketAddr,
    tls: Option<ServerTlsConfig>,
    started: std::sync::mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) {
    let listener = listen(address).unwrap_or_else(|error| panic!("no port: {error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
    if started.send(address).is_err() {
        return;
    }
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap_or_else(|error| panic!("no TLS: {error}"));
    }
    let served = server.add_service(service);
    tokio::select! {
        outcome = served.serve_with_incoming(TcpIncoming::from(listener)) => {
            outcome.unwrap_or_else(|error| panic!("the control plane failed: {error}"));
        }
        // Connections are cut, as when a controller is killed.
        _ = stopped => {}
    }
}

/// The port may still be in the state after its last connection.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

/// The service.
#[derive(Clone, Debug)]
struct Ads {
    shared: Arc<Shared>,
    snapshot: watch::Receiver<Snapshot>,
}

impl NamedService for Ads {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl Service<HttpRequest<Body>> for Ads {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let ads = self.clone();
        Box::pin(async move {
            if matches!(ads.snapshot.borrow().content, Some(Content::Half)) {
                ads.shared.streams.fetch_add(1, Ordering::SeqCst);
                return Ok(half_message());
            }
            let codec = ProstCodec::<DiscoveryResponse, DiscoveryRequest>::default();
            Ok(Grpc::new(codec).streaming(ads, request).await)
        })
    }
}

/// A response that announces a hundred bytes and has three.
fn half_message() -> HttpResponse<Body> {
    let mut response = HttpResponse::new(Body::new(String::from_utf8_lossy(b"\0\0\0\0\x64abc").into_owned()));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    response
}

type Responses = Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

impl StreamingService<DiscoveryRequest> for Ads {
    type Response = DiscoveryResponse;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Responses>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let Self { shared, mut snapshot } = self.clone();
        Box::pin(async move {
            let number = shared.streams.fetch_add(1, Ordering::SeqCst);
            let fields = request.metadata().clone().into_headers();
            let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = fields.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
            record(shared, number, headers, request.into_inner());
            snapshot.mark_changed();
            let responses = stream::unfold((snapshot, 0_u64), |(mut snapshot, nonce)| async move {
                loop {
                    snapshot.changed().await.ok()?;
                    let content = snapshot.borrow_and_update().content.clone();
                    let Some(Content::Resources(version_info, resources)) = content else { continue };
                    let type_url = TYPE_URL.to_owned();
                    let response =
                        DiscoveryResponse { version_info, resources, type_url, nonce: (nonce + 1).to_string() };
                    return Some((Ok(response), (snapshot, nonce + 1)));
                }
            });
            Ok(Response::new(responses.boxed() as Responses))
        })
    }
}

/// Records the requests of a stream in the background.
fn record(
    shared: Arc<Shared>,
    stream: usize,
    headers: HashMap<String, String>,
    mut requests: Streaming<DiscoveryRequest>,
) {
    tokio::spawn(async move {
        while let Ok(Some(request)) = requests.message().await {
            shared.received.lock().push(Received { stream, headers: headers.clone(), request });
            shared.changed.notify_all();
        }
    });
}
