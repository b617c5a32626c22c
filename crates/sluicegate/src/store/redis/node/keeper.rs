//! Keeps a server connected: one attempt at a time, with pauses that spread many clients.

use super::super::super::ErrorClass;
use super::super::error::{Ran, Trouble};
use super::super::link::Link;
use super::super::pause::{Backoff, Heard};
use super::super::server_clock::ServerClock;
use super::{Proof, Shared, count};
use crate::store::redis::dialer::Driver;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout};

/// Opens a connection, serves it until it ends, and opens the next.
pub(super) async fn keep_connected(shared: Arc<Shared>, lane: usize) {
    let mut backoff = Backoff::new();
    loop {
        let heard = match connect(&shared).await {
            Ok((link, driver)) => {
                let connected = Instant::now();
                serve(&shared, lane, Arc::new(link), driver).await;
                backoff = Backoff::after(connected.elapsed());
                Heard::Yes
            }
            Err(trouble) => {
                let trouble = trouble.at(&shared.address);
                *shared.last_trouble.lock() = Some((trouble.class, trouble.message.clone()));
                shared.blame(&trouble);
                let unheard = matches!(trouble.class, ErrorClass::Connection | ErrorClass::Timeout);
                if unheard { Heard::No } else { Heard::Yes }
            }
        };
        sleep(backoff.next(heard)).await;
    }
}

async fn serve(shared: &Shared, lane: usize, link: Arc<Link>, driver: Driver) {
    count(&shared.counters.connected);
    shared.proof.send_replace(Proof::None);
    shared.common.begin_era();
    shared.lanes[lane].send_replace(Some(Arc::clone(&link)));
    shared.probe_now.notify_one();
    let how = tokio::select! {
        () = driver => "the connection was lost",
        () = link.broken_off() => "the connection was given up",
    };
    shared.lanes[lane].send_replace(None);
    count(&shared.counters.lost);
    *shared.last_trouble.lock() = Some((ErrorClass::Connection, format!("{}: {how}", shared.address)));
    shared.common.doubt.notify_one();
}

/// A connection to a server that knows our scripts, that may be written to where that matters, and whose time we
/// know.
async fn connect(shared: &Shared) -> Result<(Link, Driver), Trouble> {
    let (connection, mut driver) = shared.common.dialer.open(&shared.address).await?;
    let greeting = timeout(shared.common.read_timeout, greet(shared, connection.clone()));
    let clock = tokio::select! {
        () = &mut driver => {
            return Err(Trouble::with_server(ErrorClass::Connection, Ran::No, "the connection was lost at once"));
        }
        clock = greeting => clock,
    };
    let clock = clock.unwrap_or_else(|_| {
        Err(Trouble::with_server(ErrorClass::Timeout, Ran::No, "connected, but no answer to the first question"))
    })?;
    Ok((Link::new(connection, clock), driver))
}

async fn greet(shared: &Shared, mut connection: MultiplexedConnection) -> Result<ServerClock, Trouble> {
    // Short questions first: a server that wants a password from us says so to these, and answers longer words with
    // the end of the connection.
    let answers = ask(&mut connection, Pipeline::new().cmd("TIME").cmd("ROLE")).await;
    let received = Instant::now();
    let answers = answers?;
    let [time, role, ..] = answers.as_slice() else { return Err(no_sense("the first question")) };
    let clock = ServerClock::new(micros_of(time)?, received);
    if shared.common.primary_only && is_replica(role) {
        return Err(Trouble::with_server(ErrorClass::ReadOnly, Ran::No, "the server is a replica"));
    }
    let mut scripts = Pipeline::new();
    for script in &shared.common.scripts {
        scripts.cmd("SCRIPT").arg("LOAD").arg(*script);
    }
    // A script that could not be loaded is sent in full when it is called.
    ask(&mut connection, &scripts).await?;
    Ok(clock)
}

async fn ask(connection: &mut MultiplexedConnection, questions: &Pipeline) -> Result<Vec<Value>, Trouble> {
    let answers = connection.send_packed_commands(questions, 0, questions.len()).await;
    answers.map_err(|error| Trouble::broken(&error))
}

/// Whether the server says that it is a replica. It may also refuse to say what it is.
fn is_replica(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    parts.first().is_some_and(|name| *name != Value::BulkString(b"master".to_vec()))
}

fn micros_of(time: &Value) -> Result<u64, Trouble> {
    if let Value::ServerError(error) = time {
        return Err(Trouble::with_server(
            Trouble::reported(error).class,
            Ran::No,
            Trouble::reported(error).message,
        ));
    }
    let parts: (u64, u64) = redis::from_redis_value_ref(time).map_err(|_| no_sense("TIME"))?;
    parts.0.checked_mul(1_000_000).and_then(|micros| micros.checked_add(parts.1)).ok_or_else(|| no_sense("TIME"))
}

fn no_sense(question: &str) -> Trouble {
    Trouble::with_server(ErrorClass::Protocol, Ran::No, format!("the answer to {question} makes no sense"))
}
