//! One server: its connections, its circuit breaker and its health probe.
//!
//! A node reconnects and probes its server in the background. Calls only use connections that exist, and wait for
//! one no longer than their deadline. A call of unknown execution fails and is not sent again here. A call
//! that certainly did not run may be sent again.

mod connect;
mod probe;

use crate::store::ErrorClass;
use crate::store::redis::client::address::Address;
use crate::store::redis::client::breaker::{Breaker, Change, Phase};
use crate::store::redis::client::call::{Call, Envelope, LatePolicy, Resend, Script, ScriptReply, read_envelope};
use crate::store::redis::client::dialer::Dialer;
use crate::store::redis::client::error::{CallError, Executed, Fault, Redirect, redirect_of};
use crate::store::redis::client::link::{Link, WireCommand};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// One server. Dropping it ends its connections and tasks.
pub(crate) struct Node {
    shared: Arc<NodeState>,
    _tasks: JoinSet<()>,
}

/// The state that the node's tasks share with its calls.
struct NodeState {
    context: Arc<NodeContext>,
    address: Address,
    lanes: Vec<watch::Sender<Option<Arc<Link>>>>,
    breaker: Breaker,
    started: Instant,
    /// Numbers the calls, so that the breaker can admit a share of them.
    numbers: AtomicU64,
    /// Numbers the messages, so that no two messages on a connection have the same nonce.
    nonces: AtomicU64,
    /// The last error, for health reports and for calls without a connection.
    last_error: Mutex<Option<(ErrorClass, String)>>,
    /// A key that the probe may write.
    probe_key: Mutex<Option<String>>,
    /// Wakes the probe early.
    probe_now: Notify,
    /// The result of the last probe.
    proof: watch::Sender<Proof>,
    loading: AtomicBool,
    got_asking: AtomicBool,
    counters: NodeCounters,
}

/// Whether the server is known to be usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Not probed yet.
    None,
    /// The server is usable.
    Good,
    /// The server is not usable.
    Bad,
}

/// The outcome of a call on one server.
#[derive(Debug)]
pub(crate) enum NodeOutcome {
    /// The script was executed.
    Answered(ScriptReply),
    /// Another server owns the slot; its address.
    Moved(String),
    /// Another server has the key; its address.
    Ask(String),
}

/// How a script is sent: as its hash or as its text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScriptForm {
    Hash,
    Text,
}

/// The outcome of one attempt.
enum Attempt {
    Done(NodeOutcome),
    NoScript,
    Late,
}

impl Node {
    /// Starts to connect, on the current runtime. `probe_key` is a key that the probe may write, if one is known.
    pub(crate) fn start(address: Address, context: Arc<NodeContext>, probe_key: Option<String>) -> Self {
        let lanes = (0..context.connections.get()).map(|_| watch::Sender::new(None)).collect();
        let shared = Arc::new(NodeState {
            context,
            address,
            lanes,
            breaker: Breaker::default(),
            started: Instant::now(),
            numbers: AtomicU64::new(0),
            nonces: AtomicU64::new(fastrand::u64(..u64::from(u32::MAX))),
            last_error: Mutex::new(None),
            probe_key: Mutex::new(probe_key),
            probe_now: Notify::new(),
            proof: watch::Sender::new(Proof::None),
            loading: AtomicBool::new(false),
            got_asking: AtomicBool::new(false),
            counters: NodeCounters::default(),
        });
        let mut tasks = JoinSet::new();
        for lane in 0..shared.lanes.len() {
            tasks.spawn(connect::keep_connected(Arc::clone(&shared), lane));
        }
        tasks.spawn(probe::probe(Arc::clone(&shared)));
        Self { shared, _tasks: tasks }
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &Address {
        &self.shared.address
    }

    /// The counters of this server.
    pub(crate) fn counters(&self) -> &NodeCounters {
        &self.shared.counters
    }

    /// Sets the key that the probe may write.
    pub(crate) fn set_probe_key(&self, key: String) {
        *self.shared.probe_key.lock() = Some(key);
    }

    /// Whether calls with `ASKING` have arrived here since the last call of this method.
    pub(crate) fn take_asking(&self) -> bool {
        self.shared.got_asking.swap(false, Ordering::Relaxed)
    }

    /// Why the server cannot be used; `None` if it can.
    pub(crate) fn error(&self) -> Option<(ErrorClass, String)> {
        let connected = self.shared.lanes.iter().any(|lane| lane.borrow().is_some());
        let proven = *self.shared.proof.borrow() != Proof::Bad && self.shared.breaker.phase() != Phase::Open;
        if connected && proven {
            return None;
        }
        let last = self.shared.last_error.lock().clone();
        Some(
            last.unwrap_or_else(|| {
                (ErrorClass::Connection, format!("{}: not connected yet", self.shared.address))
            }),
        )
    }

    /// Returns when there is a connection and the server was probed, or at the deadline.
    pub(crate) async fn tried(&self, deadline: Instant) {
        for lane in &self.shared.lanes {
            _ = timeout_at(deadline, lane.subscribe().wait_for(Option::is_some)).await;
        }
        _ = timeout_at(deadline, self.shared.proof.subscribe().wait_for(|proof| *proof != Proof::None)).await;
    }

    /// Whether the server has sent nothing after `since`, although a call has been waiting for at least `patience`.
    /// A server without a connection is unresponsive.
    pub(crate) fn is_unresponsive(&self, since: Instant, patience: Duration) -> bool {
        let now = Instant::now();
        let (mut is_connected, mut is_asked) = (false, false);
        for link in self.shared.lanes.iter().filter_map(|lane| lane.borrow().clone()) {
            is_connected = true;
            if link.in_flight() > 0 {
                is_asked = true;
                if !link.is_unresponsive(since, patience, now) {
                    return false;
                }
            }
        }
        is_asked || !is_connected
    }

    /// Sends a command that no request waits for. Fails without a connection.
    pub(crate) async fn ask(&self, command: Cmd) -> Result<Value, CallError> {
        let link = self
            .shared
            .connected_link(0)
            .ok_or_else(|| CallError::of_call(ErrorClass::Connection, "not connected"))?;
        link.ask_within(command, self.shared.context.read_timeout).await
    }

    /// Delivers a call to this server. `asking` marks a call that the owner of the slot has redirected here with
    /// `ASK`.
    pub(crate) async fn call(
        &self,
        call: &Call<'_>,
        deadline: Instant,
        asking: bool,
    ) -> Result<NodeOutcome, CallError> {
        let shared = &self.shared;
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        if !shared.breaker.admits(|| shared.now_ms(Instant::now()), number) {
            return Err(shared.open());
        }
        if asking {
            shared.got_asking.store(true, Ordering::Relaxed);
        }
        let result = shared.deliver(call, number, deadline, asking).await;
        shared.record(&result);
        result.map_err(|error| error.at(&shared.address))
    }
}

impl NodeState {
    fn now_ms(&self, now: Instant) -> u32 {
        // Wraps around after seven weeks. The breaker tolerates that.
        (now.duration_since(self.started).as_millis() & u128::from(u32::MAX)) as u32
    }

    async fn deliver(
        &self,
        call: &Call<'_>,
        number: u64,
        deadline: Instant,
        asking: bool,
    ) -> Result<NodeOutcome, CallError> {
        let link = self.link(number, deadline).await?;
        // The call may have waited for a new connection, which starts a new generation.
        if let Resend::OnceInGeneration(generation) = call.resend
            && generation != self.context.generation()
        {
            return Err(CallError::of_call(
                ErrorClass::Connection,
                "the server may have lost the charge that this call takes back",
            ));
        }
        if link.in_flight() >= self.context.in_flight_max.get() as u64 {
            count(&self.counters.overloaded);
            self.probe_now.notify_one();
            return Err(self.too_many(&link, deadline, call.late_policy));
        }
        let first_sent = Instant::now();
        let (mut form, mut was_late) = (ScriptForm::Hash, false);
        loop {
            match self.attempt(&link, call, form, first_sent, deadline, asking).await? {
                Attempt::Done(outcome) => return Ok(outcome),
                Attempt::NoScript if form == ScriptForm::Hash => form = ScriptForm::Text,
                // The reply has corrected the estimate of the server's clock. If there is time left here, there is
                // time left on the server.
                Attempt::Late if !was_late && Instant::now() < deadline => was_late = true,
                Attempt::Late => {
                    return Err(CallError::overloaded(Executed::No));
                }
                Attempt::NoScript => {
                    let message = "the server reports NOSCRIPT for a script that was sent in full";
                    return Err(CallError::of_call(ErrorClass::Protocol, message));
                }
            }
        }
    }

    async fn attempt(
        &self,
        link: &Link,
        call: &Call<'_>,
        form: ScriptForm,
        first_sent: Instant,
        deadline: Instant,
        asking: bool,
    ) -> Result<Attempt, CallError> {
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed);
        let message = WireCommand::new(command(call, form, link.clock.at(deadline), nonce), asking);
        let sent = Instant::now();
        let value = link.ask(&message, first_sent, deadline, call.late_policy).await?;
        if let Value::ServerError(error) = &value {
            return match redirect_of(error) {
                Some(Redirect::NoScript) => {
                    count(&self.counters.no_script);
                    self.probe_now_to_load();
                    Ok(Attempt::NoScript)
                }
                Some(Redirect::Moved(address)) => Ok(Attempt::Done(NodeOutcome::Moved(address))),
                Some(Redirect::Ask(address)) => Ok(Attempt::Done(NodeOutcome::Ask(address))),
                None => Err(CallError::from_reply(error)),
            };
        }
        let Some(reply) = read_envelope(value, nonce) else {
            link.break_off();
            let message = "the reply belongs to another call; the connection is closed";
            return Err(CallError::of_server(ErrorClass::Protocol, Executed::Unknown, message));
        };
        let received = Instant::now();
        Ok(match reply {
            Envelope::Answered(answer) => {
                link.clock.learn(answer.now.as_micros(), sent, received);
                Attempt::Done(NodeOutcome::Answered(answer))
            }
            Envelope::Late { now_micros } => {
                link.clock.learn(now_micros, sent, received);
                count(&self.counters.late);
                Attempt::Late
            }
        })
    }

    /// The error for a connection with too many calls in flight. The server is overloaded, unless it answers none of
    /// them.
    fn too_many(&self, link: &Link, deadline: Instant, late_policy: LatePolicy<'_>) -> CallError {
        let message = format!("{} calls are in flight already", self.context.in_flight_max);
        let now = Instant::now();
        let allowed = late_policy.keep_waiting.unwrap_or_else(|| deadline.saturating_duration_since(now));
        let since = now.checked_sub(allowed).unwrap_or(now);
        let class = match link.is_unresponsive(since, late_policy.patience(allowed), now) {
            true => ErrorClass::Timeout,
            false => ErrorClass::Overloaded,
        };
        CallError::of_call(class, message)
    }

    /// A connection, as soon as there is one.
    async fn link(&self, number: u64, deadline: Instant) -> Result<Arc<Link>, CallError> {
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

    /// The first open connection, starting at this lane. A connection that missed its last probe is used only if all
    /// have.
    fn connected_link(&self, start: usize) -> Option<Arc<Link>> {
        let order = || self.lanes.iter().cycle().skip(start).take(self.lanes.len());
        let mut links = order().filter_map(|lane| lane.borrow().clone());
        links.find(|link| !link.missed_last_probe()).or_else(|| order().find_map(|lane| lane.borrow().clone()))
    }

    fn unconnected(&self) -> CallError {
        let last = self.last_error.lock().clone();
        let (class, why) = last.unwrap_or((ErrorClass::Timeout, "not connected yet".to_owned()));
        CallError::of_server(class, Executed::No, format!("no connection: {why}"))
    }

    fn open(&self) -> CallError {
        let last = self.last_error.lock();
        let why = last.as_ref().map_or("its calls failed", |(_, why)| why);
        CallError::of_call(
            ErrorClass::Open,
            format!("{} is not called, because its circuit breaker is open: {why}", self.address),
        )
    }

    /// Reports the outcome of a call to the breaker.
    fn record(&self, result: &Result<NodeOutcome, CallError>) {
        match result {
            Ok(outcome) => {
                if !matches!(outcome, NodeOutcome::Answered(_)) {
                    count(&self.counters.redirected);
                }
                self.breaker.succeeded(self.now_ms(Instant::now()));
            }
            Err(error) if error.fault == Fault::Server => self.record_fault(error),
            Err(error) if error.class == ErrorClass::Full => self.doubt_room(),
            Err(_) => {}
        }
    }

    /// Starts a probe that writes, to find out whether the server is out of memory.
    fn doubt_room(&self) {
        let was_good = |proof: &mut Proof| std::mem::replace(proof, Proof::None) == Proof::Good;
        if *self.proof.borrow() == Proof::Good && self.proof.send_if_modified(was_good) {
            self.probe_now.notify_one();
        }
    }

    /// Records an error by a fault of the server.
    fn record_fault(&self, error: &CallError) {
        let change = self.breaker.failed(self.now_ms(Instant::now()));
        if change == Change::Opened {
            self.opened(error);
        }
        if error.class == ErrorClass::ReadOnly {
            self.context.doubt.notify_one();
            if self.context.primary_only {
                self.lanes.iter().filter_map(|lane| lane.borrow().clone()).for_each(|link| link.break_off());
            }
        }
    }

    fn opened(&self, error: &CallError) {
        count(&self.counters.opened);
        *self.last_error.lock() = Some((error.class, error.message.clone()));
        self.context.doubt.notify_one();
        self.probe_now.notify_one();
    }

    /// Makes the probe load all scripts. However many calls miss a script, it is loaded once.
    fn probe_now_to_load(&self) {
        if !self.loading.swap(true, Ordering::Relaxed) {
            self.probe_now.notify_one();
        }
    }
}

/// The settings and signals that all nodes of a store share.
pub(crate) struct NodeContext {
    pub(crate) dialer: Dialer,
    /// Whether replicas must not be used.
    pub(crate) primary_only: bool,
    /// How many connections to keep to each server.
    pub(crate) connections: NonZeroUsize,
    /// The most calls in flight on one connection.
    pub(crate) in_flight_max: NonZeroUsize,
    /// The timeout of commands that no request waits for.
    pub(crate) read_timeout: Duration,
    /// The scripts that are loaded on every new connection.
    pub(crate) scripts: Vec<&'static str>,
    /// The prefix of all keys of the store.
    pub(crate) key_prefix: String,
    /// Signals that another server may have taken over.
    pub(crate) doubt: Arc<Notify>,
    /// The generation of the servers' data. It grows with each event that may have lost state or restored older
    /// state: a new connection, or another owner of a key.
    pub(crate) generation: Arc<AtomicU64>,
}

impl NodeContext {
    /// The current generation of the servers' data.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Starts a new generation: from now on, the data may differ from earlier replies.
    pub(crate) fn begin_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Counters of one server. They only grow.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    /// Connections that were opened.
    pub(crate) connected: AtomicU64,
    /// Connections that were lost.
    pub(crate) lost: AtomicU64,
    /// Calls of a script that the server did not know.
    pub(crate) no_script: AtomicU64,
    /// Calls that were redirected.
    pub(crate) redirected: AtomicU64,
    /// Calls that reached the server after their deadline.
    pub(crate) late: AtomicU64,
    /// How often the circuit breaker opened.
    pub(crate) opened: AtomicU64,
    /// Calls that were rejected because too many were in flight.
    pub(crate) overloaded: AtomicU64,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn command(call: &Call<'_>, form: ScriptForm, deadline_micros: u64, nonce: u64) -> Cmd {
    let Script { text, hash } = call.script;
    let keys_bytes: usize = call.keys.iter().map(Vec::len).sum();
    let arguments_bytes: usize = call.arguments.iter().map(|word| word.len()).sum();
    let mut command =
        Cmd::with_capacity(call.keys.len() + call.arguments.len() + 5, keys_bytes + arguments_bytes + 128);
    match form {
        ScriptForm::Hash => command.arg("EVALSHA").arg(hash),
        ScriptForm::Text => command.arg("EVAL").arg(*text),
    };
    command.arg(call.keys.len()).arg(call.keys).arg(deadline_micros).arg(nonce);
    for word in call.arguments {
        command.arg(word.as_slice());
    }
    command
}

#[cfg(test)]
mod tests;
