//! limitador's library behind the same minimal hyper server that the benchmark uses as the ceiling. Its own server is not in the
//! registry, so this represents it: the request is that of its `POST /check_and_report`, and the response is smaller
//! than its own.
//!
//! The arguments are a store, `memory` or the URL of a Redis, and the limit of the namespace `exact`. It prints its
//! address, then `ready`.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use limitador::limit::{Context, Limit};
use limitador::storage::redis::AsyncRedisStorage;
use limitador::{AsyncRateLimiter, CheckResult, RateLimiter};
use std::collections::HashMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

type Failure = Box<dyn Error + Send + Sync>;

/// The number of counters in memory: more than the benchmark has identities.
const COUNTERS_MAX: u64 = 1_000_000;
/// The limit of the namespace in which no request is denied.
const OPEN_LIMIT: u64 = 1_000_000_000;
const WINDOW_SECS: u64 = 3_600;

/// The two kinds of limiters that the library has.
enum Limiter {
    Memory(RateLimiter),
    Redis(AsyncRateLimiter),
}

/// The request.
#[derive(serde::Deserialize)]
struct Check {
    namespace: String,
    values: HashMap<String, String>,
    delta: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, exact_limit] = arguments.as_slice() else {
        eprintln!("usage: limitador-in-hyper memory|redis://ADDRESS LIMIT");
        return ExitCode::FAILURE;
    };
    match run(store, exact_limit) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(store: &str, exact_limit: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let limiter = Arc::new(Limiter::new(store, exact_limit.parse()?).await?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        eprintln!("listening http {}\nready", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(converse(stream, Arc::clone(&limiter)));
        }
    })
}

async fn converse(stream: TcpStream, limiter: Arc<Limiter>) {
    let respond = service_fn(move |request| {
        let limiter = Arc::clone(&limiter);
        async move { respond(&limiter, request).await }
    });
    // A client that disconnects does not matter here.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), respond).await;
}

async fn respond(limiter: &Limiter, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, String> {
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let check: Check = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let is_limited = limiter.check(check).await?.limited;
    let mut response = Response::new(Full::new(Bytes::from_static(b"null")));
    if is_limited {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    Ok(response)
}

impl Limiter {
    async fn new(store: &str, exact_limit: u64) -> Result<Self, Failure> {
        let limiter = match store {
            "memory" => Self::Memory(RateLimiter::new(COUNTERS_MAX)),
            url => Self::Redis(AsyncRateLimiter::new_with_storage(Box::new(AsyncRedisStorage::new(url).await?))),
        };
        for (namespace, limit) in [("open", OPEN_LIMIT), ("exact", exact_limit)] {
            let limit = Limit::new(namespace, limit, WINDOW_SECS, vec![], vec!["identifier".try_into()?]);
            match &limiter {
                Self::Memory(limiter) => limiter.add_limit(limit),
                Self::Redis(limiter) => limiter.add_limit(limit),
            };
        }
        Ok(limiter)
    }

    async fn check(&self, check: Check) -> Result<CheckResult, String> {
        let Check { namespace, values, delta } = check;
        let (namespace, context) = (namespace.into(), Context::from(values));
        let result = match self {
            Self::Memory(limiter) => limiter.check_rate_limited_and_update(&namespace, &context, delta),
            Self::Redis(limiter) => limiter.check_rate_limited_and_update(&namespace, &context, delta).await,
        };
        // Its errors may not be `Send`.
        result.map_err(|error| error.to_string())
    }
}
