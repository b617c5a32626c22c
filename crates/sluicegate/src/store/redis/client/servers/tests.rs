//! Calls to real servers, with and without faults.

mod answers;
mod cluster;
mod faults;
mod network;
mod refusals;
mod sentinel;
mod tls;

use super::*;
use crate::store::redis::client::call::{Argument, LatePolicy};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::LazyLock;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// The default deadline of a rule.
const USUAL: Duration = Duration::from_millis(15);

/// Counts in a key and echoes its argument, with the envelope of all scripts.
static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local head = ARGV[2] .. ' ' .. string.format('%.0f', now) .. ' '
if tonumber(ARGV[1]) > 0 and now > tonumber(ARGV[1]) then return head .. 'late' end
return head .. redis.call('INCR', KEYS[1]) .. ' ' .. ARGV[3]",
    )
});

fn options(url: &str) -> RedisOptions {
    url.parse().expect("a URL")
}

fn start(options: &RedisOptions) -> Arc<Servers> {
    Arc::new(Servers::start(options, &[&COUNT], "ours:").expect("options that make sense"))
}

/// Counts in a key, and returns the count.
async fn count(servers: &Servers, key: &str, within: Duration) -> Result<u64, StoreError> {
    count_with(servers, key, within, Resend::Never).await
}

async fn count_with(servers: &Servers, key: &str, within: Duration, resend: Resend) -> Result<u64, StoreError> {
    let echo = fastrand::u64(..).to_string();
    let (keys, arguments) = ([key.as_bytes().to_vec()], [Argument::from_slice(echo.as_bytes())]);
    let call =
        Call { script: &COUNT, keys: &keys, arguments: &arguments, resend, late_policy: LatePolicy::default() };
    let answer = servers.call(&call, Instant::now() + within).await?;
    let body = String::from_utf8(answer.body).expect("text");
    let (count, echoed) = body.split_once(' ').expect("two words");
    assert_eq!(echoed, echo, "the reply belongs to another call");
    Ok(count.parse().expect("a number"))
}

fn stored(server: &RedisServer, key: &str) -> u64 {
    server.command::<Option<u64>>(&["GET", key]).unwrap_or(0)
}

/// Counts until a result satisfies the condition. Returns the time that this took.
async fn until(servers: &Servers, key: &str, satisfied: impl Fn(&Result<u64, StoreError>) -> bool) -> Duration {
    let started = Instant::now();
    loop {
        let result = count(servers, key, USUAL).await;
        if satisfied(&result) {
            return started.elapsed();
        }
        assert!(started.elapsed() < PATIENCE, "the last answer was {result:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn class(result: &Result<u64, StoreError>) -> Option<ErrorClass> {
    result.as_ref().err().map(|error| error.class)
}

/// The counters of the only server.
fn counts(servers: &Servers) -> CounterSnapshot {
    servers.health().servers[0].counts
}

fn until_up(servers: &Servers) {
    poll::until_true("the servers are up", PATIENCE, || servers.health().is_up());
}
