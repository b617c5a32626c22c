//! A small issuer: it signs tokens and publishes its keys over HTTP, and can be made to misbehave.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::{Value, json};
use sluicegate_testkit::redis_server::Certificates;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The `iss` of its tokens.
pub(super) const NAME: &str = "https://id.example";

/// A key of the issuer.
pub(super) struct Signer {
    key: EncodingKey,
    jwk: Value,
    kid: &'static str,
}

impl Signer {
    pub(super) fn new(kid: &'static str) -> Self {
        let pair = KeyPair::generate().expect("a key");
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key for ES256");
        let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&key, Algorithm::ES256).expect("a key to publish");
        let mut jwk = serde_json::to_value(jwk).expect("JSON");
        jwk["kid"] = kid.into();
        Self { key, jwk, kid }
    }

    /// A token that is valid until the year 2112.
    pub(super) fn token(&self, subject: &str) -> String {
        let header = Header { kid: Some(self.kid.to_owned()), ..Header::new(Algorithm::ES256) };
        let claims = json!({ "iss": NAME, "aud": "api", "sub": subject, "exp": 4_481_136_000_u64 });
        encode(&header, &claims, &self.key).expect("a token")
    }
}

type Body = BoxBody<Bytes, &'static str>;

/// The response of the issuer.
#[derive(Clone)]
pub(super) struct Answer {
    status: StatusCode,
    location: Option<String>,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Whole(Bytes),
    /// Chunks, without a total length.
    Endless,
}

impl Answer {
    pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, location: None, content: Content::Whole(body.into()) }
    }

    pub(super) fn keys(signers: &[&Signer]) -> Self {
        let keys: Vec<_> = signers.iter().map(|signer| signer.jwk.clone()).collect();
        Self::text(StatusCode::OK, json!({ "keys": keys }).to_string())
    }

    pub(super) fn redirect(status: StatusCode, location: &str) -> Self {
        Self { location: Some(location.to_owned()), ..Self::text(status, "") }
    }

    pub(super) fn endless() -> Self {
        Self { content: Content::Endless, ..Self::text(StatusCode::OK, "") }
    }

    fn response(self) -> Response<Body> {
        let piece = || Ok::<_, &'static str>(Frame::data(Bytes::from_static(&[b' '; 8_192])));
        let body = match self.content {
            Content::Whole(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed(),
            Content::Endless => BodyExt::boxed(StreamBody::new(stream::repeat_with(piece))),
        };
        let mut response = Response::builder().status(self.status);
        if let Some(location) = self.location {
            response = response.header("location", location);
        }
        response.body(body).expect("a response")
    }
}

struct State {
    answer: Answer,
    heads: Vec<String>,
}

/// A server that publishes keys, on a port of its own, until it is dropped.
pub(super) struct Issuer {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Issuer {
    /// Over HTTP.
    pub(super) async fn plain(answer: Answer) -> Self {
        Self::start("http", None, answer).await
    }

    /// Over HTTPS, with the server's certificate of these.
    pub(super) async fn with_tls(certificates: &Certificates, answer: Answer) -> Self {
        let chain = fs::read(certificates.server()).expect("a certificate");
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().expect("PEM");
        let key = fs::read(certificates.server_key()).expect("a key");
        let key = PrivateKeyDer::from_pem_slice(&key).expect("PEM");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate and its key");
        Self::start("https", Some(TlsAcceptor::from(Arc::new(config))), answer).await
    }

    /// How many requests came.
    pub(super) fn requests(&self) -> usize {
        self.state.lock().expect("not poisoned").heads.len()
    }

    /// The last request: its line and its fields.
    pub(super) fn last_head(&self) -> String {
        self.state.lock().expect("not poisoned").heads.last().expect("a request").clone()
    }

    /// Answers differently from now on.
    pub(super) fn answer(&self, answer: Answer) {
        self.state.lock().expect("not poisoned").answer = answer;
    }

    /// Stops listening, and returns the address that is now unused.
    pub(super) async fn stop(mut self) -> String {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.url.clone()
    }

    async fn start(scheme: &str, tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("{scheme}://{}/keys", listener.local_addr().expect("bound"));
        let state = Arc::new(Mutex::new(State { answer, heads: Vec::new() }));
        let task = tokio::spawn(accept(listener, tls, Arc::clone(&state)));
        Self { url, state, task }
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, state: Arc<Mutex<State>>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let Some(tls) = tls else { return serve(stream, state).await };
            // A client that rejects the certificate closes the connection.
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, state).await;
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(stream: S, state: Arc<Mutex<State>>) {
    let service = service_fn(|request: Request<Incoming>| {
        let mut head = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            let _ = writeln!(head, "{name}: {}", value.to_str().unwrap_or("?"));
        }
        let mut state = state.lock().expect("not poisoned");
        state.heads.push(head);
        let response = state.answer.clone().response();
        async { Ok::<_, Infallible>(response) }
    });
    // A client may close the connection at any time.
    let _ = auto::Builder::new(TokioExecutor::new())
        .http1_only()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
