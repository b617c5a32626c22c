//! One operation over the charges of a request, with its deadline.

use super::client::call::{Argument, LatePolicy, Script};
use super::client::error::CallError;
use super::client::transport::Transport;
use super::protocol::arguments::ScriptInput;
use super::protocol::reply::ParsedReply;
use super::protocol::scripts;
use super::shared::{ClockSource, SharedStore};
use crate::store::Charge;
use crate::store::key::Digest;
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Charges, and the deadline of their decision.
pub(crate) struct Request<'r, 'a, T> {
    pub(crate) store: &'r Arc<SharedStore<T>>,
    pub(crate) charges: &'r [Charge<'a>],
    /// The caller's clock.
    pub(crate) now: Timestamp,
    pub(crate) deadline: Instant,
    /// The time from the request's arrival to its deadline.
    pub(crate) allowed: Duration,
}

/// Charges that share a call, by their indices in the request.
pub(crate) type Part = Vec<usize>;

impl<'r, 'a, T: Transport> Request<'r, 'a, T> {
    /// A request that arrives now.
    pub(crate) fn new(
        store: &'r Arc<SharedStore<T>>,
        charges: &'r [Charge<'a>],
        now: Timestamp,
        allowed: Duration,
    ) -> Self {
        Self::since(Instant::now(), store, charges, now, allowed)
    }

    /// A request that arrived at this instant.
    pub(crate) fn since(
        arrived: Instant,
        store: &'r Arc<SharedStore<T>>,
        charges: &'r [Charge<'a>],
        now: Timestamp,
        allowed: Duration,
    ) -> Self {
        Self { store, charges, now, deadline: arrived + allowed, allowed }
    }

    pub(crate) fn has_limits(&self) -> bool {
        self.charges.iter().any(|charge| !charge.quotas.is_empty())
    }

    /// Whether a part of the costs is charged in any case.
    pub(crate) fn has_usage(&self) -> bool {
        has_usage(self.charges)
    }

    /// Whether no two charges have the same key. Only then can the decision be repeated in one call: the script repeats
    /// each limit by itself.
    pub(crate) fn has_distinct_keys(&self) -> bool {
        let mut digests: SmallVec<[Digest; 4]> = self.charges.iter().map(|charge| charge.key.digest()).collect();
        digests.sort_unstable();
        digests.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// The charges in parts that share a call, those of the narrowest subject first.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let route_of = |key: &[u8]| self.store.transport.route_of(key);
        self.grouped((0..self.charges.len()).collect(), |one, other| route_of(one) == route_of(other))
    }

    /// One part for each key, that of the narrowest subject first.
    pub(crate) fn parts_by_key(&self, part: Part) -> Vec<Part> {
        self.grouped(part, |one, other| one == other)
    }

    fn grouped(&self, charges: Part, share_a_call: impl Fn(&[u8], &[u8]) -> bool) -> Vec<Part> {
        let mut parts: Vec<(Vec<u8>, Part)> = Vec::new();
        for index in charges {
            let key = self.store.encoder.encode(&self.charges[index].key);
            match parts.iter_mut().find(|(first, _)| share_a_call(first, &key)) {
                Some((_, part)) => part.push(index),
                None => parts.push((key, vec![index])),
            }
        }
        parts.sort_by_key(|(_, part)| part.iter().map(|index| subject_width(&self.charges[*index])).min());
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// The flow of the request in the fair queue: its narrowest subject, which is the client where there is one.
    pub(crate) fn flow(&self) -> Digest {
        let narrowest = self.charges.iter().min_by_key(|charge| subject_width(charge));
        narrowest.map_or(Digest(0, 0), |charge| charge.key.subject.digest())
    }

    /// An empty script input, with the expected time of the clock that decides.
    pub(crate) fn input(&self) -> ScriptInput<'r> {
        let expected_now = match self.store.clock {
            ClockSource::Server => self.store.calendar_clock.estimate(self.now),
            ClockSource::Caller => self.now,
        };
        ScriptInput::new(&self.store.encoder, expected_now)
    }

    /// Executes one script call.
    pub(crate) async fn execute<'m>(&self, mut input: ScriptInput<'m>) -> Result<ParsedReply<'m>, CallError> {
        let script = self.script(&mut input);
        let _counted = self.store.waiter_count.enter();
        let late_policy = LatePolicy { waiter_count: Some(&self.store.waiter_count), keep_waiting: None };
        self.store.execute(script, &mut input, self.deadline, late_policy).await
    }

    /// The script for this input. If the caller's clock decides, the time becomes one more argument.
    pub(crate) fn script(&self, input: &mut ScriptInput<'_>) -> &'static Script {
        match self.store.clock {
            ClockSource::Server => &scripts::CHARGE,
            ClockSource::Caller => {
                input.arguments.push(Argument::from_slice(self.now.as_micros().to_string().as_bytes()));
                &scripts::CHARGE_AT
            }
        }
    }
}

/// Whether a part of these costs is charged in any case.
pub(crate) fn has_usage(charges: &[Charge<'_>]) -> bool {
    charges.iter().any(|charge| !charge.usage.is_zero())
}

/// A rank of how many clients share a subject: 0 for one client or address, 1 for a tenant, 2 for all.
fn subject_width(charge: &Charge<'_>) -> u8 {
    let subject = &charge.key.subject;
    match (subject.identity.is_some() || subject.address.is_some(), subject.tenant.is_some()) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    }
}
