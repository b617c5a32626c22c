//! What others have given back: each server posts a notice of what it gave back, and reads those of all the others.
//!
//! One call does both, once a second and as soon as there is something to post; however much is given back in a moment,
//! it is one notice. Nobody who gives back waits for it. A notice names a slot of keys, and `lua/notices.lua` keeps the
//! last one of each, so it does not matter how many are posted or how long somebody has not read.
//!
//! How long a denial may be wrong because of what somebody else gave back: until the notice is posted, which takes
//! [`PAUSE_MIN`] and a round trip at most while the store answers, and then until the next reading here, at most 1.2 s
//! and a round trip later. If that fails, until [`UNHEARD_MAX`](super::UNHEARD_MAX) after the last one that did not.

use super::forgotten::SLOTS;
use super::{Denials, Local};
use crate::store::redis::call::{Answer, Call, Repeat, Script, Word};
use crate::store::redis::pause::jittered;
use crate::store::redis::servers::Servers;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How often notices are read, give or take a fifth.
const INTERVAL: Duration = Duration::from_secs(1);
/// How soon the next notice may follow one: what is given back meanwhile goes with it.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(1);
/// How many slots one call may name: a script can take only so many words at once.
const POSTED_MAX: usize = 1_000;
/// How much the server's clock may differ from ours between two readings before it was set: far more than clocks drift.
const DRIFT_MAX: Local = 10_000_000;

pub(in crate::store::redis) static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../lua/notices.lua")));

/// Slots of which the others do not know yet.
#[derive(Debug)]
pub(super) struct Unsent {
    /// A bit for each slot.
    words: [AtomicU64; SLOTS / 64],
    added: Notify,
}

/// Posts and reads notices until it is dropped.
#[derive(Debug)]
pub(in crate::store::redis) struct NoticeBoard {
    task: JoinHandle<()>,
}

struct Reader {
    servers: Arc<Servers>,
    denials: Arc<Denials>,
    key: Vec<u8>,
    /// The last revision that was read; 0 for none.
    revision: u64,
    last: Option<Reading>,
}

/// When the server's clock was read, and what it showed.
#[derive(Clone, Copy, Debug)]
struct Reading {
    asked: Local,
    answered: Local,
    server: Local,
}

impl NoticeBoard {
    /// Begins to post and read, on the current runtime.
    pub(in crate::store::redis) fn start(servers: Arc<Servers>, denials: Arc<Denials>, key_start: &str) -> Self {
        let key = format!("{key_start}{{notices}}").into_bytes();
        let mut reader = Reader { servers, denials, key, revision: 0, last: None };
        let task = tokio::spawn(async move {
            loop {
                reader.exchange().await;
                sleep(PAUSE_MIN).await;
                tokio::select! {
                    () = sleep(jittered(INTERVAL - PAUSE_MIN)) => {}
                    () = reader.denials.unsent.added.notified() => {}
                }
            }
        });
        Self { task }
    }
}

impl Drop for NoticeBoard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    async fn exchange(&mut self) {
        let posted = self.denials.unsent.take(POSTED_MAX);
        let mut arguments = vec![word(self.revision)];
        arguments.extend(posted.iter().map(|slot| word(u64::from(*slot))));
        let keys = [self.key.clone()];
        let call = Call { script: &SCRIPT, keys: &keys, arguments: &arguments, repeat: Repeat::Allowed };
        let asked = Instant::now();
        let read = match self.servers.call(&call, asked + WITHIN).await {
            Ok(answer) => self.read(&answer, asked),
            Err(_) => None,
        };
        if read.is_none() {
            posted.into_iter().for_each(|slot| self.denials.unsent.put_back(slot));
        }
    }

    /// Forgets what the others have given back.
    fn read(&mut self, answer: &Answer, asked: Instant) -> Option<()> {
        let body = std::str::from_utf8(&answer.body).ok()?;
        let mut words = body.split(' ');
        self.revision = words.next()?.parse().ok()?;
        for slot in words {
            match slot.parse() {
                Ok(slot) => self.denials.forget(slot),
                Err(_) => self.denials.forgotten.forget_everything(),
            }
        }
        let (asked, answered) = (self.denials.local(asked), self.denials.local(Instant::now()));
        let reading = Reading { asked, answered, server: answer.now.as_micros().saturating_mul(1_000) };
        if self.last.replace(reading).is_some_and(|last| reading.was_set_since(last)) {
            self.denials.forgotten.forget_everything();
        }
        self.denials.hear(asked);
        Some(())
    }
}

impl Reading {
    /// Whether the server's clock has moved by more or less than ours since that reading: then it was set, or we stood
    /// still, and what we believe its time to be is wrong.
    fn was_set_since(self, last: Self) -> bool {
        let least = self.asked.saturating_sub(last.answered).saturating_sub(DRIFT_MAX);
        let most = self.answered.saturating_sub(last.asked).saturating_add(DRIFT_MAX);
        self.server < last.server.saturating_add(least) || self.server > last.server.saturating_add(most)
    }
}

impl Default for Unsent {
    fn default() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)), added: Notify::new() }
    }
}

impl Unsent {
    /// One more.
    pub(super) fn add(&self, slot: u16) {
        self.put_back(slot);
        self.added.notify_one();
    }

    fn put_back(&self, slot: u16) {
        let slot = usize::from(slot) % SLOTS;
        self.words[slot / 64].fetch_or(1 << (slot % 64), Ordering::AcqRel);
    }

    /// At most so many, which are not unsent any more.
    fn take(&self, most: usize) -> Vec<u16> {
        let mut taken = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            if taken.len() + 64 > most {
                // The rest goes with the next.
                self.added.notify_one();
                break;
            }
            let bits = word.swap(0, Ordering::AcqRel);
            let set = (0..64).filter(|bit| bits >> bit & 1 == 1);
            // There are far fewer slots than 2¹⁶.
            taken.extend(set.map(|bit| (index * 64 + bit) as u16));
        }
        taken
    }
}

fn word(number: u64) -> Word {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
    Word::from_slice(text.as_bytes())
}

#[cfg(test)]
mod tests;
