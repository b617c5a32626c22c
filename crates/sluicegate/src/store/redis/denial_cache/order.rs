//! The order in which a server executed two calls, as far as this process can tell.
//!
//! The observations of one key come from one server, which executes one script at a time. The server's clock orders
//! them; two calls in the same microsecond have no order. If one call was answered before the other was sent, no
//! clock is needed.

use super::LocalNanos;
use sluicegate_core::Timestamp;

/// When a call was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    /// By the server's clock.
    pub(crate) now: Timestamp,
    /// The local time before the call was sent.
    pub(crate) sent_at: LocalNanos,
    /// The local time after the reply.
    pub(crate) received_at: LocalNanos,
}

/// The order of a call relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionOrder {
    Before,
    StatesAfter,
    Unknown,
}

/// The latest known charges to the keys of one set.
///
/// An observation must not enter the table if a charge that was executed later has been answered already, because
/// that charge could not update it. All keys of a set share one stamp, so it sometimes rejects an observation
/// without need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChargeStamp {
    /// The times of `execution` are comparable only within one epoch: see [`ChargeStamp::enter`].
    epoch: u64,
    /// The latest server time of a charge.
    execution: Timestamp,
    /// The latest local time at which a charge was answered.
    received_at: LocalNanos,
    /// The latest local time at which a charge failed without a reply: it was executed before that, or never.
    given_up: LocalNanos,
}

impl Execution {
    /// The order of this call relative to the other.
    pub(crate) fn compared_to(&self, other: &Self) -> ExecutionOrder {
        if self.sent_at >= other.received_at {
            return ExecutionOrder::StatesAfter;
        }
        if self.received_at <= other.sent_at {
            return ExecutionOrder::Before;
        }
        match self.now.cmp(&other.now) {
            std::cmp::Ordering::Less => ExecutionOrder::Before,
            std::cmp::Ordering::Greater => ExecutionOrder::StatesAfter,
            std::cmp::Ordering::Equal => ExecutionOrder::Unknown,
        }
    }
}

impl ChargeStamp {
    /// Enters a new epoch: another server, or a changed clock. Observations of earlier epochs are invalid,
    /// so their server times are dropped. Otherwise a clock that was set back by an hour would reject observations
    /// for an hour.
    pub(crate) fn enter(&mut self, epoch: u64) {
        if epoch > self.epoch {
            (self.epoch, self.execution) = (epoch, Timestamp::default());
        }
    }

    /// Whether the call was executed after every known charge.
    pub(crate) fn is_before(&self, call: &Execution) -> bool {
        let is_after_charges = call.now > self.execution || call.sent_at >= self.received_at;
        is_after_charges && (self.given_up == 0 || call.sent_at > self.given_up)
    }

    /// A charge was answered.
    pub(crate) fn charged(&mut self, call: &Execution) {
        self.execution = self.execution.max(call.now);
        self.received_at = self.received_at.max(call.received_at);
    }

    /// A charge has failed without a reply.
    pub(crate) fn give_up(&mut self, now: LocalNanos) {
        self.given_up = self.given_up.max(now.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(now: u64, sent_at: LocalNanos, received_at: LocalNanos) -> Execution {
        Execution { now: Timestamp::from_micros(now), sent_at, received_at }
    }

    #[test]
    fn the_servers_clock_orders_overlapping_calls_only() {
        let first = execution(100, 10, 20);
        for (other, order) in [
            (execution(101, 15, 30), ExecutionOrder::StatesAfter),
            (execution(99, 15, 30), ExecutionOrder::Before),
            (execution(100, 15, 30), ExecutionOrder::Unknown),
            (execution(50, 20, 30), ExecutionOrder::StatesAfter),
            (execution(500, 5, 10), ExecutionOrder::Before),
        ] {
            assert_eq!(other.compared_to(&first), order, "{other:?}");
        }
    }

    #[test]
    fn a_stamp_rejects_observations_from_before_a_charge() {
        let mut stamp = ChargeStamp::default();
        assert!(stamp.is_before(&execution(1, 0, 1)));
        stamp.charged(&execution(100, 10, 20));
        stamp.charged(&execution(90, 11, 25));
        for (other, is_later) in [
            (execution(101, 15, 30), true),
            (execution(100, 15, 30), false),
            (execution(99, 24, 30), false),
            (execution(99, 25, 30), true),
        ] {
            assert_eq!(stamp.is_before(&other), is_later, "{other:?}");
        }
        stamp.enter(1);
        assert!(stamp.is_before(&execution(5, 15, 30)), "the clock was set back");
        stamp.give_up(40);
        assert!(!stamp.is_before(&execution(500, 40, 50)) && stamp.is_before(&execution(500, 41, 50)));
    }
}
