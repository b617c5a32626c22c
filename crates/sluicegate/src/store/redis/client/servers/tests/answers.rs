//! Normal operation, and events that no request should notice.

use super::*;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

async fn every_reply_belongs_to_its_caller(connections: usize) {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()).connections(NonZeroUsize::new(connections).unwrap()));
    let tasks: Vec<_> = (0..256)
        .map(|task| {
            let servers = Arc::clone(&servers);
            tokio::spawn(async move {
                for expected in 1..=40 {
                    let counted = count(&servers, &format!("key:{task}"), PATIENCE).await.expect("an answer");
                    assert_eq!(counted, expected);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("all answers are right");
    }
    assert_eq!(counts(&servers).connected, connections as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_reaches_its_call_on_one_connection() {
    every_reply_belongs_to_its_caller(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_reaches_its_call_on_three_connections() {
    every_reply_belongs_to_its_caller(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_fail_no_call() {
    let server = Arc::new(RedisServer::start());
    let servers = start(&options(&server.url()));
    let over = Arc::new(AtomicBool::new(false));
    let (forgetful, ended) = (Arc::clone(&server), Arc::clone(&over));
    let forgetting = std::thread::spawn(move || {
        let mut times = 0;
        while !ended.load(Ordering::Relaxed) {
            forgetful.command::<String>(&["SCRIPT", "FLUSH"]);
            times += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        times
    });
    let mut calls = 0;
    while counts(&servers).no_script < 20 {
        calls += 1;
        assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), calls);
    }
    over.store(true, Ordering::Relaxed);
    assert!(forgetting.join().expect("the thread ends well") >= 20);
    assert_eq!(stored(&server, "key"), calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_loaded_before_the_first_call_and_after_a_flush() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    servers.ready(PATIENCE).await.expect("ready");
    let known = || server.command::<Vec<u8>>(&["SCRIPT", "EXISTS", &COUNT.hash]) == [1];
    assert!(known());
    server.command::<String>(&["SCRIPT", "FLUSH"]);
    count(&servers, "key", PATIENCE).await.expect("an answer");
    assert_eq!(counts(&servers).no_script, 1);
    count(&servers, "key", PATIENCE).await.expect("an answer");
    assert_eq!(counts(&servers).no_script, 1);
    assert!(known());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_returns_at_once_and_a_call_waits_for_the_connection() {
    let server = RedisServer::start();
    server.kill();
    let servers = start(&options(&server.url()).connect_timeout(PATIENCE));
    assert!(!servers.health().is_up());
    let error = servers.ready(Duration::from_millis(20)).await.expect_err("no server listens");
    assert_eq!(error.class, ErrorClass::Connection);
    let waiting = tokio::spawn({
        let servers = Arc::clone(&servers);
        async move { count(&servers, "key", PATIENCE).await }
    });
    server.launch();
    assert_eq!(waiting.await.expect("no panic").expect("an answer"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_and_tasks_end_with_the_servers() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    let clients = || server.info("connected_clients").expect("a count").parse::<u64>().expect("a number");
    let with = clients();
    drop(servers);
    poll::until_true("one client less", PATIENCE, || clients() == with - 1);
    let metrics = tokio::runtime::Handle::current().metrics();
    poll::until_true("no task is left", PATIENCE, || metrics.num_alive_tasks() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_are_separate() {
    let server = RedisServer::start();
    let second = start(&options(&format!("{}/2", server.url())));
    count(&second, "key", PATIENCE).await.expect("an answer");
    assert_eq!(stored(&server, "key"), 0);
    let first = start(&options(&server.url()));
    assert_eq!(count(&first, "key", PATIENCE).await.expect("an answer"), 1);
    assert_eq!(first.route_of(b"one"), first.route_of(b"other"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_time_is_not_sent() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    for _ in 0..10 {
        let error = count(&servers, "key", Duration::ZERO).await.expect_err("no time");
        assert_eq!(error.class, ErrorClass::Overloaded);
    }
    // The caller caused this error, so the server stays in use.
    assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), 2);
}
