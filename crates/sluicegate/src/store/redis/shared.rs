//! The state that a store shares with its calls in flight, and the execution of one script call.

use super::client::call::{Call, LatePolicy, Resend, Script, ScriptReply};
use super::client::error::CallError;
use super::client::silence::WaiterCount;
use super::client::transport::Transport;
use super::coalesce::waiter::WaitQueue;
use super::deferred::DeferredCharges;
use super::denial_cache::insert::PendingCharge;
use super::denial_cache::{CacheMoment, DenialCache};
use super::lease::LocalLeases;
use super::lease::grant::{GrantState, give_back};
use super::protocol::arguments::{DecisionSpec, Operation, ScriptInput};
use super::protocol::calendar_window::CalendarClock;
use super::protocol::key::KeyEncoder;
use super::protocol::reply::{DecisionResult, ParsedReply};
use crate::store::leases::PermitReturn;
use crate::store::{Charge, Reply};
use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The state that a store shares with its calls in flight.
#[derive(Debug)]
pub(crate) struct SharedStore<T> {
    pub(crate) transport: T,
    pub(crate) encoder: KeyEncoder,
    pub(crate) clock: ClockSource,
    /// The requests that wait for a coalesced call: one queue for each route.
    pub(crate) queues: Box<[WaitQueue]>,
    /// How many requests wait for the servers, on all routes together.
    pub(crate) waiter_count: WaiterCount,
    pub(crate) damaged: AtomicU64,
    /// The units of usage beyond the bound on debt.
    pub(crate) cut_off: AtomicU64,
    pub(crate) coalesced: AtomicU64,
    /// The denial cache; none if every denial has to come from the server.
    pub(crate) denial_cache: Option<Arc<DenialCache>>,
    /// Charges of requests that were admitted without the server, to be charged as soon as possible.
    pub(crate) deferred: DeferredCharges,
    /// Permits that are charged in advance.
    pub(crate) leases: LocalLeases,
    /// An estimate of the server's time, for calendar limits.
    pub(crate) calendar_clock: CalendarClock,
}

/// The clock by which scripts decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockSource {
    /// The server's clock.
    Server,
    /// The `now` that the caller passes. Only tests use it.
    #[cfg_attr(not(any(test, feature = "testing")), expect(dead_code, reason = "only tests construct it"))]
    Caller,
}

impl<T: Transport> SharedStore<T> {
    pub(crate) fn new(
        transport: T,
        encoder: KeyEncoder,
        clock: ClockSource,
        denial_cache: Option<Arc<DenialCache>>,
    ) -> Arc<Self> {
        let queues = (0..transport.routes()).map(|_| WaitQueue::default()).collect();
        Arc::new(Self {
            transport,
            encoder,
            clock,
            queues,
            waiter_count: WaiterCount::default(),
            damaged: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            coalesced: AtomicU64::new(0),
            denial_cache,
            deferred: DeferredCharges::default(),
            leases: LocalLeases::new(),
            calendar_clock: CalendarClock::default(),
        })
    }

    /// The route of a call over these charges.
    pub(crate) fn route_of(&self, charges: &[Charge<'_>]) -> usize {
        match charges {
            [first, ..] if self.queues.len() > 1 => self.transport.route_of(&self.encoder.encode(&first.key)),
            _ => 0,
        }
    }

    /// The reply, if this instance holds a permit for the request.
    pub(crate) fn spend_permit(&self, charges: &[Charge<'_>]) -> Option<Reply> {
        self.leases.spend(charges, || self.transport.generation())
    }

    /// The denial, if the denial cache is certain of it. `instant` is an instant just before the lookup.
    pub(crate) fn cached_denial(&self, charges: &[Charge<'_>], now: Timestamp, instant: Instant) -> Option<Reply> {
        let cache = self.denial_cache.as_ref()?;
        cache.lookup(charges, self.cache_moment(cache, now, instant))
    }

    /// The time of the denial cache at `instant`, which is `now` on the caller's clock.
    pub(crate) fn cache_moment(&self, cache: &DenialCache, now: Timestamp, instant: Instant) -> CacheMoment {
        let local = match self.clock {
            ClockSource::Server => cache.local(instant),
            ClockSource::Caller => now.as_micros().saturating_mul(1_000),
        };
        CacheMoment { local, generation: self.transport.generation() }
    }

    /// Executes one script call. The denial cache sees the result first.
    pub(crate) async fn execute<'m>(
        &self,
        script: &Script,
        input: &mut ScriptInput<'m>,
        deadline: Instant,
        late_policy: LatePolicy<'_>,
    ) -> Result<ParsedReply<'m>, CallError> {
        let now = |input: &ScriptInput<'_>, cache: &DenialCache| {
            self.cache_moment(cache, input.expected_now(), Instant::now())
        };
        let pending = self
            .denial_cache
            .as_ref()
            .map(|cache| PendingCharge::start(Arc::clone(cache), input, now(input, cache)));
        let result = self.exchange(script, input, deadline, late_policy).await;
        if let Some(pending) = pending {
            let moment = now(input, pending.cache());
            pending.complete(input, result.as_ref(), moment);
        }
        result
    }

    async fn exchange<'m>(
        &self,
        script: &Script,
        input: &mut ScriptInput<'m>,
        deadline: Instant,
        late_policy: LatePolicy<'_>,
    ) -> Result<ParsedReply<'m>, CallError> {
        let mut answer = self.call(script, input, deadline, late_policy).await?;
        if answer.is_outdated() {
            input.set_time(answer.now);
            answer = self.call(script, input, deadline, late_policy).await?;
        }
        let parsed = ParsedReply::read(&answer, input)?;
        self.damaged.fetch_add(parsed.damaged, Ordering::Relaxed);
        let cut_off: u64 = parsed.decisions.iter().map(DecisionResult::cut_off).sum();
        if cut_off > 0 {
            self.cut_off.fetch_add(cut_off, Ordering::Relaxed);
        }
        Ok(parsed)
    }

    async fn call(
        &self,
        script: &Script,
        input: &ScriptInput<'_>,
        deadline: Instant,
        late_policy: LatePolicy<'_>,
    ) -> Result<ScriptReply, CallError> {
        let is_once = |decision: &DecisionSpec| {
            matches!(decision.operation, Operation::Refund | Operation::Force(_)) || !decision.usage.is_empty()
        };
        let is_once = input.decisions.iter().any(is_once);
        let resend = if is_once { Resend::Never } else { Resend::Allowed };
        let call = Call { script, keys: &input.keys, arguments: &input.arguments, resend, late_policy };
        if !input.has_calendar() {
            return self.transport.call(&call, deadline).await;
        }
        let sent = Instant::now();
        let answer = self.transport.call(&call, deadline).await?;
        self.calendar_clock.learn(&answer, sent);
        Ok(answer)
    }

    /// Gives permits back in a task of its own. Returns the task; none if there is nothing to send.
    pub(crate) fn give_back(
        &self,
        returns: impl IntoIterator<Item = PermitReturn<GrantState>>,
    ) -> Option<JoinHandle<()>> {
        give_back(&self.transport, self.denial_cache.as_ref(), returns, self.leases.uptime())
    }
}
