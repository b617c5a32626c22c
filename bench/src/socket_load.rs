//! A closed loop over real sockets: a number of connections that each send the next batch when the previous one completes, with
//! requests that are encoded before the clock starts.
//!
//! Everything runs on the calling thread, so that the load comes from one core.

pub(crate) mod grpc;
mod http_reply;

use crate::core_bench::now;
use crate::redis_bench::raw;
use hdrhistogram::Histogram;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

/// Enough for the replies to a whole batch in most reads.
const READ_BYTES: usize = 16_384;

/// The requests, and the format of their replies.
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Each is one write; connections take them in turn.
    pub(crate) batches: Vec<Vec<u8>>,
    /// Requests per batch; in gRPC, calls in flight per connection.
    pub(crate) depth: usize,
    pub(crate) protocol: Protocol,
}

/// The protocol of the replies.
#[derive(Clone, Copy)]
pub(crate) enum Protocol {
    Http,
    Resp,
    /// Calls of the method at this path.
    Grpc(&'static str),
}

/// The result.
pub(crate) struct Answers {
    pub(crate) answered: u64,
    /// The number of allowed requests.
    pub(crate) allowed: u64,
    /// The latency of a batch.
    pub(crate) micros: Histogram<u64>,
}

/// The condition at which connections stop.
#[derive(Clone)]
enum Until {
    Past(Instant),
    /// This many replies on all connections together; requests in flight are completed.
    Asked(Rc<Cell<u64>>),
}

impl Until {
    fn is_over(&self, depth: usize) -> bool {
        match self {
            Self::Past(instant) => now() >= *instant,
            Self::Asked(left) => {
                let is_over = left.get() == 0;
                left.set(left.get().saturating_sub(depth as u64));
                is_over
            }
        }
    }
}

/// Runs the load for the given time.
pub(crate) fn drive(address: SocketAddr, load: &Load, lasts: Duration) -> Result<Answers, String> {
    drive_until(address, load, &Until::Past(now() + lasts))
}

/// Runs the load for this many requests.
pub(crate) fn ask(address: SocketAddr, load: &Load, requests: u64) -> Result<Answers, String> {
    drive_until(address, load, &Until::Asked(Rc::new(Cell::new(requests))))
}

fn drive_until(address: SocketAddr, load: &Load, until: &Until) -> Result<Answers, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    LocalSet::new().block_on(&runtime, async {
        let mut tasks = JoinSet::new();
        match load.protocol {
            Protocol::Http => start(address, load, until, http_reply::take, &mut tasks),
            Protocol::Resp => start(address, load, until, take_resp, &mut tasks),
            Protocol::Grpc(path) => grpc::start((address, path), load, until, &mut tasks).await?,
        }
        gathered(tasks).await
    })
}

/// Starts a task for each connection.
fn start(
    address: SocketAddr,
    load: &Load,
    until: &Until,
    take: TakeReplies,
    tasks: &mut JoinSet<Result<Answers, String>>,
) {
    let batches: Rc<[Vec<u8>]> = load.batches.clone().into();
    for first in 0..load.connections {
        let caller = Caller { address, depth: load.depth, take, first };
        tasks.spawn_local(caller.run(Rc::clone(&batches), until.clone()));
    }
}

async fn gathered(mut tasks: JoinSet<Result<Answers, String>>) -> Result<Answers, String> {
    let mut all = Answers::none()?;
    while let Some(found) = tasks.join_next().await {
        let found = found.map_err(|error| error.to_string())??;
        all.answered += found.answered;
        all.allowed += found.allowed;
        all.micros.add(&found.micros).map_err(|error| error.to_string())?;
    }
    Ok(all)
}

impl Answers {
    fn none() -> Result<Self, String> {
        let micros = Histogram::new_with_bounds(1, 60_000_000, 3).map_err(|error| error.to_string())?;
        Ok(Self { answered: 0, allowed: 0, micros })
    }
}

/// One connection.
struct Caller {
    address: SocketAddr,
    depth: usize,
    take: TakeReplies,
    /// The index of its first batch.
    first: usize,
}

impl Caller {
    async fn run(self, batches: Rc<[Vec<u8>]>, until: Until) -> Result<Answers, String> {
        let broken = |error: std::io::Error| format!("the connection to {}: {error}", self.address);
        let mut connection = TcpStream::connect(self.address).await.map_err(broken)?;
        connection.set_nodelay(true).map_err(broken)?;
        let (mut answers, mut inbox) = (Answers::none()?, Vec::with_capacity(READ_BYTES));
        // Connections start far apart, so that they do not send the same requests.
        let mut step = self.first * 7_919;
        while !until.is_over(self.depth) {
            let sent = now();
            connection.write_all(&batches[step % batches.len()]).await.map_err(broken)?;
            let mut missing = self.depth;
            while missing > 0 {
                if connection.read_buf(&mut inbox).await.map_err(broken)? == 0 {
                    return Err(format!("{} closed the connection", self.address));
                }
                let (taken, allowed) = (self.take)(&mut inbox)?;
                missing = missing.checked_sub(taken).ok_or("more replies than requests")?;
                answers.allowed += allowed as u64;
            }
            answers.answered += self.depth as u64;
            let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            answers.micros.saturating_record(micros);
            step += 1;
        }
        Ok(answers)
    }
}

/// Removes all complete replies from the buffer; returns their number and how many of them allow the request.
type TakeReplies = fn(&mut Vec<u8>) -> Result<(usize, usize), String>;

/// An error is not a reply: every reply counts as allowed.
fn take_resp(inbox: &mut Vec<u8>) -> Result<(usize, usize), String> {
    raw::take_replies(inbox).map(|count| (count, count))
}
