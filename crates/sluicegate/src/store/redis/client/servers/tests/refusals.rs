//! Servers that reply with errors.

use super::*;
use sluicegate_testkit::redis_server::Options;

/// The class of the first failed call, and of the next ones until the breaker opens.
async fn refused(servers: &Servers, expected: ErrorClass) {
    let result = count(servers, "key", Duration::from_secs(1)).await;
    assert_eq!(class(&result), Some(expected), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_credentials_differ_from_silence() {
    // The minimal rights: the commands that deliver calls, and those of script and probe.
    let rights = "+evalsha +eval +script|load +time +ping +set +incr";
    let server = RedisServer::with(
        &Options::default()
            .password("right")
            .user(&format!("ann on >good ~key ~ours:* {rights}"))
            .user("bob on >good ~* +time +ping"),
    );
    let servers = start(&options(&server.url()));
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 1);
    let ann = start(&options(&server.url_as("ann", "good")));
    assert_eq!(count(&ann, "key", PATIENCE).await.expect("an answer"), 2);
    ann.ready(PATIENCE).await.expect("nothing more is needed");
    let wrong = [
        format!("redis://:wrong@{}", server.address()),
        format!("redis://{}", server.address()),
        server.url_as("ann", "wrong"),
        server.url_as("bob", "good"),
    ];
    for url in wrong {
        let servers = start(&options(&url));
        refused(&servers, ErrorClass::Refused).await;
        poll::until_true("not up", PATIENCE, || !servers.health().is_up());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_script_permission_is_reported_until_restored() {
    let rights = "+evalsha +eval +script|load +time +ping +set +incr";
    let server =
        RedisServer::with(&Options::default().password("right").user(&format!("ann on >good ~* {rights}")));
    let servers = start(&options(&server.url_as("ann", "good")));
    servers.ready(PATIENCE).await.expect("ready");
    server.command::<String>(&["ACL", "SETUSER", "ann", "-set", "-incr"]);
    for _ in 0..5 {
        refused(&servers, ErrorClass::Refused).await;
    }
    assert_eq!(class(&count(&servers, "key", USUAL).await), Some(ErrorClass::Open));
    poll::until_true("the probe is refused as well", PATIENCE, || {
        let error = &servers.health().servers[0].error;
        matches!(error, Some((ErrorClass::Refused, why)) if why.contains("can't run") || why.contains("ACL"))
    });
    server.command::<String>(&["ACL", "SETUSER", "ann", "+set", "+incr"]);
    until(&servers, "key", Result::is_ok).await;
    until_up(&servers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_and_its_promotion_are_detected() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    server.command::<String>(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(&servers, ErrorClass::ReadOnly).await;
    until(&servers, "key", |result| class(result) == Some(ErrorClass::Open)).await;
    server.command::<String>(&["REPLICAOF", "NO", "ONE"]);
    until(&servers, "key", Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_memory_is_reported_and_recovers() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    server.command::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..30 {
        refused(&servers, ErrorClass::Full).await;
    }
    poll::until_true("it counts as failed", PATIENCE, || {
        matches!(&servers.health().servers[0].error, Some((ErrorClass::Full, _)))
    });
    refused(&servers, ErrorClass::Full).await;
    assert_eq!(counts(&servers).opened, 0);
    server.command::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 1);
    until_up(&servers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_without_enough_replicas_is_unusable() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    server.command::<String>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    refused(&servers, ErrorClass::Unusable).await;
    until(&servers, "key", |result| class(result) == Some(ErrorClass::Open)).await;
    server.command::<String>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    until(&servers, "key", Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loading_server_is_unusable_until_it_has_loaded() {
    let slowly =
        Options::default().set("key-load-delay", "500").set("loading-process-events-interval-bytes", "1024");
    let server = RedisServer::with(&slowly);
    server.command::<u64>(&["EVAL", "for i = 1, 2000 do redis.call('SET', i, i) end return 1", "0"]);
    server.command::<String>(&["SAVE"]);
    let servers = start(&options(&server.url()));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    server.kill();
    server.launch();
    until(&servers, "key", |result| {
        result.is_ok() || matches!(result, Err(error) if error.class == ErrorClass::Unusable || error.message.contains("LOADING"))
    })
    .await;
    let health = servers.health();
    assert!(!health.is_up(), "{health:?}");
    assert_eq!(health.up(), 0);
    until(&servers, "key", Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_key_is_no_fault_of_the_server() {
    let server = RedisServer::start();
    server.command::<u64>(&["LPUSH", "list", "1"]);
    let servers = start(&options(&server.url()));
    for _ in 0..30 {
        let result = count(&servers, "list", PATIENCE).await;
        assert_eq!(class(&result), Some(ErrorClass::Protocol), "{result:?}");
    }
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 1);
    assert_eq!(counts(&servers).opened, 0);
}
