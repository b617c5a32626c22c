//! Servers that die, stall, or are overloaded.

use super::*;
use futures_util::future::join_all;
use std::num::NonZeroUsize;

/// More than a busy machine adds to a deadline.
const SLACK: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_costs_few_requests_and_recovers() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    server.kill();
    until(&servers, "key", |result| {
        assert!(result.is_err(), "there is no server");
        class(result) == Some(ErrorClass::Open)
    })
    .await;
    assert!(!servers.health().is_up());
    let started = Instant::now();
    for _ in 0..1000 {
        assert_eq!(class(&count(&servers, "key", USUAL).await), Some(ErrorClass::Open));
    }
    // If each call waited until its deadline, this would take 15 s.
    assert!(started.elapsed() < Duration::from_secs(3), "a thousand calls took {:?}", started.elapsed());
    server.restart();
    let recovered = until(&servers, "key", Result::is_ok).await;
    assert!(recovered < Duration::from_secs(6), "recovered after {recovered:?}");
    until_up(&servers);
    assert!(counts(&servers).opened >= 1 && counts(&servers).connected >= 2);
}

/// Row 45: with a read timeout of 2 s and 100 connections, a stalled server leaves 50 requests a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_fails_calls_at_their_deadline_and_charges_nothing_later() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    let mut answered = 0;
    for _ in 0..10 {
        answered = count(&servers, "key", PATIENCE).await.expect("an answer");
    }
    server.pause();
    for _ in 0..5 {
        let started = Instant::now();
        let result = count(&servers, "key", USUAL).await;
        assert_eq!(class(&result), Some(ErrorClass::Timeout), "{result:?}");
        assert!(started.elapsed() >= USUAL && started.elapsed() < USUAL + SLACK, "{:?}", started.elapsed());
    }
    assert_eq!(class(&count(&servers, "key", USUAL).await), Some(ErrorClass::Open));
    server.resume();
    // The server reads commands in order, so once a new one is answered, the old one has been executed.
    let recovered = until(&servers, "other", Result::is_ok).await;
    assert!(recovered < Duration::from_secs(6), "recovered after {recovered:?}");
    assert_eq!(stored(&server, "key"), answered);
    assert_eq!(counts(&servers).lost, 0);
}

/// As [`COUNT`], but takes at least a millisecond.
static SLOW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local head = ARGV[2] .. ' ' .. string.format('%.0f', now) .. ' '
if now > tonumber(ARGV[1]) then return head .. 'late' end
for i = 1, 400000 do end
return head .. redis.call('INCR', KEYS[1])",
    )
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_behind_too_many_others_are_no_fault_of_the_server() {
    let server = RedisServer::start();
    let options = options(&server.url()).in_flight_max(NonZeroUsize::MAX);
    let servers = Servers::start(&options, &[&SLOW], "ours:").expect("options that make sense");
    servers.ready(PATIENCE).await.expect("ready");
    // Redis answers after it has executed everything it has read, 16 kB at a time. With calls of the usual size
    // these are more than a hundred, and on a busy machine it would be silent for longer than their deadline.
    let arguments = &[vec![0; 4_096].into()];
    let call = Call {
        script: &SLOW,
        keys: &[b"key".to_vec()],
        arguments,
        resend: Resend::Never,
        late_policy: LatePolicy::default(),
    };
    // Long enough that all calls are sent well before it, even if this process waits for the processor.
    let deadline = Instant::now() + Duration::from_secs(1);
    let results = join_all((0..1_500).map(|_| servers.call(&call, deadline))).await;
    let (mut answered, mut late) = (0, 0);
    for result in results {
        match result {
            Ok(_) => answered += 1,
            Err(error) => {
                assert_eq!(error.class, ErrorClass::Overloaded, "{error:?}");
                late += 1;
            }
        }
    }
    assert!(answered > 0 && late > 20, "{answered} answered, {late} late");
    assert_eq!(counts(&servers).opened, 0);
}

/// Reports that it ran late, as with a wrong clock estimate, and takes longer than any deadline the second time.
static LATE_THEN_SILENT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local head = ARGV[2] .. ' ' .. string.format('%.0f', time[1] * 1000000 + time[2]) .. ' '
if redis.call('INCR', KEYS[1]) == 1 then return head .. 'late' end
for i = 1, 2000000000 do end
return head",
    )
});

/// Calls that were resent at the last moment had no reply since then. Five of them took a responsive server out of
/// use.
#[tokio::test]
async fn resent_calls_are_no_fault_of_a_responsive_server() {
    let server = RedisServer::start();
    let options = options(&server.url()).connections(NonZeroUsize::MIN);
    let scripts = [&*COUNT, &*LATE_THEN_SILENT];
    let servers = Servers::start(&options, &scripts, "ours:").expect("options that make sense");
    servers.ready(PATIENCE).await.expect("ready");
    let deadline = Instant::now() + Duration::from_secs(1);
    // Replies come in the order of the calls, so the good one arrives before any call is resent.
    let scripts = [&*COUNT].into_iter().chain([&*LATE_THEN_SILENT; 5]);
    let calls = scripts.enumerate().map(|(number, script)| {
        let (servers, keys) = (&servers, [format!("key-{number}").into_bytes()]);
        async move {
            let call = Call {
                script,
                keys: &keys,
                arguments: &[Argument::new()],
                resend: Resend::Never,
                late_policy: LatePolicy::default(),
            };
            servers.call(&call, deadline).await.map_err(|error| error.class)
        }
    });
    let results = join_all(calls).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert!(results[1..].iter().all(|result| matches!(result, Err(ErrorClass::Overloaded))), "{results:?}");
    assert_eq!(counts(&servers).late, 5, "all were sent twice");
    assert_eq!(counts(&servers).opened, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_calls_leak_nothing() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()).in_flight_max(NonZeroUsize::new(8).unwrap()));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    server.pause();
    let leaving: Vec<_> = (0..8)
        .map(|_| {
            let servers = Arc::clone(&servers);
            tokio::spawn(async move { count(&servers, "left", PATIENCE).await })
        })
        .collect();
    // Once one more call is rejected, all eight are in flight.
    until(&servers, "key", |_| counts(&servers).overloaded > 0).await;
    leaving.iter().for_each(tokio::task::JoinHandle::abort);
    server.resume();
    until(&servers, "key", Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_is_replaced() {
    let server = RedisServer::start();
    let servers = start(&options(&server.url()));
    for expected in 1..=5 {
        servers.ready(PATIENCE).await.expect("ready");
        assert_eq!(count(&servers, "key", PATIENCE).await.expect("an answer"), expected);
        server.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        poll::until_true("noticed", PATIENCE, || counts(&servers).lost == expected);
    }
    assert_eq!(counts(&servers).opened, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_script_makes_the_server_busy() {
    let server = Arc::new(RedisServer::start());
    server.command::<String>(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    let servers = start(&options(&server.url()).read_timeout(Duration::from_millis(200)));
    count(&servers, "key", PATIENCE).await.expect("an answer");
    let endless = Arc::clone(&server);
    let thread = std::thread::spawn(move || {
        endless.try_command::<String>(&["EVAL", "while true do end", "0"]).expect_err("killed");
    });
    // Silence opens the breaker first; the probe then finds the cause.
    poll::until_true("busy", PATIENCE, || {
        let health = servers.health();
        matches!(&health.servers[0].error, Some((ErrorClass::Busy, _))) || {
            tokio::task::block_in_place(|| {
                _ = tokio::runtime::Handle::current().block_on(count(&servers, "key", USUAL));
            });
            false
        }
    });
    server.command::<String>(&["SCRIPT", "KILL"]);
    thread.join().expect("the script was killed");
    until(&servers, "key", Result::is_ok).await;
}
