//! Whole listeners over real sockets: the cap, the backlog, the drain.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::{ConnectionAdmission, Drained, Listener, serve};
use sluicegate::identify::address::TrustedProxies;
use tokio_util::sync::CancellationToken;

use super::*;

const ASK: &[u8] = b"GET /ok HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";

/// Short, so that a failing test ends soon; no passing test waits for one of these.
fn options() -> ListenerOptions {
    ListenerOptions { drain_quiet: Duration::ZERO, ..ListenerOptions::default() }
}

struct Running {
    address: SocketAddr,
    drain: CancellationToken,
    drained: JoinHandle<Drained>,
}

async fn start(router: Router, options: ListenerOptions) -> Running {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind("api", address).await.expect("a free port");
    let address = listener.address();
    let drain = CancellationToken::new();
    let drained = tokio::spawn(serve(listener, HttpEndpoint::from(router), options, drain.clone()));
    Running { address, drain, drained }
}

async fn send(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(ASK).await.expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn at_the_cap_connections_wait_and_are_served_later() {
    const CAP: usize = 3;
    let (open, most_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let all_slots_used = Arc::new(Barrier::new(CAP));
    let handler = {
        let most_open = Arc::clone(&most_open);
        async move || {
            most_open.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            all_slots_used.wait().await;
            // A connection above the cap would run here.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            open.fetch_sub(1, Ordering::SeqCst);
            "fine!"
        }
    };
    let router = Router::new().route("/ok", get(handler));
    let connections_max = NonZeroU32::new(CAP as u32).expect("not zero");
    let running = start(router, ListenerOptions { connections_max, ..options() }).await;

    let mut clients = JoinSet::new();
    for _ in 0..CAP * 10 {
        clients.spawn(send(running.address));
    }
    for answer in clients.join_all().await {
        assert!(answer.ends_with("fine!"), "{answer}");
    }
    assert_eq!(most_open.load(Ordering::SeqCst), CAP);
}

#[tokio::test]
async fn a_silent_connection_gives_its_slot_to_the_next() {
    let options =
        ListenerOptions { connections_max: NonZeroU32::MIN, first_byte: Duration::from_millis(50), ..options() };
    let running = start(router(), options).await;
    let _silent = TcpStream::connect(running.address).await.expect("connects");
    assert!(send(running.address).await.ends_with("fine!"));
}

#[tokio::test]
async fn a_drain_without_connections_ends_at_once_and_frees_the_port() {
    let running = start(router(), options()).await;
    assert!(send(running.address).await.ends_with("fine!"));
    running.drain.cancel();
    let drained = running.drained.await.expect("the task ends");
    assert_eq!(drained, Drained { connections_cut: 0 });
    assert!(TcpStream::connect(running.address).await.is_err(), "nobody listens any more");
}

/// The client sees an open connection, although the listener has not accepted it.
#[tokio::test]
async fn a_connection_in_the_backlog_is_served_before_the_drain_ends() {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind("api", address).await.expect("a free port");
    let mut client = TcpStream::connect(listener.address()).await.expect("connects");
    client.write_all(ASK).await.expect("sends");
    let drain = CancellationToken::new();
    drain.cancel();
    let drained = serve(listener, endpoint(), ListenerOptions::default(), drain).await;
    assert_eq!(drained, Drained { connections_cut: 0 });
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("fine!"), "{answer}");
}

#[tokio::test]
async fn connections_beyond_the_drain_deadline_are_cut_and_counted() {
    let running = start(router(), ListenerOptions { drain: Duration::ZERO, ..options() }).await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let mut client = TcpStream::connect(running.address).await.expect("connects");
        // The response to the first request shows that the connection is served; the second never
        // ends.
        client
            .write_all(b"GET /ok HTTP/1.1\r\nhost: t\r\n\r\nGET /never HTTP/1.1\r\nhost: t\r\n\r\n")
            .await
            .expect("sends");
        stuck.push(client);
    }
    for client in &mut stuck {
        let mut byte = [0];
        client.read_exact(&mut byte).await.expect("an answer begins");
    }
    running.drain.cancel();
    let drained = running.drained.await.expect("the task ends");
    assert_eq!(drained, Drained { connections_cut: 3 });
    for mut client in stuck {
        let mut rest = Vec::new();
        // The end may be clean or a reset.
        let _ = client.read_to_end(&mut rest).await;
    }
}

/// The drain does not wait for a peer that must send a PROXY header and does not.
#[tokio::test]
async fn a_connection_in_admission_is_cut_at_the_drain_deadline() {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let proxies = TrustedProxies::parse(["127.0.0.1"]).expect("a network");
    let admission =
        ConnectionAdmission::new(NonZeroU32::MIN, TrustedProxies::default()).with_proxy_protocol(proxies);
    let listener = Listener::bind("api", address).await.expect("a free port").with_admission(admission);
    let mut client = TcpStream::connect(listener.address()).await.expect("connects");
    let drain = CancellationToken::new();
    drain.cancel();
    let options = ListenerOptions { drain: Duration::ZERO, ..options() };
    assert_eq!(serve(listener, endpoint(), options, drain).await, Drained { connections_cut: 1 });
    assert_eq!(client.read(&mut [0]).await.expect("a clean end"), 0);
}

#[tokio::test]
async fn a_port_in_use_is_explained() {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let first = Listener::bind("api", address).await.expect("a free port");
    let error = Listener::bind("admin", first.address()).await.expect_err("in use").to_string();
    let expected = format!(
        "cannot listen on {} for admin: the port is in use; stop what uses it, or choose another \
         with --admin 127.0.0.1:PORT (0 takes a free one) or --admin off",
        first.address()
    );
    assert_eq!(error, expected);
}

#[tokio::test]
async fn an_address_of_another_machine_is_explained() {
    let address = SocketAddr::from(([192, 0, 2, 1], 8081));
    let error = Listener::bind("api", address).await.expect_err("not ours").to_string();
    assert!(error.contains("this machine has no such address"), "{error}");
    assert!(error.contains("--api ADDRESS:8081"), "{error}");
}
