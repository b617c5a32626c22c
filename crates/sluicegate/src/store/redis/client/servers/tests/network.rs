//! Networks that cut, delay, truncate and drop.

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

/// The server has just been probed when this returns, and is not probed again for most of a second.
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
async fn a_truncated_reply_is_an_error() {
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
async fn a_reply_with_another_nonce_closes_the_connection() {
    for foreign in [&b"$14\r\n1 1700000000 1\r\n"[..], b"+PONG\r\n", b":1\r\n", b"*1\r\n:1\r\n", b"$-1\r\n"] {
        let Setting { proxy, servers, server: _running } = setting().await;
        proxy.set(Mode::Inject(foreign.to_vec()));
        let result = count(&servers, "key", PATIENCE).await;
        // On a slow machine the probe may receive the foreign reply, and the call only the end of the connection.
        let class = class(&result);
        assert!(matches!(class, Some(ErrorClass::Protocol | ErrorClass::Connection)), "{result:?}");
        proxy.set(Mode::Pass);
        poll::until_true("the connection is given up", PATIENCE, || counts(&servers).lost > 0);
        until(&servers, "key", Result::is_ok).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_bytes_close_the_connection() {
    let Setting { proxy, servers, server: _running } = setting().await;
    proxy.set(Mode::Inject(b"\0garbage\r\n".to_vec()));
    let result = count(&servers, "key", PATIENCE).await;
    assert!(matches!(class(&result), Some(ErrorClass::Protocol | ErrorClass::Connection)), "{result:?}");
    proxy.set(Mode::Pass);
    until(&servers, "key", Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silently_dead_connection_is_detected_without_calls() {
    let Setting { proxy, servers, server: _running } =
        setting_with_probes_that_wait(Duration::from_millis(200)).await;
    proxy.set(Mode::HalfOpen);
    poll::until_true("noticed", PATIENCE, || !servers.health().is_up());
    proxy.set(Mode::Pass);
    until(&servers, "key", Result::is_ok).await;
    until_up(&servers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silently_dead_connections_are_closed_together() {
    let (server, read_timeout) = (RedisServer::start(), Duration::from_millis(500));
    let proxy = FaultProxy::start(server.address());
    let many = options(&proxy.url()).connections(NonZeroUsize::new(8).unwrap());
    let servers = start(&many.connect_timeout(PATIENCE).read_timeout(read_timeout));
    servers.ready(PATIENCE).await.expect("ready");
    proxy.set(Mode::HalfOpen);
    poll::until_true("one is given up", PATIENCE, || counts(&servers).lost > 0);
    let started = Instant::now();
    poll::until_true("all are given up", PATIENCE, || counts(&servers).lost == 8);
    // Sequential probes would take longer.
    assert!(started.elapsed() < read_timeout * 3, "the last was given up after {:?}", started.elapsed());
    proxy.set(Mode::Pass);
    until(&servers, "key", Result::is_ok).await;
    until_up(&servers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_recover_after_a_network_outage() {
    let Setting { proxy, servers, server: _running } = setting().await;
    proxy.set(Mode::Cut);
    until(&servers, "key", |result| class(result) == Some(ErrorClass::Open)).await;
    proxy.set(Mode::Pass);
    let recovered = until(&servers, "key", Result::is_ok).await;
    assert!(recovered < Duration::from_secs(6), "recovered after {recovered:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_unknown_fate_is_resent_only_if_allowed() {
    for (resend, sent) in [(Resend::Never, 2), (Resend::Allowed, 3)] {
        let Setting { server, proxy, servers } = setting().await;
        proxy.set(Mode::DropReplies);
        let calling = tokio::spawn({
            let servers = Arc::clone(&servers);
            async move { count_with(&servers, "key", PATIENCE, resend).await }
        });
        poll::until_true("the call has run", PATIENCE, || stored(&server, "key") == 2);
        // A later command closes the connection, so the reply was sent before, and dropped.
        server.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        poll::until_true("the connection is lost", PATIENCE, || counts(&servers).lost > 0);
        proxy.set(Mode::Pass);
        let result = calling.await.expect("no panic");
        let expected = if resend == Resend::Allowed { None } else { Some(ErrorClass::Connection) };
        assert_eq!(class(&result), expected, "{result:?}");
        assert_eq!(stored(&server, "key"), sent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_host_names_are_connection_errors() {
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
