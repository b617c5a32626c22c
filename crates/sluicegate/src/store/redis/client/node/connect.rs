//! Keeps a server connected: one attempt at a time, with jittered back-off.

use super::{NodeState, Proof, count};
use crate::store::ErrorClass;
use crate::store::redis::client::backoff::{Backoff, Reached};
use crate::store::redis::client::dialer::Driver;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::link::Link;
use crate::store::redis::client::server_clock::ServerClock;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout};

/// Opens a connection, serves it until it ends, and opens the next.
pub(crate) async fn keep_connected(shared: Arc<NodeState>, lane: usize) {
    let mut backoff = Backoff::new();
    loop {
        let reached = match connect(&shared).await {
            Ok((link, driver)) => {
                let connected = Instant::now();
                serve(&shared, lane, Arc::new(link), driver).await;
                backoff = Backoff::after(connected.elapsed());
                Reached::Yes
            }
            Err(error) => {
                let error = error.at(&shared.address);
                *shared.last_error.lock() = Some((error.class, error.message.clone()));
                shared.record_fault(&error);
                let is_unreached = matches!(error.class, ErrorClass::Connection | ErrorClass::Timeout);
                if is_unreached { Reached::No } else { Reached::Yes }
            }
        };
        sleep(backoff.next(reached)).await;
    }
}

async fn serve(shared: &NodeState, lane: usize, link: Arc<Link>, driver: Driver) {
    count(&shared.counters.connected);
    shared.proof.send_replace(Proof::None);
    shared.context.begin_generation();
    shared.lanes[lane].send_replace(Some(Arc::clone(&link)));
    shared.probe_now.notify_one();
    let how = tokio::select! {
        () = driver => "the connection was lost",
        () = link.broken_off() => "the connection was closed",
    };
    shared.lanes[lane].send_replace(None);
    count(&shared.counters.lost);
    *shared.last_error.lock() = Some((ErrorClass::Connection, format!("{}: {how}", shared.address)));
    shared.context.doubt.notify_one();
}

/// Opens a connection and prepares it: it loads the scripts, reads the server's clock, and checks the role where it
/// matters.
async fn connect(shared: &NodeState) -> Result<(Link, Driver), CallError> {
    let (connection, mut driver, activity) = shared.context.dialer.open(&shared.address).await?;
    let greeting = timeout(shared.context.read_timeout, greet(shared, connection.clone()));
    let clock = tokio::select! {
        () = &mut driver => {
            return Err(CallError::of_server(ErrorClass::Connection, Executed::No, "the connection was lost at once"));
        }
        clock = greeting => clock,
    };
    let clock = clock.unwrap_or_else(|_| {
        Err(CallError::of_server(ErrorClass::Timeout, Executed::No, "connected, but no reply to TIME and ROLE"))
    })?;
    Ok((Link::new(connection, clock, activity), driver))
}

async fn greet(shared: &NodeState, mut connection: MultiplexedConnection) -> Result<ServerClock, CallError> {
    // Short commands come first. A server that requires a password answers them with an error, but closes the
    // connection on long ones.
    let answers = ask(&mut connection, Pipeline::new().cmd("TIME").cmd("ROLE")).await;
    let received = Instant::now();
    let answers = answers?;
    let [time, role, ..] = answers.as_slice() else { return Err(malformed("TIME and ROLE")) };
    let clock = ServerClock::new(micros_of(time)?, received);
    if shared.context.primary_only && is_replica(role) {
        return Err(CallError::of_server(ErrorClass::ReadOnly, Executed::No, "the server is a replica"));
    }
    let mut scripts = Pipeline::new();
    for script in &shared.context.scripts {
        scripts.cmd("SCRIPT").arg("LOAD").arg(*script);
    }
    // A script that could not be loaded is sent as text when it is called.
    ask(&mut connection, &scripts).await?;
    Ok(clock)
}

async fn ask(connection: &mut MultiplexedConnection, questions: &Pipeline) -> Result<Vec<Value>, CallError> {
    let answers = connection.send_packed_commands(questions, 0, questions.len()).await;
    answers.map_err(|error| CallError::from_connection(&error))
}

/// Whether the server reports that it is a replica. It may also refuse to report its role.
fn is_replica(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    parts.first().is_some_and(|name| *name != Value::BulkString(b"master".to_vec()))
}

fn micros_of(time: &Value) -> Result<u64, CallError> {
    if let Value::ServerError(error) = time {
        return Err(CallError::of_server(
            CallError::from_reply(error).class,
            Executed::No,
            CallError::from_reply(error).message,
        ));
    }
    let parts: (u64, u64) = redis::from_redis_value_ref(time).map_err(|_| malformed("TIME"))?;
    parts.0.checked_mul(1_000_000).and_then(|micros| micros.checked_add(parts.1)).ok_or_else(|| malformed("TIME"))
}

fn malformed(command: &str) -> CallError {
    CallError::of_server(ErrorClass::Protocol, Executed::No, format!("the reply to {command} is malformed"))
}
