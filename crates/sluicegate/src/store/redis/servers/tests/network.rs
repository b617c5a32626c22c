//! Networks that cut, delay, cripple and swallow.

use super::*;
use sluicegate_testkit::fault_proxy::{FaultProxy, Mode};
use std::num::NonZeroUsize;

struct Setting {
    server: RedisServer,
    proxy: FaultProxy,
    servers: Arc<Servers>,
}

async fn setting() -> Setting {
    setting_with_probes_that_wait(PATIENCE).await
}

/// The server was probed when this returns, and is not for most of a second.
async fn setting_with_probes_that_wait(read_timeout: Duration) -> Setting {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let servers = start(&options(&proxy.url()).connect_timeout(PATIENCE).read_timeout(read_timeout));
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 1);
    servers.ready(PATIENCE).await.expect("ready");
    Setting { server, proxy, servers }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_in_single_bytes_are_put_together() {
    let Setting { proxy, servers, server: _running } = setting().await;
    proxy.set(Mode::OneByte);
    for expected in 2..20 {
        assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_cut_short_is_no_reply() {
    let Setting { server, proxy, servers } = setting().await;
    for length in [0, 1, 5, 12] {
        servers.ready(PATIENCE).await.expect("ready");
        proxy.set(Mode::Truncate(length));
        let result = count(&servers, "key", PATIENCE).await;
        let class = class(&result);
        assert!(matches!(class, Some(ErrorClass::Connection | ErrorClass::Protocol)), "{length}: {result:?}");
        proxy.set(Mode::Pass);
        until(&servers, "key", Result::is_ok).await;
    }
    assert!(stored(&server, "key") >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_of_somebody_else_ends_the_connection() {
    for foreign in [&b"$14\r\n1 1700000000 1\r\n"[..], b"+PONG\r\n", b":1\r\n", b"*1\r\n:1\r\n", b"$-1\r\n"] {
        let Setting { proxy, servers, server: _running } = setting().await;
        proxy.set(Mode::Inject(foreign.to_vec()));
        let result = count(&servers, "key", PATIENCE).await;
        // On a slow machine the probe may have got the foreign reply, and the call only the end of the connection.
        let class = class(&result);
        assert!(matches!(class, Some(ErrorClass::Protocol | ErrorClass::Connection)), "{result:?}");
        proxy.set(Mode::Pass);
        poll::until_true("the connection is given up", PATIENCE, || counts(&servers).lost > 0);
        until(&servers, "key", Result::is_ok).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_protocol_end_the_connection() {
    let Setting { proxy, servers, server: _running } = setting().await;
    proxy.set(Mode::Inject(b"\0garbage\r\n".to_vec()));
    let result = count(&servers, "key", PATIENCE).await;
    assert!(matches!(class(&result), Some(ErrorClass::Protocol | ErrorClass::Connection)), "{result:?}");
    proxy.set(Mode::Pass);
    until(&servers, "key", Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_in_silence_is_noticed_without_any_call() {
    let Setting { proxy, servers, server: _running } =
        setting_with_probes_that_wait(Duration::from_millis(200)).await;
    proxy.set(Mode::HalfOpen);
    poll::until_true("noticed", PATIENCE, || !servers.health().is_up());
    proxy.set(Mode::Pass);
    until(&servers, "key", Result::is_ok).await;
    until_up(&servers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_in_silence_are_given_up_together() {
    let (server, read_timeout) = (RedisServer::start(), Duration::from_millis(500));
    let proxy = FaultProxy::start(server.address());
    let many = options(&proxy.url()).connections(NonZeroUsize::new(8).unwrap());
    let servers = start(&many.connect_timeout(PATIENCE).read_timeout(read_timeout));
    servers.ready(PATIENCE).await.expect("ready");
    proxy.set(Mode::HalfOpen);
    poll::until_true("one is given up", PATIENCE, || counts(&servers).lost > 0);
    let started = Instant::now();
    poll::until_true("all are given up", PATIENCE, || counts(&servers).lost == 8);
    // One after the other, each of the others would have been waited for.
    assert!(started.elapsed() < read_timeout * 3, "the last was given up after {:?}", started.elapsed());
    proxy.set(Mode::Pass);
    until(&servers, "key", Result::is_ok).await;
    until_up(&servers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_was_cut_is_used_again_when_it_is_back() {
    let Setting { proxy, servers, server: _running } = setting().await;
    proxy.set(Mode::Cut);
    until(&servers, "key", |result| class(result) == Some(ErrorClass::Open)).await;
    proxy.set(Mode::Pass);
    let recovered = until(&servers, "key", Result::is_ok).await;
    assert!(recovered < Duration::from_secs(2), "recovered after {recovered:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_fate_is_unknown_is_sent_again_only_if_it_may_be() {
    for (repeat, sent) in [(Repeat::Never, 2), (Repeat::Allowed, 3)] {
        let Setting { server, proxy, servers } = setting().await;
        proxy.set(Mode::DropReplies);
        let calling = tokio::spawn({
            let servers = Arc::clone(&servers);
            async move { count_with(&servers, "key", PATIENCE, repeat).await }
        });
        poll::until_true("the call has run", PATIENCE, || stored(&server, "key") == 2);
        // A later command ends the connection, so the reply went before, and was swallowed.
        server.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        poll::until_true("the connection is lost", PATIENCE, || counts(&servers).lost > 0);
        proxy.set(Mode::Pass);
        let result = calling.await.expect("no panic");
        let expected = if repeat == Repeat::Allowed { None } else { Some(ErrorClass::Connection) };
        assert_eq!(class(&result), expected, "{result:?}");
        assert_eq!(stored(&server, "key"), sent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_cannot_be_found_are_a_matter_of_connection() {
    for url in [
        "redis://nobody.invalid",
        "redis://127.0.0.1:1",
        "redis+cluster://127.0.0.1:1",
        "redis+sentinel://127.0.0.1:1/x",
    ] {
        let servers = start(&options(url));
        let result = count(&servers, "key", Duration::from_millis(500)).await;
        assert_eq!(class(&result), Some(ErrorClass::Connection), "{url}: {result:?}");
        assert!(!servers.health().is_up(), "{url}");
        assert!(servers.ready(Duration::from_millis(10)).await.is_err(), "{url}");
    }
}
