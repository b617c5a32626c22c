//! gRPC over a number of connections, each with a number of calls in flight: messages are encoded before the clock starts,
//! and of the responses only the decision is parsed.

use super::{Answers, Load, Until};
use crate::core_bench::now;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, TE};
use hyper::{Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

type Sender = SendRequest<Full<Bytes>>;

/// The bytes of a frame before the message: the compression flag and the length.
const HEAD_BYTES: usize = 5;
/// The first field of a message with the value 1: `OK` in Envoy's response, `true` in throttlecrab's.
const YES: &[u8] = &[0x08, 0x01];

/// The frame of a message.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// Makes one call and returns the message of the response.
pub(crate) fn answer(address: SocketAddr, path: &str, message: &[u8]) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let (mut sender, uri) = (connect(address).await?, uri(address, path)?);
        let answer = call(&mut sender, &uri, frame(message).into()).await?;
        Ok(answer.get(HEAD_BYTES..).ok_or("an answer without a message")?.to_vec())
    })
}

/// Starts a task for each call that is to be in flight.
pub(super) async fn start(
    (address, path): (SocketAddr, &str),
    load: &Load,
    until: &Until,
    tasks: &mut JoinSet<Result<Answers, String>>,
) -> Result<(), String> {
    let messages: Rc<[Bytes]> = load.batches.iter().map(|batch| Bytes::copy_from_slice(batch)).collect();
    let uri = uri(address, path)?;
    for connection in 0..load.connections {
        let sender = connect(address).await?;
        for stream in 0..load.depth {
            let first = connection * load.depth + stream;
            let caller = Caller { sender: sender.clone(), uri: uri.clone(), first };
            tasks.spawn_local(caller.run(Rc::clone(&messages), until.clone()));
        }
    }
    Ok(())
}

/// One call after the other.
struct Caller {
    sender: Sender,
    uri: Uri,
    /// The index of its first message.
    first: usize,
}

impl Caller {
    async fn run(mut self, messages: Rc<[Bytes]>, until: Until) -> Result<Answers, String> {
        let mut answers = Answers::none()?;
        let mut step = self.first * 7_919;
        while !until.is_over(1) {
            let sent = now();
            let answer = call(&mut self.sender, &self.uri, messages[step % messages.len()].clone()).await?;
            answers.answered += 1;
            answers.allowed += u64::from(answer.get(HEAD_BYTES..).is_some_and(|message| message.starts_with(YES)));
            let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            answers.micros.saturating_record(micros);
            step += 1;
        }
        Ok(answers)
    }
}

async fn connect(address: SocketAddr) -> Result<Sender, String> {
    let broken = |error: &dyn std::error::Error| format!("the connection to {address}: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| broken(&error))?;
    stream.set_nodelay(true).map_err(|error| broken(&error))?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| broken(&error))?;
    tokio::spawn(connection);
    Ok(sender)
}

fn uri(address: SocketAddr, path: &str) -> Result<Uri, String> {
    format!("http://{address}{path}").parse().map_err(|error| format!("{path}: {error}"))
}

/// Makes one call and returns the frame of the response.
async fn call(sender: &mut Sender, uri: &Uri, frame: Bytes) -> Result<Bytes, String> {
    let broken = |error: hyper::Error| format!("a call of {uri}: {error}");
    let request = Request::post(uri.clone()).header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
    let request = request.body(Full::new(frame)).map_err(|error| error.to_string())?;
    sender.ready().await.map_err(broken)?;
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = body.collect().await.map_err(broken)?;
    let fields = body.trailers().unwrap_or(&head.headers);
    match fields.get("grpc-status") {
        Some(status) if status == "0" => Ok(body.to_bytes()),
        _ => Err(format!("{uri} answered {} with {fields:?}", head.status)),
    }
}
