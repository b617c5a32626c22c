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
    let mut silence = vec![0; shared.lanes.len()];
    loop {
        sleep(PAUSE_MIN).await;
        tokio::select! {
            () = sleep(jittered(if is_proven(&shared) { PAUSE_PROVEN } else { PAUSE_UNPROVEN })) => {}
            () = shared.probe_now.notified() => {}
        }
        let mut proof = Proof::None;
        for (lane, silence) in shared.lanes.iter().zip(&mut silence) {
            let Some(link) = lane.borrow().clone() else { continue };
            load_scripts(&shared, &link).await;
            let result = examine(&shared, &link).await;
            listen(&link, &result, silence);
            proof = if note(&shared, result) && proof != Proof::Bad { Proof::Good } else { Proof::Bad };
        }
        if proof != Proof::None {
            shared.proof.send_replace(proof);
        }
    }
}

/// Whether calls pass, and the server was last found well.
fn is_proven(shared: &Shared) -> bool {
    shared.breaker.phase() == Phase::Closed && *shared.proof.borrow() == Proof::Good
}

/// Gives a connection up that says nothing.
fn listen(link: &Link, result: &Result<(), Trouble>, silence: &mut u32) {
    let silent = matches!(result, Err(trouble) if trouble.class == ErrorClass::Timeout);
    *silence = if silent { *silence + 1 } else { 0 };
    if *silence >= SILENCE_MAX {
        *silence = 0;
        link.break_off();
    }
}

/// Tells the breaker what a probe found, and returns whether it was good.
fn note(shared: &Shared, result: Result<(), Trouble>) -> bool {
    let now_ms = shared.now_ms(Instant::now());
    match result {
        Err(trouble) if trouble.blame == Blame::Server => {
            let trouble = trouble.at(&shared.address);
            if shared.breaker.probed(now_ms, false) == Change::Opened {
                shared.opened(&trouble);
            } else {
                *shared.last_trouble.lock() = Some((trouble.class, trouble.message));
            }
            false
        }
        _ => {
            shared.breaker.probed(now_ms, true);
            true
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
