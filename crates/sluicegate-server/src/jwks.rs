//! Fetches the key sets of issuers over HTTPS. The library parses them.
//!
//! The server is always verified, redirects are not followed, and the size of a response is bounded. No content of a
//! token leads here: the only URL comes from the configuration. The library decides when to fetch, how long to wait
//! and how to handle failures, which the log reports once and not per attempt.

mod address;
mod fetch_log;
mod url;

use std::fmt;
use std::time::Duration;

use axum::http::header::{ACCEPT, HeaderValue, USER_AGENT};
use axum::http::{Method, Request, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sluicegate::identify::token::{FetchFuture, FetchOutcome, JWKS_BYTES_MAX, KeySource, KeysError};

use crate::tls_client;
use address::Resolver;
use fetch_log::FetchLog;
pub(crate) use url::{JwksUrl, UrlProblem};

/// Fetches are minutes apart: a connection is kept only for a retry that follows at once.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// One remote key set.
pub(crate) struct HttpKeySource {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Empty<Bytes>>,
    url: JwksUrl,
    log: FetchLog,
}

impl fmt::Debug for HttpKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpKeySource({})", self.url)
    }
}

impl HttpKeySource {
    /// The set at this URL. The server must have a certificate from these authorities (PEM), or else from those of
    /// the system.
    pub(crate) fn new(url: JwksUrl, authorities: Option<&[u8]>) -> Result<Self, KeysError> {
        let tls = tls_client::key_set_client(url.is_encrypted(), authorities)?;
        let mut connector = HttpConnector::new_with_resolver(Resolver::new(url.is_local()));
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // The URL was validated for http when it was parsed.
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(1)
            .build(connector);
        let log = FetchLog::new(url.to_string());
        Ok(Self { client, url, log })
    }

    async fn get(&self) -> Result<String, KeysError> {
        let request = request(self.url.uri()).map_err(|error| KeysError::new(error.to_string()))?;
        let response = self.client.request(request).await.map_err(|error| KeysError::new(chain(&error)))?;
        match response.status() {
            StatusCode::OK => {}
            status if status.is_redirection() => {
                let status = status.as_u16();
                return Err(KeysError::new(format!(
                    "the answer is {status}, and redirects are not followed: configure the URL that it leads to"
                )));
            }
            status => return Err(KeysError::new(format!("the answer is {}", status.as_u16()))),
        }
        let body = Limited::new(response.into_body(), JWKS_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => KeysError::new(format!("the answer has more than {JWKS_BYTES_MAX} bytes")),
            None => KeysError::new(format!("the answer broke off: {error}")),
        })?;
        String::from_utf8(body.to_bytes().into()).map_err(|_| KeysError::new("the answer is not UTF-8"))
    }
}

impl KeySource for HttpKeySource {
    fn fetch(&self) -> FetchFuture<'_> {
        Box::pin(self.get())
    }

    fn observe(&self, outcome: &FetchOutcome) {
        self.log.record(outcome);
    }
}

fn request(uri: &Uri) -> Result<Request<Empty<Bytes>>, axum::http::Error> {
    Request::builder()
        .method(Method::GET)
        .uri(uri.clone())
        .header(ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"))
        .header(USER_AGENT, HeaderValue::from_static(concat!("sluicegate/", env!("CARGO_PKG_VERSION"))))
        .body(Empty::new())
}

/// The error with its causes: the outermost text alone says little.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = Vec::new();
    for text in causes.map(ToString::to_string) {
        if texts.last().is_none_or(|last| !last.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests;
