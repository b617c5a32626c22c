//! One connection through the proxy: reading, forwarding and closing.
//!
//! There is no await between reading the mode and writing, and everything of one proxy runs on one thread. A mode is
//! therefore in effect from the moment it is set.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::Mode;

/// A mode with a sequence number, so that setting the same mode twice is two orders.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) number: u64,
    pub(super) mode: Mode,
}

const BETWEEN_BYTES: Duration = Duration::from_micros(50);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

/// Forwards bytes until one side closes, the mode closes the connection, or the connection is cut.
pub(super) async fn connection(mut client: TcpStream, target: SocketAddr, orders: watch::Receiver<Order>) {
    let mut cuts = orders.clone();
    let cut = tokio::select! {
        biased;
        // The sender is dropped only when the whole proxy ends.
        _ = cuts.wait_for(|order| order.mode == Mode::Cut) => true,
        // However a connection ends, the end is forwarded to the other side.
        _ = exchange(&mut client, target, orders) => false,
    };
    if cut {
        // Close with a reset instead of a FIN. If setting the option fails, the socket is already closed.
        let _ = client.set_zero_linger();
    }
}

async fn exchange(
    client: &mut TcpStream,
    target: SocketAddr,
    mut orders: watch::Receiver<Order>,
) -> io::Result<()> {
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    orders.wait_for(|order| order.mode != Mode::HalfOpen).await.map_err(gone)?;
    let mut server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        ended = Stream::new(Direction::Requests, to_server, orders.clone()).carry(from_client) => ended,
        ended = Stream::new(Direction::Replies, to_client, orders.clone()).carry(from_server) => ended,
    }
}

/// One direction of a connection.
struct Stream<'a> {
    direction: Direction,
    to: WriteHalf<'a>,
    orders: watch::Receiver<Order>,
    /// The number of the order that the following three fields belong to.
    number: u64,
    passed: usize,
    injected: bool,
    /// Whether bytes were dropped. No further byte may follow them.
    has_hole: bool,
    /// Bytes read but not yet forwarded.
    held: Vec<u8>,
}

enum Next {
    /// Read the order again, and continue under it.
    GoOn,
    /// Close the connection.
    Close,
}

impl<'a> Stream<'a> {
    fn new(direction: Direction, to: WriteHalf<'a>, orders: watch::Receiver<Order>) -> Self {
        Self { direction, to, orders, number: 0, passed: 0, injected: false, has_hole: false, held: Vec::new() }
    }

    async fn carry(mut self, mut from: ReadHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let order = self.orders.borrow_and_update().clone();
            if !self.obey(&order) {
                return Ok(());
            }
            if order.mode == Mode::HalfOpen {
                self.changed().await?;
            } else if self.held.is_empty() {
                tokio::select! {
                    changed = self.orders.changed() => changed.map_err(|_| io::ErrorKind::BrokenPipe)?,
                    count = from.read(&mut buffer) => match count? {
                        0 => return Ok(()),
                        count => self.held.extend_from_slice(&buffer[..count]),
                    },
                }
            } else if let Next::Close = self.pass_on(&order.mode).await? {
                return Ok(());
            }
        }
    }

    /// Restarts the counters under a new order. Returns false if the connection cannot continue under it.
    fn obey(&mut self, order: &Order) -> bool {
        if self.number != order.number {
            if self.has_hole {
                return false;
            }
            self.number = order.number;
            self.passed = 0;
            self.injected = false;
        }
        true
    }

    async fn changed(&mut self) -> io::Result<()> {
        self.orders.changed().await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn pass_on(&mut self, mode: &Mode) -> io::Result<Next> {
        match (mode, self.direction) {
            (Mode::Delay(time), _) => {
                let waited = tokio::time::timeout(*time, self.orders.changed()).await;
                if waited.is_ok() {
                    // The order changed: the new one applies to the held bytes.
                    return Ok(Next::GoOn);
                }
            }
            (Mode::OneByte, _) => return self.one_byte().await,
            (Mode::Truncate(limit), Direction::Replies) => return self.truncated(*limit).await,
            (Mode::Inject(bytes), Direction::Replies) if !self.injected => {
                self.injected = true;
                self.to.write_all(bytes).await?;
            }
            (Mode::DropReplies, Direction::Replies) => {
                self.has_hole = true;
                self.held.clear();
                return Ok(Next::GoOn);
            }
            _ => {}
        }
        self.to.write_all(&self.held).await?;
        self.held.clear();
        Ok(Next::GoOn)
    }

    async fn one_byte(&mut self) -> io::Result<Next> {
        let byte = self.held.remove(0);
        self.to.write_all(&[byte]).await?;
        // Long enough for a waiting reader to wake up and receive a single byte, and far shorter than the resolution of
        // the runtime's timer. It blocks only the thread of this proxy.
        std::thread::sleep(BETWEEN_BYTES);
        tokio::task::yield_now().await;
        Ok(Next::GoOn)
    }

    async fn truncated(&mut self, limit: usize) -> io::Result<Next> {
        let count = self.held.len().min(limit - self.passed);
        self.to.write_all(&self.held[..count]).await?;
        self.held.drain(..count);
        self.passed += count;
        Ok(if self.passed == limit { Next::Close } else { Next::GoOn })
    }
}
