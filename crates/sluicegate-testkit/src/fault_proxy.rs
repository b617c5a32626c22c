//! A proxy between a client and a server that breaks their connection in the ways networks do.
//!
//! It runs on a thread and a runtime of its own, so a blocked or paused test does not slow it down. When
//! [`FaultProxy::set`] returns, the new mode holds for every byte that has not been passed on yet.

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

/// How often another port is tried when somebody took the chosen one first.
const PORT_ATTEMPTS: u32 = 20;
/// How often a port is bound again after a cut, one try each millisecond.
const BIND_ATTEMPTS: u32 = 10_000;

/// What the proxy does. All but [`Cut`](Mode::Cut) hold for the connections that live and for new ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Every byte is passed on at once.
    Pass,
    /// Each chunk waits this long, in each direction: an exchange takes twice as long.
    Delay(Duration),
    /// Every connection is reset, and new ones are refused.
    Cut,
    /// Connections are accepted and stay open, and not one byte passes. As after a network that comes back,
    /// nothing is lost: what was held back passes in the next mode.
    HalfOpen,
    /// The next so many bytes of replies pass on each connection, then it is closed.
    Truncate(usize),
    /// Each byte travels alone.
    OneByte,
    /// These bytes come before the next reply, once on each connection.
    Inject(Vec<u8>),
    /// Requests pass, replies are lost. A connection that lost some is closed in the next mode: TCP never goes
    /// on behind a hole.
    DropReplies,
}

/// A running proxy; dropped, it resets its connections and ends.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    accepted: Arc<AtomicU64>,
    orders: Option<mpsc::UnboundedSender<Switch>>,
    thread: Option<JoinHandle<()>>,
}

/// A mode to change to, and whom to tell when it holds.
type Switch = (Mode, oneshot::Sender<()>);

impl FaultProxy {
    /// A proxy on a random port before the server at `target`, passing everything on.
    pub fn start(target: SocketAddr) -> Self {
        let listener = bind_somewhere();
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener without address: {error}"));
        let accepted = Arc::new(AtomicU64::new(0));
        let (orders, switches) = mpsc::unbounded_channel();
        let proxy = Running::new(address, target, Arc::clone(&accepted));
        let thread = thread::spawn(move || proxy.run(listener, switches));
        Self { address, accepted, orders: Some(orders), thread: Some(thread) }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port on which clients connect.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What a client without TLS and password connects to.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How many connections have been accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Changes the mode and returns when it holds. The same mode again starts its counting anew.
    pub fn set(&self, mode: Mode) {
        let (done, holds) = oneshot::channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send((mode, done)).is_ok());
        assert!(sent && wait(holds), "the proxy has ended: see the panic of its thread");
    }
}

/// Waits for a message on any thread, inside a runtime or not.
fn wait(holds: oneshot::Receiver<()>) -> bool {
    thread::scope(|scope| scope.spawn(|| holds.blocking_recv().is_ok()).join().unwrap_or(false))
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// The proxy's own side.
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
                // A new mode first: a connection that arrives after it must see it.
                biased;
                switch = switches.recv() => {
                    let Some((mode, done)) = switch else { break };
                    listener = self.switch(mode, listener).await?;
                    // Whoever asked may have gone.
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

    /// Gives the order, and for a cut waits until nothing is left of what there was.
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

/// Another test may look for a moment whether this port is free.
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
