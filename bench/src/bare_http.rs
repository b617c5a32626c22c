//! The least that an HTTP server can do for a check: read the body of a POST and answer a text that never changes.
//! It is the ceiling for everything that also decides. A process of its own, started by the benchmark.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::Ipv4Addr;
use tokio::net::{TcpListener, TcpStream};

/// Answers `answer` to everything until it is killed.
pub(crate) fn serve(answer: &str) -> Result<(), String> {
    // As many threads as our server has: one for each core that the process may use.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(accept(Bytes::copy_from_slice(answer.as_bytes()))).map_err(|error| error.to_string())
}

async fn accept(answer: Bytes) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    eprintln!("listening http {}\nready", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(converse(stream, answer.clone()));
    }
}

async fn converse(stream: TcpStream, answer: Bytes) {
    let respond = service_fn(move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            request.into_body().collect().await?;
            let mut response = Response::new(Full::new(answer));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok::<_, hyper::Error>(response)
        }
    });
    // A client that goes away is no concern of ours.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), respond).await;
}
