//! A proxy between a client and a server that simulates network faults.
//!
//! It runs on its own thread with its own runtime, so a blocked or paused test does not slow it down. When
//! [`FaultProxy::set`] returns, the new mode applies to every byte that has not been forwarded yet.

mod carry;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::port::free as free_port;
use carry::Order;

/// The number of ports to try if another process takes the chosen one first.
const PORT_ATTEMPTS: u32 = 20;
/// The number of attempts to bind the port again after a cut, one per millisecond.
const BIND_ATTEMPTS: u32 = 10_000;

/// The behaviour of the proxy. All modes except [`Cut`](Mode::Cut) apply to open and new connections.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Every byte is forwarded at once.
    Pass,
    /// Each chunk waits this long, in each direction: an exchange takes twice as long.
    Delay(Duration),
    /// Every connection is reset, and new ones are refused.
    Cut,
    /// Connections are accepted and stay open, but no byte passes. As after a network outage, nothing is lost: the held
    /// bytes pass in the next mode.
    HalfOpen,
    /// This many bytes of replies pass on each connection, then it is closed.
    Truncate(usize),
    /// Bytes are sent one by one, with a pause after each.
    OneByte,
    /// These bytes are sent before the next reply, once on each connection.
    Inject(Vec<u8>),
    /// Requests pass, replies are dropped. A connection with dropped bytes is closed in the next mode, because a TCP
    /// stream cannot continue after a gap.
    DropReplies,
}

/// A running proxy. On drop, it resets its connections and ends.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    accepted: Arc<AtomicU64>,
    orders: Option<mpsc::UnboundedSender<Switch>>,
    thread: Option<JoinHandle<()>>,
}

/// A mode to change to, and a channel to confirm that it is in effect.
type Switch = (Mode, oneshot::Sender<()>);

impl FaultProxy {
    /// Starts a proxy on a random port for the server at `target`. It forwards everything.
    pub fn start(target: SocketAddr) -> Self {
        let listener = bind_somewhere();
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener without address: {error}"));
        let accepted = Arc::new(AtomicU64::new(0));
        let (orders, switches) = mpsc::unbounded_channel();
        let proxy = Running::new(address, target, Arc::clone(&accepted));
        let thread = thread::spawn(move || proxy.run(listener, switches));
        Self { address, accepted, orders: Some(orders), thread: Some(thread) }
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL for a client without TLS and password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Changes the mode and returns when it is in effect. Setting the same mode again restarts its counters.
    pub fn set(&self, mode: Mode) {
        let (done, holds) = oneshot::channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send((mode, done)).is_ok());
        assert!(sent && wait(holds), "the proxy has ended: see the panic of its thread");
    }
}

/// Waits for a message on any thread, inside or outside a runtime.
fn wait(holds: oneshot::Receiver<()>) -> bool {
    thread::scope(|scope| scope.spawn(|| holds.blocking_recv().is_ok()).join().unwrap_or(false))
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            // The panic message of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

/// The state of the proxy on its own thread.
struct Running {
    address: SocketAddr,
    target: SocketAddr,
    accepted: Arc<AtomicU64>,
    orders: watch::Sender<Order>,
    connections: JoinSet<()>,
}

impl Running {
    fn new(address: SocketAddr, target: SocketAddr, accepted: Arc<AtomicU64>) -> Self {
        let orders = watch::Sender::new(Order { number: 1, mode: Mode::Pass });
        Self { address, target, accepted, orders, connections: JoinSet::new() }
    }

    fn run(self, listener: std::net::TcpListener, switches: mpsc::UnboundedReceiver<Switch>) {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime for the proxy: {error}"));
        runtime
            .block_on(async { self.serve(TcpListener::from_std(listener)?, switches).await })
            .unwrap_or_else(|error: io::Error| panic!("the proxy failed: {error}"));
    }

    async fn serve(mut self, first: TcpListener, mut switches: mpsc::UnboundedReceiver<Switch>) -> io::Result<()> {
        let mut listener = Some(first);
        loop {
            tokio::select! {
                // Mode changes take precedence, so that a connection that arrives after a change sees the new mode.
                biased;
                switch = switches.recv() => {
                    let Some((mode, done)) = switch else { break };
                    listener = self.switch(mode, listener).await?;
                    // The receiver may already have been dropped.
                    let _ = done.send(());
                }
                client = accept(listener.as_ref()) => self.carry(client?),
                Some(_) = self.connections.join_next() => {}
            }
        }
        self.switch(Mode::Cut, listener).await.map(drop)
    }

    fn carry(&mut self, client: TcpStream) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        self.connections.spawn(carry::connection(client, self.target, self.orders.subscribe()));
    }

    /// Publishes the mode. For a cut, it then waits until all connections are closed.
    async fn switch(&mut self, mode: Mode, listener: Option<TcpListener>) -> io::Result<Option<TcpListener>> {
        let cut = mode == Mode::Cut;
        self.orders.send_modify(|order| *order = Order { number: order.number + 1, mode });
        if cut {
            drop(listener);
            while self.connections.join_next().await.is_some() {}
            return Ok(None);
        }
        match listener {
            Some(listener) => Ok(Some(listener)),
            None => bind_again(self.address).await.map(Some),
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

fn bind_somewhere() -> std::net::TcpListener {
    let bind = |_| {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).ok()?;
        listener.set_nonblocking(true).ok().map(|()| listener)
    };
    (0..PORT_ATTEMPTS)
        .find_map(bind)
        .unwrap_or_else(|| panic!("no port for the proxy after {PORT_ATTEMPTS} tries"))
}

/// Retries, because another test may briefly bind this port to check whether it is free.
async fn bind_again(address: SocketAddr) -> io::Result<TcpListener> {
    for _ in 1..BIND_ATTEMPTS {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            bound => return bound,
        }
    }
    TcpListener::bind(address).await
}
