//! Primaries that sentinels replace.

use super::*;
use sluicegate_testkit::redis_sentinel::RedisSentinels;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_named_by_sentinels_is_followed() {
    let sentinels = RedisSentinels::start();
    let servers = start(&options(&sentinels.url()));
    servers.ready(PATIENCE).await.expect("ready");
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 1);

    // A planned failover: the old primary becomes a replica and must not be used any more.
    let second = sentinels.fail_over();
    until_followed(&servers, &sentinels.servers()[second]).await;

    // A failover by death.
    assert_eq!(sentinels.kill_primary(), second);
    until(&servers, "key", |result| class(result) == Some(ErrorClass::Open)).await;
    assert!(!servers.health().is_up());
    let third = sentinels.wait_for_new_primary(second);
    until_followed(&servers, &sentinels.servers()[third]).await;

    // The sentinel in use dies, and the client moves to another.
    for sentinel in &sentinels.sentinels()[..2] {
        sentinel.kill();
        count(&servers, "key", PATIENCE).await.expect("an answer");
    }
    unknown_service(&sentinels.url()).await;
}

/// Waits until calls go to this server.
async fn until_followed(servers: &Servers, server: &RedisServer) {
    let address = server.address().to_string();
    let started = Instant::now();
    poll::until_true("the new primary is followed", PATIENCE, || {
        let health = servers.health();
        health.is_up() && health.servers[0].address == address
    });
    until(servers, "key", Result::is_ok).await;
    assert!(started.elapsed() < Duration::from_secs(6), "followed after {:?}", started.elapsed());
}

async fn unknown_service(url: &str) {
    let (hosts, _) = url.rsplit_once('/').expect("a service name");
    let servers = start(&options(&format!("{hosts}/nobody")));
    let error = servers.ready(Duration::from_secs(2)).await.expect_err("no service has this name");
    assert!(error.message.contains("`nobody`") || error.class == ErrorClass::Connection, "{error}");
}
