//! The state of one client, and the replies to its commands.
//!
//! A session needs no socket: words go in, bytes come out in [`Session::replies`]. Errors start with `ERR`, except
//! the three that clients recognise in a handshake: `NOAUTH`, `WRONGPASS` and `NOPROTO`.

mod describe;
mod handshake;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::CheckError;
use sluicegate::clock::Clock as _;
use sluicegate::core::{Quota, Timestamp};
use sluicegate::observe::Observer as _;
use sluicegate::response::UNAVAILABLE;
use sluicegate::store::StoreError;
use tokio::sync::Semaphore;

use super::check::{self, Check};
use super::command::{self, Command, Verb};
use super::parse::Words;
use super::pipeline::{CALLS_MAX, Called, Pipeline};
use super::reply::{Replies, Version};
use super::throttle::{self, Buckets, Decided, LastQuota, Shown, Throttle};
use crate::config::RespSettings;
use crate::engine::Engine;
use crate::secret::Secret;
use handshake::Names;

/// Wrong passwords after which the connection is closed: enough for a person at a terminal.
const WRONG_PASSWORDS_MAX: u32 = 8;

/// The state that all sessions of a listener share.
#[derive(Debug)]
pub(crate) struct Service {
    engine: Engine,
    password: Option<Secret>,
    buckets: Buckets,
    /// The permits for further calls of pipelines.
    calls: Arc<Semaphore>,
    sessions: AtomicU64,
    started: Timestamp,
}

impl Service {
    /// A service that decides with `engine`, with an optional password.
    pub(crate) fn new(engine: Engine, settings: RespSettings) -> Arc<Self> {
        let RespSettings { password, deadline } = settings;
        let started = engine.limiter().clock().now();
        let (buckets, calls) = (Buckets::new(deadline), Arc::new(Semaphore::new(CALLS_MAX)));
        Arc::new(Self { engine, password, buckets, calls, sessions: AtomicU64::new(0), started })
    }

    /// Whether a password is required.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// The current instant.
    pub(super) fn now(&self) -> Timestamp {
        self.engine.limiter().clock().now()
    }

    /// Decides a CL.THROTTLE, and counts the outcome.
    async fn throttle(&self, throttle: &Throttle<'_>, quota: &Quota, now: Timestamp) -> Called {
        let limiter = self.engine.limiter();
        let called = self.buckets.throttle(limiter, throttle, quota, now).await;
        let watch = limiter.observer();
        let (space, key) = (throttle::SPACE, throttle.key().text());
        if let Ok(Decided { overload: Some(error), .. }) | Err(error) = &called {
            watch.store_failed(error);
        }
        match &called {
            _ if throttle.is_peek() => {}
            Ok(Decided { answer, overload: None }) => {
                watch.inline_decided(space, key, quota, answer.is_limited(), now);
            }
            Ok(Decided { answer, overload: Some(error) }) => {
                watch.inline_decided_in_overload(space, key, quota, answer.is_limited(), error, now);
            }
            Err(error) => watch.inline_undecided(space, key, quota, error, now),
        }
        called.map(|decided| decided.answer)
    }
}

/// The state of the connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Flow {
    /// It stays open.
    Continue,
    /// It closes once everything is sent.
    Close,
}

/// A client.
#[derive(Debug)]
pub(super) struct Session {
    service: Arc<Service>,
    id: u64,
    peer: SocketAddr,
    replies: Replies,
    is_authenticated: bool,
    wrong_passwords: u32,
    names: Names,
    last_quota: LastQuota,
    pipeline: Pipeline,
}

impl Session {
    /// A new client.
    pub(super) fn new(service: Arc<Service>, peer: SocketAddr) -> Self {
        let id = service.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let is_authenticated = service.password.is_none();
        Self {
            service,
            id,
            peer,
            replies: Replies::default(),
            is_authenticated,
            wrong_passwords: 0,
            names: Names::default(),
            last_quota: LastQuota::default(),
            pipeline: Pipeline::default(),
        }
    }

    /// The current instant.
    pub(super) fn now(&self) -> Timestamp {
        self.service.now()
    }

    /// The replies so far.
    pub(super) fn replies(&mut self) -> &mut Replies {
        &mut self.replies
    }

    /// Whether the client has authenticated, or need not.
    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Runs one command that was received at `now`, or starts it: see [`Session::finish`].
    pub(super) async fn execute(&mut self, words: &Words<'_>, now: Timestamp) -> Flow {
        if self.answer_at_once(words, now) {
            return Flow::Continue;
        }
        let Some(name) = words.first() else {
            return Flow::Continue;
        };
        // A cross-protocol request of a browser must not have its body executed line by line.
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            tracing::debug!(peer = %self.peer, "a connection speaks HTTP where RESP is expected, and was closed");
            return Flow::Close;
        }
        let command = command::find(name);
        if !command.is_some_and(|command| command.verb == Verb::Throttle && command.takes(words.len())) {
            // Commands other than CL.THROTTLE may depend on all commands before them.
            self.finish().await;
        }
        if !self.is_authenticated && !command.is_some_and(Command::needs_no_password) {
            self.replies.error("NOAUTH Authentication required.");
            return Flow::Continue;
        }
        match command {
            None => self.unknown(words),
            Some(command) if !command.takes(words.len()) => self.wrong_number_of_words(command.name),
            Some(command) => return self.answer(command.verb, words, now).await,
        }
        Flow::Continue
    }

    /// The fast path: runs a CL.THROTTLE that charges a bucket in the embedded
    /// store. Returns false for all other commands, and for one with an error, which take the general path.
    fn answer_at_once(&mut self, words: &Words<'_>, now: Timestamp) -> bool {
        let limiter = self.service.engine.limiter();
        let Some(store) = limiter.store().memory().filter(|_| self.is_authenticated) else { return false };
        if !words.first().is_some_and(|name| name.eq_ignore_ascii_case(throttle::NAME)) {
            return false;
        }
        let Ok(throttle) = Throttle::read(words) else { return false };
        let Ok(quota) = self.last_quota.of(throttle.shape()) else { return false };
        let Some(answer) = self.service.buckets.throttle_now(store, &throttle, quota, now) else { return false };
        let watch = limiter.observer();
        watch.inline_decided(throttle::SPACE, throttle.key().text(), quota, answer.is_limited(), now);
        answer.write(&mut self.replies);
        true
    }

    /// Waits for all started calls, and writes their replies.
    pub(super) async fn finish(&mut self) {
        while !self.pipeline.is_empty() {
            self.finish_oldest().await;
        }
    }

    async fn finish_oldest(&mut self) {
        if let Some(called) = self.pipeline.next().await {
            self.throttled(&called);
        }
    }

    async fn answer(&mut self, verb: Verb, words: &Words<'_>, now: Timestamp) -> Flow {
        match verb {
            Verb::Throttle => self.throttle(words, now).await,
            Verb::Check => self.check(words, check::Name::Check).await,
            Verb::Report => self.check(words, check::Name::Report).await,
            Verb::Delete => self.delete(words, now).await,
            Verb::Ping => self.ping(words),
            Verb::Echo => self.replies.bulk(&words[1]),
            Verb::Select => self.select(&words[1]),
            Verb::Client => self.client(words),
            Verb::Command => self.describe_commands(words),
            Verb::Info => self.describe_server(now),
            Verb::Hello => return self.hello(words).await,
            Verb::Auth => return self.authenticate(words).await,
            Verb::Reset => self.reset(),
            Verb::Quit => {
                self.replies.simple("OK");
                return Flow::Close;
            }
        }
        Flow::Continue
    }

    async fn throttle(&mut self, words: &Words<'_>, now: Timestamp) {
        let throttle = Throttle::read(words);
        let ready = throttle.and_then(|throttle| Ok((self.last_quota.of(throttle.shape())?, throttle)));
        match ready {
            Ok((quota, throttle)) if self.service.engine.limiter().store().is_shared() => {
                let (quota, throttle) = (quota.clone(), throttle.into_owned());
                self.begin(throttle, quota, now).await;
            }
            Ok((quota, throttle)) => {
                let called = self.service.throttle(&throttle, quota, now).await;
                self.throttled(&called);
            }
            Err(invalid) => {
                self.finish().await;
                self.replies.error(format_args!("ERR {invalid}"));
            }
        }
    }

    /// Starts a call to a shared store, as soon as there is a permit for it. One per connection needs none.
    async fn begin(&mut self, throttle: Throttle<'static>, quota: Quota, now: Timestamp) {
        let permit = loop {
            if self.pipeline.is_empty() {
                break None;
            }
            match Arc::clone(&self.service.calls).try_acquire_owned() {
                Ok(permit) => break Some(permit),
                Err(_) => self.finish_oldest().await,
            }
        };
        let service = Arc::clone(&self.service);
        self.pipeline.push(throttle.key().clone(), async move {
            let called = service.throttle(&throttle, &quota, now).await;
            drop(permit);
            called
        });
    }

    fn throttled(&mut self, called: &Called) {
        match called {
            Ok(answer) => answer.write(&mut self.replies),
            Err(_) => self.undecided(),
        }
    }

    async fn check(&mut self, words: &Words<'_>, name: check::Name) {
        let check = match Check::read(name, words) {
            Ok(check) => check,
            Err(invalid) => return self.replies.error(format_args!("ERR {invalid}")),
        };
        let limiter = self.service.engine.limiter();
        let decided = match name {
            check::Name::Report => limiter.report(check.request()).await,
            check::Name::Check if check.is_peek() => limiter.peek(check.request()).await,
            check::Name::Check => limiter.check(check.request()).await,
        };
        match decided {
            Ok(decision) => check::write(&decision, &mut self.replies),
            // The limiter has notified its observer already.
            Err(CheckError::Store(_)) => self.undecided(),
            Err(invalid) => self.replies.error(format_args!("ERR {invalid}")),
        }
    }

    async fn delete(&mut self, words: &Words<'_>, now: Timestamp) {
        let mut deleted = 0;
        for key in &words[1..] {
            let store = self.service.engine.limiter().store();
            match self.service.buckets.delete(store, key, now).await {
                Ok(was_there) => deleted += u64::from(was_there),
                Err(error) => return self.store_failed(&error),
            }
        }
        self.replies.unsigned(deleted);
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.service.engine.limiter().observer().store_failed(error);
        self.undecided();
    }

    /// The reply omits the reason, which may contain host names.
    fn undecided(&mut self) {
        self.replies.error(format_args!("ERR {UNAVAILABLE}"));
    }

    fn ping(&mut self, words: &Words<'_>) {
        match &words[1..] {
            [] => self.replies.simple("PONG"),
            [message] => self.replies.bulk(message),
            _ => self.wrong_number_of_words("ping"),
        }
    }

    fn select(&mut self, database: &[u8]) {
        let number = std::str::from_utf8(database).ok().and_then(|text| text.parse::<i64>().ok());
        match number {
            Some(0) => self.replies.simple("OK"),
            Some(_) => self.replies.error("ERR DB index is out of range; there is only 0"),
            None => self.replies.error("ERR value is not an integer or out of range"),
        }
    }

    fn unknown(&mut self, words: &Words<'_>) {
        self.replies.error(format_args!("ERR unknown command '{}'", Shown(&words[0])));
    }

    fn wrong_number_of_words(&mut self, name: &str) {
        self.replies.error(format_args!("ERR wrong number of arguments for '{name}' command"));
    }
}

#[cfg(test)]
mod tests;
