//! The operations of a case: requests, refunds, resets, rule changes, and clock steps.

use super::rules::Rules;
use std::fmt;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The tenant.
    pub tenant: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The identifier.
    pub identifier: &'static str,
    /// The last octet of the client's address, if known.
    pub address: Option<u8>,
    /// The tier, if the request names one.
    pub tier: Option<&'static str>,
    /// The cost, if the request names one.
    pub cost: Option<u32>,
    /// Whether a check of it charges the cost even if it is denied.
    pub is_report: bool,
}

/// One operation of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// The clock advances by this many microseconds.
    Advance(u64),
    /// The clock steps back by this many microseconds.
    StepBack(u64),
    /// The clock advances by the last reported wait, plus or minus this many microseconds.
    AdvanceByWait(i64),
    /// The rules are replaced.
    Reload(Box<Rules>),
    /// Requests with one decision. A single request corresponds to `/v1/check` and its neighbours.
    Act(Action, Vec<Ask>),
}

/// The effect of an operation on the charges of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decides, and charges if the request is allowed.
    Check,
    /// Decides without charging.
    Peek,
    /// Refunds the cost.
    Refund,
    /// Charges the cost in full, whether or not it fits; only for a single request.
    Report,
    /// Forgets the client; only for a single request.
    Reset,
}

impl fmt::Display for Ask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, resource, identifier, address, tier, cost, is_report } = self;
        write!(formatter, "{{tenant: {tenant}, resource: {resource}, identifier: {identifier}")?;
        address.map_or(Ok(()), |address| write!(formatter, ", ip: 192.0.2.{address}"))?;
        tier.map_or(Ok(()), |tier| write!(formatter, ", tier: {tier}"))?;
        cost.map_or(Ok(()), |cost| write!(formatter, ", cost: {cost}"))?;
        formatter.write_str(if *is_report { ", charged always}" } else { "}" })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advance(micros) => write!(formatter, "clock +{micros} µs"),
            Self::StepBack(micros) => write!(formatter, "clock -{micros} µs"),
            Self::AdvanceByWait(more) => write!(formatter, "clock + the last wait {more:+} µs"),
            Self::Reload(rules) => write!(formatter, "reload:\n{}", rules.to_yaml()),
            Self::Act(action, asks) => {
                let asks: Vec<String> = asks.iter().map(ToString::to_string).collect();
                write!(formatter, "{action:?} {}", asks.join(" and "))
            }
        }
    }
}
