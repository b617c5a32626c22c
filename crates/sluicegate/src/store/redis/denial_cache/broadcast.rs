//! Invalidations between instances: each instance posts the partitions in which it gave units back, and reads those
//! of all the others.
//!
//! One call does both, once a second and as soon as there is something to post. All refunds within a short time
//! share one call, and no refund waits for it. `lua/invalidations.lua` keeps the last revision of each partition, so
//! neither the number of refunds nor the time since the last reading matters.
//!
//! How long a cached denial may be wrong because of a refund by another instance: until that instance has posted it,
//! which takes at most [`PAUSE_MIN`] and a round trip while the store answers, and then until the next reading here,
//! at most 1.2 s and a round trip later. If exchanges fail, [`EXCHANGE_AGE_MAX`](super::EXCHANGE_AGE_MAX) after the
//! last successful one.

use super::invalidation::PARTITIONS;
use super::{DenialCache, LocalNanos};
use crate::store::redis::client::backoff::jittered;
use crate::store::redis::client::call::{Argument, Call, LatePolicy, Resend, Script, ScriptReply};
use crate::store::redis::client::servers::Servers;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The interval of exchanges, with 20 % jitter.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval between two exchanges. Refunds in between share the next one.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The timeout of an exchange.
const WITHIN: Duration = Duration::from_secs(1);
/// The most partitions in one call, because a script accepts a limited number of arguments.
const POSTED_MAX: usize = 1_000;
/// How far the server's clock and the local clock may diverge between two readings: far more than real drift. Beyond
/// that the server's clock was set.
const DRIFT_MAX: LocalNanos = 10_000_000;

pub(crate) static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../lua/invalidations.lua")));

/// Partitions that the other instances do not know of yet.
#[derive(Debug)]
pub(crate) struct UnsentInvalidations {
    /// One bit for each partition.
    words: [AtomicU64; PARTITIONS / 64],
    added: Notify,
}

struct Exchange {
    servers: Arc<Servers>,
    cache: Arc<DenialCache>,
    key: Vec<u8>,
    /// The last revision that was read; 0 for none.
    revision: u64,
    last: Option<ClockReading>,
}

/// A reading of the server's clock, with the local time before and after it.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    sent_at: LocalNanos,
    received_at: LocalNanos,
    server: LocalNanos,
}

/// Posts and reads invalidations forever. All keys of the store begin with `key_start`.
pub(crate) fn exchange_forever(
    servers: Arc<Servers>,
    cache: Arc<DenialCache>,
    key_start: &str,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let key = format!("{key_start}{{notices}}").into_bytes();
    let mut exchange = Exchange { servers, cache, key, revision: 0, last: None };
    async move {
        loop {
            exchange.exchange().await;
            sleep(PAUSE_MIN).await;
            tokio::select! {
                () = sleep(jittered(INTERVAL - PAUSE_MIN)) => {}
                () = exchange.cache.unsent.added.notified() => {}
            }
        }
    }
}

impl Exchange {
    async fn exchange(&mut self) {
        let posted = self.cache.unsent.take(POSTED_MAX);
        let mut arguments = vec![word(self.revision)];
        arguments.extend(posted.iter().map(|partition| word(u64::from(*partition))));
        let keys = [self.key.clone()];
        let call = Call {
            script: &SCRIPT,
            keys: &keys,
            arguments: &arguments,
            resend: Resend::Allowed,
            late_policy: LatePolicy::default(),
        };
        let sent_at = Instant::now();
        let read = match self.servers.call(&call, sent_at + WITHIN).await {
            Ok(answer) => self.read(&answer, sent_at),
            Err(_) => None,
        };
        if read.is_none() {
            posted.into_iter().for_each(|partition| self.cache.unsent.put_back(partition));
        }
    }

    /// Applies the invalidations of the other instances.
    fn read(&mut self, answer: &ScriptReply, sent_at: Instant) -> Option<()> {
        let body = std::str::from_utf8(&answer.body).ok()?;
        let mut words = body.split(' ');
        self.revision = words.next()?.parse().ok()?;
        for partition in words {
            match partition.parse() {
                Ok(partition) => self.cache.invalidate(partition),
                Err(_) => self.cache.invalidations.invalidate_all(),
            }
        }
        let (sent_at, received_at) = (self.cache.local(sent_at), self.cache.local(Instant::now()));
        let reading = ClockReading { sent_at, received_at, server: answer.now.as_micros().saturating_mul(1_000) };
        if self.last.replace(reading).is_some_and(|last| reading.was_set_since(last)) {
            self.cache.invalidations.invalidate_all();
        }
        self.cache.record_exchange(sent_at);
        Some(())
    }
}

impl ClockReading {
    /// Whether the server's clock has moved by more or less than the local clock since that reading. Then it was
    /// set, or this process was suspended, and the estimates of its time are wrong.
    fn was_set_since(self, last: Self) -> bool {
        let least = self.sent_at.saturating_sub(last.received_at).saturating_sub(DRIFT_MAX);
        let most = self.received_at.saturating_sub(last.sent_at).saturating_add(DRIFT_MAX);
        self.server < last.server.saturating_add(least) || self.server > last.server.saturating_add(most)
    }
}

impl Default for UnsentInvalidations {
    fn default() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)), added: Notify::new() }
    }
}

impl UnsentInvalidations {
    /// Adds a partition, and wakes the exchange.
    pub(crate) fn add(&self, partition: u16) {
        self.put_back(partition);
        self.added.notify_one();
    }

    fn put_back(&self, partition: u16) {
        let partition = usize::from(partition) % PARTITIONS;
        self.words[partition / 64].fetch_or(1 << (partition % 64), Ordering::AcqRel);
    }

    /// Takes out at most `most` partitions.
    fn take(&self, most: usize) -> Vec<u16> {
        let mut taken = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            if taken.len() + 64 > most {
                // The rest goes with the next exchange.
                self.added.notify_one();
                break;
            }
            let bits = word.swap(0, Ordering::AcqRel);
            let set = (0..64).filter(|bit| bits >> bit & 1 == 1);
            // There are far fewer partitions than 2¹⁶.
            taken.extend(set.map(|bit| (index * 64 + bit) as u16));
        }
        taken
    }
}

fn word(number: u64) -> Argument {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
    Argument::from_slice(text.as_bytes())
}

#[cfg(test)]
mod tests;
