//! One connection through the proxy: what it reads, what it passes on, when it ends.
//!
//! Between looking at the mode and writing there is no waiting, and everything of one proxy runs on one
//! thread: so a mode holds from the moment it was set.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::Mode;

/// A mode with its number: the same mode set twice is two orders.
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

/// Carries bytes until one side closes, the mode closes the connection, or it is cut.
pub(super) async fn connection(mut client: TcpStream, target: SocketAddr, orders: watch::Receiver<Order>) {
    let mut cuts = orders.clone();
    let cut = tokio::select! {
        biased;
        // The sender has gone only when the whole proxy goes.
        _ = cuts.wait_for(|order| order.mode == Mode::Cut) => true,
        // However a connection ends, the other side sees it end.
        _ = exchange(&mut client, target, orders) => false,
    };
    if cut {
        // Closed with a reset instead of a farewell; where that fails it is already closed.
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
    /// The order under which the following three were counted.
    number: u64,
    passed: usize,
    injected: bool,
    /// Bytes were thrown away: no further byte may follow them.
    has_hole: bool,
    /// Read, and not yet passed on.
    held: Vec<u8>,
}

enum Next {
    /// Look at the order again, and read or pass on by it.
    GoOn,
    /// The connection ends here.
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

    /// Starts counting anew under a new order; false when the connection cannot go on under it.
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
                    // The order changed: what is held goes by the new one.
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
        // Long enough for a waiting reader to wake and meet a single byte, and far shorter than the runtime's
        // timer can wait. Only this proxy's thread stands still.
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
