//! The shared store: state in Redis or Valkey, decided in one atomic script call, and in no more of them than it takes.
//!
//! A charge is answered here if it was paid for ahead (`ahead`) or is known to be denied (`denials`). Otherwise it goes with
//! whoever wants the same decision, and when much is under way with others, too (`queue`, `flight`).
//!
//! The script decides, by the server's clock, and says what it found; the numbers of the answer are computed by the core
//! from that. [`key`] says where states are, `lua/charge.lua` what is said, written and answered. Where the keys of one
//! request cannot share a call, `reserve` says what happens instead. `servers` brings calls to where the keys are,
//! within their deadline or not at all.

mod address;
mod ahead;
mod answer;
mod arguments;
mod breaker;
mod call;
mod counters;
mod dates;
mod deliver;
mod denials;
mod dialer;
mod error;
mod flight;
mod heartbeat;
pub mod key;
mod leases;
mod link;
mod node;
mod options;
mod password;
mod pause;
mod plan;
mod queue;
mod replay;
mod reply;
mod request;
mod reserve;
mod reserved;
mod resetting;
mod script;
mod server_clock;
mod servers;
mod tls;
mod topology;

#[doc(hidden)]
pub use deliver::OneConnection;
pub use heartbeat::Heartbeat;
pub use key::KeyEncoder;
pub use options::{OptionsError, RedisOptions};
pub use servers::Servers;

use super::key::Digest;
use super::leases::Leases;
use super::{Charge, Health, Key, Reply, Savings, Store, StoreError};
use crate::instances::Instances;
use ahead::Sweeper;
use arguments::{Message, Operation};
use call::{Answer, Call, Repeat, Script};
use dates::Dates;
use deliver::Deliver;
use denials::{Denials, NoticeBoard};
use error::Trouble;
use flight::Waiting;
use leases::Held;
use parking_lot::Mutex;
use reply::{Decided, Findings};
use request::Request;
use sluicegate_core::Timestamp;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// State in Redis. See the [module documentation](self).
#[derive(Debug)]
pub struct RedisStore<D = Arc<Servers>> {
    shared: Arc<Shared<D>>,
    _notices: Option<NoticeBoard>,
    _sweeper: Option<Sweeper>,
}

/// What a store shares with the calls that are on their way.
#[derive(Debug)]
struct Shared<D> {
    delivery: D,
    encoder: KeyEncoder,
    clock: Whose,
    /// Those who wait, by the way that their calls go.
    waiting: Box<[Waiting]>,
    damaged: AtomicU64,
    coalesced: AtomicU64,
    /// Who is denied without asking; nothing where the server is always asked.
    denials: Option<Arc<Denials>>,
    /// What has been charged ahead.
    leases: Leases<Digest, Held>,
    /// How many share the limits, as far as anybody has said.
    instances: Mutex<Instances>,
    started: Instant,
    /// What time it is there, for calendars.
    dates: Dates,
}

/// Whose clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Servers,
    Callers,
}

impl KeyEncoder {
    /// The name of `key` as it stands in Redis, for whoever looks for it there.
    #[must_use]
    pub fn name(&self, key: &Key<'_>) -> String {
        String::from_utf8_lossy(&self.encode(key)).into_owned()
    }
}

impl RedisStore {
    /// Whether a store like this one would ever charge these charges ahead: everything that decides has a lease, and takes
    /// no more at once than may be held.
    #[must_use]
    pub fn may_charge_ahead(charges: &[Charge<'_>]) -> bool {
        leases::Terms::of(charges).is_some()
    }

    /// A store on the servers that `options` name, which begins to connect to them on the current runtime and waits for
    /// nothing.
    ///
    /// # Errors
    /// If certificates cannot be used.
    pub fn start(options: &RedisOptions, encoder: KeyEncoder) -> Result<Self, OptionsError> {
        let scripts: [&Script; 3] = [&script::CHARGE, &heartbeat::SCRIPT, &denials::SCRIPT];
        let delivery = Arc::new(Servers::start(options, &scripts, &encoder.start())?);
        let denials = Arc::new(Denials::new());
        let notices = NoticeBoard::start(Arc::clone(&delivery), Arc::clone(&denials), &encoder.start());
        let shared = Shared::new(delivery, encoder, Whose::Servers, Some(denials));
        let sweeper = Sweeper::start(&shared);
        Ok(Self { shared, _notices: Some(notices), _sweeper: Some(sweeper) })
    }

    /// Waits until all servers can be used, but no longer than this.
    ///
    /// # Errors
    /// What is wrong, if some cannot.
    pub async fn ready(&self, within: Duration) -> Result<(), StoreError> {
        self.shared.delivery.ready(within).await
    }

    /// Says from now on that this server lives, and keeps `instances` at the number of those that do.
    pub fn announce(&self, instances: Instances) -> Heartbeat {
        *self.shared.instances.lock() = instances.clone();
        Heartbeat::start(Arc::clone(&self.shared.delivery), &self.shared.encoder.start(), instances)
    }
}

#[doc(hidden)]
impl RedisStore<OneConnection> {
    /// A store on one connection, for tests. If `apart`, only keys with the same tag share a call, as on a Cluster.
    #[must_use]
    pub fn over(connection: redis::aio::MultiplexedConnection, encoder: KeyEncoder, apart: bool) -> Self {
        let delivery = OneConnection::new(connection, apart);
        Self { shared: Shared::new(delivery, encoder, Whose::Servers, None), _notices: None, _sweeper: None }
    }

    /// The same store, but who was denied is denied without asking, as by a store that was started.
    #[must_use]
    pub fn remembering_denials(self) -> Self {
        let Shared { delivery, encoder, clock, .. } = &*self.shared;
        let denials = Some(Arc::new(Denials::new()));
        Self {
            shared: Shared::new(delivery.clone(), encoder.clone(), *clock, denials),
            _notices: None,
            _sweeper: None,
        }
    }

    /// The same store, but the caller's clock counts, and what it writes does not expire before the year 2200.
    #[must_use]
    pub fn by_callers_clock(self) -> Self {
        let Shared { delivery, encoder, denials, .. } = &*self.shared;
        let (delivery, encoder, denials) = (delivery.clone(), encoder.clone(), denials.clone());
        Self { shared: Shared::new(delivery, encoder, Whose::Callers, denials), _notices: None, _sweeper: None }
    }

    /// Makes several decisions in one call, each a charge of its own.
    ///
    /// # Errors
    /// As [`Store::charge`].
    pub async fn charge_together(
        &self,
        requests: &[Vec<Charge<'_>>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Vec<Reply>, StoreError> {
        let once = |charges: &Vec<_>| (NonZeroU32::MIN, charges.clone());
        let requests: Vec<(NonZeroU32, Vec<Charge<'_>>)> = requests.iter().map(once).collect();
        let replies = self.charge_times(&requests, now, deadline).await?;
        Ok(replies.into_iter().flat_map(|(_, replies)| replies).collect())
    }

    /// Makes several decisions in one call, each several times in a row: how many of these are admitted, and a reply to
    /// each.
    ///
    /// # Errors
    /// As [`Store::charge`].
    pub async fn charge_times(
        &self,
        requests: &[(NonZeroU32, Vec<Charge<'_>>)],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<Reply>)>, StoreError> {
        let request = Request::new(&self.shared, &[], now, deadline);
        let mut message = request.message();
        for (times, charges) in requests {
            message.add_times(*times, charges);
        }
        let Findings { now, decisions, .. } = request.say(message).await?;
        let replies = |decided: Decided<'_>| {
            (decided.admitted, decided.replay().map(|verdicts| Reply { now, verdicts }).collect())
        };
        Ok(decisions.into_iter().map(replies).collect())
    }
}

#[doc(hidden)]
impl RedisStore<OneConnection> {
    /// Undoes a charge that was made at this instant, as it is done when a later call of the same request denies.
    ///
    /// # Errors
    /// As [`Store::charge`].
    pub async fn undo(
        &self,
        charges: &[Charge<'_>],
        charged_at: Timestamp,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(&self.shared, charges, now, deadline).act(Operation::Undo(charged_at)).await
    }
}

impl<D> RedisStore<D> {
    /// How many values could not be read so far. Each counted as a drained limit and was replaced.
    pub fn damaged_values(&self) -> u64 {
        self.shared.damaged.load(Ordering::Relaxed)
    }

    /// How many charges so far have waited for a call that others were in, or that others went with.
    pub fn coalesced(&self) -> u64 {
        self.shared.coalesced.load(Ordering::Relaxed)
    }

    /// How many denials were answered without asking the server, because it was certain what it would say.
    pub fn denied_from_cache(&self) -> u64 {
        self.shared.denials.as_ref().map_or(0, |denials| denials.answered())
    }

    /// How many denials are remembered for that. There are never more than 65,536.
    pub fn remembered_denials(&self) -> usize {
        self.shared.denials.as_ref().map_or(0, |denials| denials.kept())
    }

    /// How many calls for charges are under way.
    #[doc(hidden)]
    pub fn under_way(&self) -> usize {
        self.shared.waiting.iter().map(|waiting| waiting.lock().calls()).sum()
    }
}

impl<D: Deliver> Shared<D> {
    fn new(delivery: D, encoder: KeyEncoder, clock: Whose, denials: Option<Arc<Denials>>) -> Arc<Self> {
        let waiting = (0..delivery.ways()).map(|_| Waiting::default()).collect();
        let (damaged, coalesced) = (AtomicU64::new(0), AtomicU64::new(0));
        let (leases, instances, started) = (Leases::default(), Mutex::default(), Instant::now());
        Arc::new(Self {
            delivery,
            encoder,
            clock,
            waiting,
            damaged,
            coalesced,
            denials,
            leases,
            instances,
            started,
            dates: Dates::default(),
        })
    }

    /// One call, and what it found.
    async fn say<'m>(
        &self,
        script: &Script,
        message: &mut Message<'m>,
        deadline: Instant,
    ) -> Result<Findings<'m>, Trouble> {
        let mut answer = self.call(script, message, deadline).await?;
        if answer.is_outdated() {
            message.date(answer.now);
            answer = self.call(script, message, deadline).await?;
        }
        let findings = Findings::read(&answer, message)?;
        self.damaged.fetch_add(findings.damaged, Ordering::Relaxed);
        Ok(findings)
    }

    async fn call(&self, script: &Script, message: &Message<'_>, deadline: Instant) -> Result<Answer, Trouble> {
        let is_refund = message.decisions.iter().any(|question| question.operation == Operation::Refund);
        let repeat = if is_refund { Repeat::Never } else { Repeat::Allowed };
        let call = Call { script, keys: &message.keys, arguments: &message.arguments, repeat };
        if !message.is_dated() {
            return self.delivery.call(&call, deadline).await;
        }
        let sent = Instant::now();
        let answer = self.delivery.call(&call, deadline).await?;
        self.dates.learn(&answer, sent);
        Ok(answer)
    }
}

impl<D: Deliver> Store for RedisStore<D> {
    async fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        // Before denials: who was refused a large cost may still have what was paid for a small one.
        if let Some(paid) = self.shared.spend(charges) {
            return Ok(paid);
        }
        let asked = Instant::now();
        let question = match self.shared.denied(charges, now, asked) {
            Ok(denial) => return Ok(denial),
            Err(question) => question,
        };
        Request { question, ..Request::until(&self.shared, charges, now, asked + deadline) }.charge().await
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, deadline: Duration) -> Result<Reply, StoreError> {
        Request::new(&self.shared, charges, now, deadline).act(Operation::Peek).await
    }

    async fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(&self.shared, charges, now, deadline).act(Operation::Refund).await
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(&self.shared, charges, now, deadline).act(Operation::Reset).await
    }

    fn health(&self) -> Health {
        self.shared.delivery.health()
    }

    fn can_fail(&self) -> bool {
        true
    }

    fn charges_ahead(&self) -> bool {
        true
    }

    fn savings(&self) -> Savings {
        Savings {
            coalesced_requests: Some(self.coalesced()),
            denied_from_cache: Some(self.denied_from_cache()),
            leased_tokens: self.shared.leased_tokens(),
        }
    }
}
