//! Finds out, without any caller's help, whether a server is well.
//!
//! While all is well, a ping now and then notices a connection that died in silence. On a new connection, and while
//! the breaker is open, a probe runs a script that writes: only a primary that can really be used says yes to that.

use super::super::super::ErrorClass;
use super::super::breaker::{Change, Phase};
use super::super::error::{Blame, Ran, Trouble};
use super::super::link::Link;
use super::super::pause::jittered;
use super::{Ordering, Proof, Shared};
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How often a server is asked while it is well.
const PAUSE_PROVEN: Duration = Duration::from_secs(1);
/// How often a server is asked while it is not.
const PAUSE_UNPROVEN: Duration = Duration::from_millis(100);
/// How soon it is asked again at the earliest, whatever happens.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// So many probes in a row without an answer, and the connection is given up.
const SILENCE_MAX: u32 = 2;

/// Writes a key that is gone after a second. It is one of ours: who may not write it may not write any.
const WRITE: &str = "local reply = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', 1000)
if type(reply) == 'table' and reply.err then return reply end
return ARGV[1]";

/// Probes for ever.
pub(super) async fn probe(shared: Arc<Shared>) {
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

/// Examines all connections at the same time, so that one that is silent keeps nobody waiting for the others.
async fn examine_all(shared: &Arc<Shared>) -> Vec<Result<(), Trouble>> {
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

/// How much what one connection showed says about the server: what it says itself counts most, and where one
/// connection is good, those that are silent or broken are no trouble of the server's.
fn weight(result: &Result<(), Trouble>) -> u8 {
    match result {
        Err(Trouble { class: ErrorClass::Timeout | ErrorClass::Connection, .. }) => 0,
        Err(Trouble { class: ErrorClass::Full, .. } | Trouble { blame: Blame::Server, .. }) => 2,
        _ => 1,
    }
}

/// Whether calls pass, and the server was last found well.
fn is_proven(shared: &Shared) -> bool {
    shared.breaker.phase() == Phase::Closed && *shared.proof.borrow() == Proof::Good
}

/// Gives a connection up that says nothing.
fn listen(link: &Link, result: &Result<(), Trouble>) {
    let silent = matches!(result, Err(trouble) if trouble.class == ErrorClass::Timeout);
    if link.heard(!silent) >= SILENCE_MAX {
        link.break_off();
    }
}

/// Tells the breaker what a probe found, and returns what that proves.
fn note(shared: &Shared, result: Result<(), Trouble>) -> Proof {
    let now_ms = shared.now_ms(Instant::now());
    match result {
        Err(trouble) if trouble.blame == Blame::Server => {
            let trouble = trouble.at(&shared.address);
            if shared.breaker.probed(now_ms, false) == Change::Opened {
                shared.opened(&trouble);
            } else {
                *shared.last_trouble.lock() = Some((trouble.class, trouble.message));
            }
            Proof::Bad
        }
        // Calls go on, because what writes nothing is still answered.
        Err(trouble) if trouble.class == ErrorClass::Full => {
            shared.breaker.probed(now_ms, true);
            let trouble = trouble.at(&shared.address);
            *shared.last_trouble.lock() = Some((trouble.class, trouble.message));
            Proof::Bad
        }
        _ => {
            shared.breaker.probed(now_ms, true);
            Proof::Good
        }
    }
}

async fn load_scripts(shared: &Shared, link: &Link) {
    if !shared.loading.swap(false, Ordering::Relaxed) {
        return;
    }
    for script in &shared.common.scripts {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(*script);
        // Whoever misses the script meanwhile sends it in full.
        _ = link.ask_within(command, shared.common.read_timeout).await;
    }
}

async fn examine(shared: &Shared, link: &Link) -> Result<(), Trouble> {
    let nonce = shared.nonces.fetch_add(1, Ordering::Relaxed).to_string();
    let key = shared.probe_key.lock().clone().filter(|_| !is_proven(shared));
    let mut command = Cmd::new();
    match key {
        Some(key) => command.arg("EVAL").arg(WRITE).arg(1).arg(key).arg(&nonce),
        None => command.arg("PING").arg(&nonce),
    };
    let value = link.ask_within(command, shared.common.read_timeout).await?;
    if value == Value::BulkString(nonce.into_bytes()) {
        return Ok(());
    }
    link.break_off();
    let message = "the reply is not the one to the probe; the connection is given up";
    Err(Trouble::with_server(ErrorClass::Protocol, Ran::Unknown, message))
}
