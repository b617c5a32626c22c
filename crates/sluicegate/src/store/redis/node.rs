//! One server: its connections, its circuit breaker, its probe.
//!
//! A node keeps itself connected and finds out by itself whether its server is well; callers only ever use what is
//! there, and wait no longer than their deadline. A call whose fate is unknown is reported as such and never sent
//! again from here; one that certainly did not run may be.

mod common;
mod keeper;
mod probe;

pub(super) use common::Common;

use super::super::ErrorClass;
use super::address::Address;
use super::answer::{self, Reply};
use super::breaker::{Breaker, Change, Phase};
use super::call::{Answer, Call, Repeat, Script};
use super::counters::{Counters, count};
use super::error::{Blame, Ran, Trouble, Turn, turn_of};
use super::link::{Link, Message};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// One server. Its connections and tasks end when it is dropped.
pub(super) struct Node {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// What the node's tasks share with its callers.
struct Shared {
    common: Arc<Common>,
    address: Address,
    lanes: Vec<watch::Sender<Option<Arc<Link>>>>,
    breaker: Breaker,
    started: Instant,
    /// Numbers calls, so that the breaker can let every so many pass.
    numbers: AtomicU64,
    /// Numbers messages, so that no two on a connection have the same nonce.
    nonces: AtomicU64,
    /// Why there is no connection.
    last_trouble: Mutex<Option<(ErrorClass, String)>>,
    /// A key that the probe may write.
    probe_key: Mutex<Option<String>>,
    /// Told when the probe should not wait any longer.
    probe_now: Notify,
    /// What the last probe found.
    proof: watch::Sender<Proof>,
    loading: AtomicBool,
    asked: AtomicBool,
    counters: Counters,
}

/// What is known about the server of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It was not asked yet.
    None,
    /// It can be used.
    Good,
    /// It cannot be used.
    Bad,
}

/// What became of a call on one server.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// The server said who has the slot now.
    Moved(String),
    /// The server said who has the key.
    Ask(String),
}

/// How a script is named to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Hash,
    Text,
}

/// What became of one attempt.
enum Attempt {
    Done(Outcome),
    NoScript,
    Late,
}

impl Node {
    /// Starts to keep itself connected, on the current runtime.
    /// `probe_key` is a key that it may write to, if one is known.
    pub(super) fn start(address: Address, common: Arc<Common>, probe_key: Option<String>) -> Self {
        let lanes = (0..common.connections.get()).map(|_| watch::Sender::new(None)).collect();
        let shared = Arc::new(Shared {
            common,
            address,
            lanes,
            breaker: Breaker::default(),
            started: Instant::now(),
            numbers: AtomicU64::new(0),
            nonces: AtomicU64::new(fastrand::u64(..u64::from(u32::MAX))),
            last_trouble: Mutex::new(None),
            probe_key: Mutex::new(probe_key),
            probe_now: Notify::new(),
            proof: watch::Sender::new(Proof::None),
            loading: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let mut tasks = JoinSet::new();
        for lane in 0..shared.lanes.len() {
            tasks.spawn(keeper::keep_connected(Arc::clone(&shared), lane));
        }
        tasks.spawn(probe::probe(Arc::clone(&shared)));
        Self { shared, _tasks: tasks }
    }

    /// Where the server listens.
    pub(super) fn address(&self) -> &Address {
        &self.shared.address
    }

    /// What happened so far.
    pub(super) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Names a key that the probe may write on this server.
    pub(super) fn set_probe_key(&self, key: String) {
        *self.shared.probe_key.lock() = Some(key);
    }

    /// Whether owners of slots have sent calls here since this was last asked.
    pub(super) fn take_asked(&self) -> bool {
        self.shared.asked.swap(false, Ordering::Relaxed)
    }

    /// Why the server cannot be used; nothing if it can.
    pub(super) fn trouble(&self) -> Option<(ErrorClass, String)> {
        let connected = self.shared.lanes.iter().any(|lane| lane.borrow().is_some());
        let proven = *self.shared.proof.borrow() != Proof::Bad && self.shared.breaker.phase() != Phase::Open;
        if connected && proven {
            return None;
        }
        let last = self.shared.last_trouble.lock().clone();
        Some(
            last.unwrap_or_else(|| {
                (ErrorClass::Connection, format!("{}: not connected yet", self.shared.address))
            }),
        )
    }

    /// Returns when there is a connection and the server was tried, or at the deadline.
    pub(super) async fn tried(&self, deadline: Instant) {
        for lane in &self.shared.lanes {
            _ = timeout_at(deadline, lane.subscribe().wait_for(Option::is_some)).await;
        }
        _ = timeout_at(deadline, self.shared.proof.subscribe().wait_for(|proof| *proof != Proof::None)).await;
    }

    /// Asks something that no caller waits for, if there is a connection.
    pub(super) async fn ask(&self, command: Cmd) -> Result<Value, Trouble> {
        let link = self
            .shared
            .connected_link(0)
            .ok_or_else(|| Trouble::with_call(ErrorClass::Connection, "not connected"))?;
        link.ask_within(command, self.shared.common.read_timeout).await
    }

    /// Delivers a call to this server. `asking` tells it that the call was sent here by the owner of the slot.
    pub(super) async fn call(&self, call: &Call<'_>, deadline: Instant, asking: bool) -> Result<Outcome, Trouble> {
        let shared = &self.shared;
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        if !shared.breaker.admits(|| shared.now_ms(Instant::now()), number) {
            return Err(shared.open());
        }
        if asking {
            shared.asked.store(true, Ordering::Relaxed);
        }
        let result = shared.deliver(call, number, deadline, asking).await;
        shared.record(&result);
        result.map_err(|trouble| trouble.at(&shared.address))
    }
}

impl Shared {
    fn now_ms(&self, now: Instant) -> u32 {
        // Wraps around after seven weeks, which the breaker knows.
        (now.duration_since(self.started).as_millis() & u128::from(u32::MAX)) as u32
    }

    async fn deliver(
        &self,
        call: &Call<'_>,
        number: u64,
        deadline: Instant,
        asking: bool,
    ) -> Result<Outcome, Trouble> {
        let link = self.link(number, deadline).await?;
        // It may have waited for the connection, which began another era then.
        if let Repeat::NeverAndOnlyIn(era) = call.repeat
            && era != self.common.era()
        {
            return Err(Trouble::with_call(
                ErrorClass::Connection,
                "the server may have lost what this speaks of",
            ));
        }
        if link.in_flight() >= self.common.in_flight_max.get() as u64 {
            count(&self.counters.overloaded);
            self.probe_now.notify_one();
            let message = format!("{} calls wait for their answers already", self.common.in_flight_max);
            return Err(Trouble::with_call(ErrorClass::Overloaded, message));
        }
        let first_sent = Instant::now();
        let (mut form, mut was_late) = (Form::Hash, false);
        loop {
            match self.attempt(&link, call, form, first_sent, deadline, asking).await? {
                Attempt::Done(outcome) => return Ok(outcome),
                Attempt::NoScript if form == Form::Hash => form = Form::Text,
                // The reply has set our idea of the server's clock right: if there is time left, there is also
                // time on the server.
                Attempt::Late if !was_late && Instant::now() < deadline => was_late = true,
                Attempt::Late => {
                    let message = "the call came after its deadline and did nothing".to_owned();
                    let blame = link.blame_since(first_sent);
                    return Err(Trouble { class: ErrorClass::Timeout, message, ran: Ran::No, blame });
                }
                Attempt::NoScript => {
                    let message = "the server does not know a script that it was given in full";
                    return Err(Trouble::with_call(ErrorClass::Protocol, message));
                }
            }
        }
    }

    async fn attempt(
        &self,
        link: &Link,
        call: &Call<'_>,
        form: Form,
        first_sent: Instant,
        deadline: Instant,
        asking: bool,
    ) -> Result<Attempt, Trouble> {
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed);
        let message = Message::new(command(call, form, link.clock.at(deadline), nonce), asking);
        let sent = Instant::now();
        let value = link.ask(&message, first_sent, deadline).await?;
        if let Value::ServerError(error) = &value {
            return match turn_of(error) {
                Some(Turn::NoScript) => {
                    count(&self.counters.no_script);
                    self.probe_now_to_load();
                    Ok(Attempt::NoScript)
                }
                Some(Turn::Moved(address)) => Ok(Attempt::Done(Outcome::Moved(address))),
                Some(Turn::Ask(address)) => Ok(Attempt::Done(Outcome::Ask(address))),
                None => Err(Trouble::reported(error)),
            };
        }
        let Some(reply) = answer::read(value, nonce) else {
            link.break_off();
            let message = "the reply is not the one to this call; the connection is given up";
            return Err(Trouble::with_server(ErrorClass::Protocol, Ran::Unknown, message));
        };
        let received = Instant::now();
        Ok(match reply {
            Reply::Answered(answer) => {
                link.clock.learn(answer.now.as_micros(), sent, received);
                link.note_answer(received, deadline);
                Attempt::Done(Outcome::Answered(answer))
            }
            Reply::Late { now_micros } => {
                link.clock.learn(now_micros, sent, received);
                count(&self.counters.late);
                Attempt::Late
            }
        })
    }

    /// A connection, as soon as there is one.
    async fn link(&self, number: u64, deadline: Instant) -> Result<Arc<Link>, Trouble> {
        let start = usize::try_from(number).unwrap_or_default() % self.lanes.len();
        if let Some(link) = self.connected_link(start) {
            return Ok(link);
        }
        let mut lane = self.lanes[start].subscribe();
        match timeout_at(deadline, lane.wait_for(Option::is_some)).await {
            Ok(Ok(link)) => link.clone().ok_or_else(|| self.unconnected()),
            _ => Err(self.unconnected()),
        }
    }

    /// The first connection from this lane on, if there is one. One that is silent is used only if all are.
    fn connected_link(&self, start: usize) -> Option<Arc<Link>> {
        let order = || self.lanes.iter().cycle().skip(start).take(self.lanes.len());
        let mut links = order().filter_map(|lane| lane.borrow().clone());
        links.find(|link| !link.is_silent()).or_else(|| order().find_map(|lane| lane.borrow().clone()))
    }

    fn unconnected(&self) -> Trouble {
        let last = self.last_trouble.lock().clone();
        let (class, why) = last.unwrap_or((ErrorClass::Timeout, "not connected yet".to_owned()));
        Trouble::with_server(class, Ran::No, format!("no connection: {why}"))
    }

    fn open(&self) -> Trouble {
        let last = self.last_trouble.lock();
        let why = last.as_ref().map_or("it failed a moment ago", |(_, why)| why);
        Trouble::with_call(ErrorClass::Open, format!("{} is not asked for now: {why}", self.address))
    }

    /// Tells the breaker how a call ended.
    fn record(&self, result: &Result<Outcome, Trouble>) {
        match result {
            Ok(outcome) => {
                if !matches!(outcome, Outcome::Answered(_)) {
                    count(&self.counters.redirected);
                }
                self.breaker.succeeded(self.now_ms(Instant::now()));
            }
            Err(trouble) if trouble.blame == Blame::Server => self.blame(trouble),
            Err(trouble) if trouble.class == ErrorClass::Full => self.doubt_room(),
            Err(_) => {}
        }
    }

    /// Lets the probe find out, by writing, whether the server is full.
    fn doubt_room(&self) {
        let was_good = |proof: &mut Proof| std::mem::replace(proof, Proof::None) == Proof::Good;
        if *self.proof.borrow() == Proof::Good && self.proof.send_if_modified(was_good) {
            self.probe_now.notify_one();
        }
    }

    /// Remembers trouble that speaks against the server.
    fn blame(&self, trouble: &Trouble) {
        let change = self.breaker.failed(self.now_ms(Instant::now()));
        if change == Change::Opened {
            self.opened(trouble);
        }
        if trouble.class == ErrorClass::ReadOnly {
            self.common.doubt.notify_one();
            if self.common.primary_only {
                self.lanes.iter().filter_map(|lane| lane.borrow().clone()).for_each(|link| link.break_off());
            }
        }
    }

    fn opened(&self, trouble: &Trouble) {
        count(&self.counters.opened);
        *self.last_trouble.lock() = Some((trouble.class, trouble.message.clone()));
        self.common.doubt.notify_one();
        self.probe_now.notify_one();
    }

    /// Lets the probe, which is alone, load all scripts: however many calls miss one, it is loaded once.
    fn probe_now_to_load(&self) {
        if !self.loading.swap(true, Ordering::Relaxed) {
            self.probe_now.notify_one();
        }
    }
}

fn command(call: &Call<'_>, form: Form, deadline_micros: u64, nonce: u64) -> Cmd {
    let Script { text, hash } = call.script;
    let keys_bytes: usize = call.keys.iter().map(Vec::len).sum();
    let arguments_bytes: usize = call.arguments.iter().map(|word| word.len()).sum();
    let mut command =
        Cmd::with_capacity(call.keys.len() + call.arguments.len() + 5, keys_bytes + arguments_bytes + 128);
    match form {
        Form::Hash => command.arg("EVALSHA").arg(hash),
        Form::Text => command.arg("EVAL").arg(*text),
    };
    command.arg(call.keys.len()).arg(call.keys).arg(deadline_micros).arg(nonce);
    for word in call.arguments {
        command.arg(word.as_slice());
    }
    command
}

#[cfg(test)]
mod tests;
