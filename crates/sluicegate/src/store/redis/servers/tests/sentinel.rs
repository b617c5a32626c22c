//! Primaries that sentinels replace.

use super::*;
use sluicegate_testkit::redis_sentinel::RedisSentinels;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_that_the_sentinels_name_is_followed() {
    let sentinels = RedisSentinels::start();
    let servers = start(&options(&sentinels.url()));
    servers.ready(PATIENCE).await.expect("ready");
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 1);

    // In good order: the old primary becomes a replica and must not be used any more.
    let second = sentinels.fail_over();
    until_followed(&servers, &sentinels.servers()[second]).await;

    // By death.
    assert_eq!(sentinels.kill_primary(), second);
    until(&servers, "key", |result| class(result) == Some(ErrorClass::Open)).await;
    assert!(!servers.health().is_up());
    let third = sentinels.wait_for_new_primary(second);
    until_followed(&servers, &sentinels.servers()[third]).await;

    // The sentinel that was listened to dies, and another is.
    for sentinel in &sentinels.sentinels()[..2] {
        sentinel.kill();
        count(&servers, "key", PATIENCE).await.expect("an answer");
    }
    unknown_service(&sentinels.url()).await;
}

/// Calls go to this server soon.
async fn until_followed(servers: &Servers, server: &RedisServer) {
    let address = server.address().to_string();
    let started = Instant::now();
    poll::until_true("the new primary is followed", PATIENCE, || {
        let health = servers.health();
        health.is_up() && health.servers[0].address == address
    });
    until(servers, "key", Result::is_ok).await;
    assert!(started.elapsed() < Duration::from_secs(2), "followed after {:?}", started.elapsed());
}

async fn unknown_service(url: &str) {
    let (hosts, _) = url.rsplit_once('/').expect("a service name");
    let servers = start(&options(&format!("{hosts}/nobody")));
    let error = servers.ready(Duration::from_secs(2)).await.expect_err("nobody has this name");
    assert!(error.message.contains("`nobody`") || error.class == ErrorClass::Connection, "{error}");
}
