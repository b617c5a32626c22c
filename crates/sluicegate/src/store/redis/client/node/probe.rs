//! The health probe of a server. It runs in the background, independent of calls.
//!
//! While the server is healthy, an occasional ping detects a connection that died silently. On a new connection and
//! while the breaker is open, the probe executes a script that writes, because only a usable primary accepts a
//! write.

use super::{NodeState, Ordering, Proof};
use crate::store::ErrorClass;
use crate::store::redis::client::backoff::jittered;
use crate::store::redis::client::breaker::{Change, Phase};
use crate::store::redis::client::error::{CallError, Executed, Fault};
use crate::store::redis::client::link::Link;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The probe interval of a healthy server.
const PAUSE_PROVEN: Duration = Duration::from_secs(1);
/// The probe interval of an unhealthy server.
const PAUSE_UNPROVEN: Duration = Duration::from_millis(100);
/// The shortest interval between two probes.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// This many unanswered probes in a row close the connection.
const MISSED_PROBES_MAX: u32 = 2;

/// Writes a key of this store that expires after a second. A user without the right to write it cannot write other
/// keys either.
const WRITE: &str = "local reply = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', 1000)
if type(reply) == 'table' and reply.err then return reply end
return ARGV[1]";

/// Probes forever.
pub(crate) async fn probe(shared: Arc<NodeState>) {
    loop {
        sleep(PAUSE_MIN).await;
        tokio::select! {
            () = sleep(jittered(if is_proven(&shared) { PAUSE_PROVEN } else { PAUSE_UNPROVEN })) => {}
            () = shared.probe_now.notified() => {}
        }
        let results = examine_all(&shared).await;
        if let Some(result) = results.into_iter().max_by_key(weight) {
            let proof = note(&shared, result);
            shared.proof.send_replace(proof);
        }
    }
}

/// Probes all connections concurrently, so that a silent one does not delay the others.
async fn examine_all(shared: &Arc<NodeState>) -> Vec<Result<(), CallError>> {
    let mut examinations = JoinSet::new();
    for link in shared.lanes.iter().filter_map(|lane| lane.borrow().clone()) {
        let shared = Arc::clone(shared);
        examinations.spawn(async move {
            load_scripts(&shared, &link).await;
            let result = examine(&shared, &link).await;
            listen(&link, &result);
            result
        });
    }
    examinations.join_all().await
}

/// The weight of one connection's result. An error that the server reports counts most. If one connection works,
/// others that are silent or broken are no fault of the server.
fn weight(result: &Result<(), CallError>) -> u8 {
    match result {
        Err(CallError { class: ErrorClass::Timeout | ErrorClass::Connection, .. }) => 0,
        Err(CallError { class: ErrorClass::Full, .. } | CallError { fault: Fault::Server, .. }) => 2,
        _ => 1,
    }
}

/// Whether the breaker is closed and the last probe succeeded.
fn is_proven(shared: &NodeState) -> bool {
    shared.breaker.phase() == Phase::Closed && *shared.proof.borrow() == Proof::Good
}

/// Closes a connection that has missed too many probes.
fn listen(link: &Link, result: &Result<(), CallError>) {
    let silent = matches!(result, Err(error) if error.class == ErrorClass::Timeout);
    if link.record_probe(!silent) >= MISSED_PROBES_MAX {
        link.break_off();
    }
}

/// Reports the result of a probe to the breaker.
fn note(shared: &NodeState, result: Result<(), CallError>) -> Proof {
    let now_ms = shared.now_ms(Instant::now());
    match result {
        Err(error) if error.fault == Fault::Server => {
            let error = error.at(&shared.address);
            if shared.breaker.probed(now_ms, false) == Change::Opened {
                shared.opened(&error);
            } else {
                *shared.last_error.lock() = Some((error.class, error.message));
            }
            Proof::Bad
        }
        // A server that is out of memory still executes calls that write nothing, so calls continue.
        Err(error) if error.class == ErrorClass::Full => {
            shared.breaker.probed(now_ms, true);
            let error = error.at(&shared.address);
            *shared.last_error.lock() = Some((error.class, error.message));
            Proof::Bad
        }
        _ => {
            shared.breaker.probed(now_ms, true);
            Proof::Good
        }
    }
}

async fn load_scripts(shared: &NodeState, link: &Link) {
    if !shared.loading.swap(false, Ordering::Relaxed) {
        return;
    }
    for script in &shared.context.scripts {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(*script);
        // Until then, a call that misses the script sends its text.
        _ = link.ask_within(command, shared.context.read_timeout).await;
    }
}

async fn examine(shared: &NodeState, link: &Link) -> Result<(), CallError> {
    let nonce = shared.nonces.fetch_add(1, Ordering::Relaxed).to_string();
    let key = shared.probe_key.lock().clone().filter(|_| !is_proven(shared));
    let mut command = Cmd::new();
    match key {
        Some(key) => command.arg("EVAL").arg(WRITE).arg(1).arg(key).arg(&nonce),
        None => command.arg("PING").arg(&nonce),
    };
    let value = link.ask_within(command, shared.context.read_timeout).await?;
    if value == Value::BulkString(nonce.into_bytes()) {
        return Ok(());
    }
    link.break_off();
    let message = "the reply does not match the probe; the connection is closed";
    Err(CallError::of_server(ErrorClass::Protocol, Executed::Unknown, message))
}
