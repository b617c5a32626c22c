//! Rate-limit header fields: turns a [`Decision`] into names and values. Pure, and independent of any HTTP library.
//!
//! Two styles, together by default: `X-RateLimit-*`, which describes the tightest limit, and the IETF draft's
//! `RateLimit-Policy` and `RateLimit`, with one item per limit. Limits in shadow mode are not shown: a client must
//! not slow down for a rule that is only being tried.

use crate::decision::{Decision, LimitReport, Retry};
use crate::rules::Mode;
use sluicegate_core::{Outcome, Timestamp};
use smallvec::SmallVec;
use std::fmt;

/// The fields to write, and their form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit`.
    pub ietf: bool,
    /// The meaning of `X-RateLimit-Reset`.
    pub reset: ResetStyle,
    /// `X-RateLimit-Degraded`, on decisions without the store. It reveals when limits may be less exact than usual,
    /// so it is optional.
    pub degraded: bool,
}

/// The field that marks a decision without the store, and its only value.
pub const DEGRADED: (&str, &str) = ("x-ratelimit-degraded", "true");

/// The meaning of `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// Seconds since the epoch.
    #[default]
    Epoch,
    /// Seconds from now.
    Delta,
}

impl Default for HeaderOptions {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: true, reset: ResetStyle::Epoch, degraded: false }
    }
}

/// A rate-limit header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// `Retry-After`.
    RetryAfter,
    /// `X-RateLimit-Degraded`.
    Degraded,
    /// `X-RateLimit-Limit`.
    Limit,
    /// `X-RateLimit-Remaining`.
    Remaining,
    /// `X-RateLimit-Reset`.
    Reset,
    /// `RateLimit-Policy`.
    Policy,
    /// `RateLimit`.
    RateLimit,
}

impl Field {
    /// The name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry-after",
            Self::Degraded => DEGRADED.0,
            Self::Limit => "x-ratelimit-limit",
            Self::Remaining => "x-ratelimit-remaining",
            Self::Reset => "x-ratelimit-reset",
            Self::Policy => "ratelimit-policy",
            Self::RateLimit => "ratelimit",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Passes every field of `decision` to `write`. Values are visible ASCII.
pub fn write_headers(decision: &Decision, options: HeaderOptions, mut write: impl FnMut(Field, &str)) {
    let mut number = itoa::Buffer::new();
    if let Some(seconds) = retry_after_secs(decision) {
        write(Field::RetryAfter, number.format(seconds));
    }
    if options.degraded && decision.is_degraded() {
        write(Field::Degraded, DEGRADED.1);
    }
    let Some(tightest) = decision.tightest() else { return };
    if options.x_ratelimit {
        let reset = match options.reset {
            ResetStyle::Epoch => tightest.reset_at_millis(decision.now()).div_ceil(1_000),
            ResetStyle::Delta => tightest.verdict.reset_after.ceil_secs(),
        };
        write(Field::Limit, number.format(tightest.verdict.limit));
        write(Field::Remaining, number.format(decision.remaining().unwrap_or(tightest.verdict.remaining)));
        write(Field::Reset, number.format(reset));
    }
    if options.ietf {
        let mut list = List::default();
        write(Field::Policy, list.of(decision, |report| policy_parameters(report, decision.now())));
        write(Field::RateLimit, list.of(decision, limit_parameters));
    }
}

/// The seconds to wait after a denial, rounded up, at least one. `None` if the request is allowed or waiting does not
/// help.
#[must_use]
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    match decision.retry()? {
        Retry::After(wait) => Some(wait.ceil_secs().max(1)),
        Retry::Never => None,
    }
}

/// The parameters of an item. One without a value is left out.
type Parameters = [(&'static str, Option<u64>); 2];

/// For windows of varying length, `w` is the current one.
fn policy_parameters(report: &LimitReport<'_>, now: Timestamp) -> Parameters {
    [(";q=", Some(report.verdict.limit)), (";w=", Some(report.quota.window_at(now).ceil_secs().max(1)))]
}

fn limit_parameters(report: &LimitReport<'_>) -> Parameters {
    let secs = match report.verdict.outcome {
        // The wait of a denial, never shorter than Retry-After.
        Outcome::Denied { retry_after } => Some(retry_after.ceil_secs().max(1)),
        Outcome::Allowed => Some(report.verdict.reset_after.ceil_secs()),
        // Waiting does not cure this denial, and `t` would suggest that it does.
        Outcome::NeverAdmissible => None,
    };
    [(";r=", Some(report.verdict.remaining)), (";t=", secs)]
}

/// A structured-field list with one item per enforced limit. A short list needs no allocation.
#[derive(Default)]
struct List(SmallVec<[u8; 128]>);

impl List {
    fn of(&mut self, decision: &Decision, parameters: impl Fn(&LimitReport<'_>) -> Parameters) -> &str {
        self.0.clear();
        let deciding = decision.limits().filter(|report| report.mode == Mode::Enforce);
        for (index, report) in deciding.enumerate() {
            if index > 0 {
                self.0.extend_from_slice(b", ");
            }
            self.string(report.label);
            for (name, value) in parameters(&report).into_iter().filter_map(|(name, value)| Some((name, value?))) {
                self.0.extend_from_slice(name.as_bytes());
                self.0.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            }
        }
        // Only ASCII was written.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// A structured-field string. Names are validated when rules are read; any other text is escaped so that the
    /// field stays well-formed.
    fn string(&mut self, text: &str) {
        self.0.push(b'"');
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend_from_slice(&[b'\\', character as u8]),
                ' '..='~' => self.0.push(character as u8),
                _ => self.0.push(b'?'),
            }
        }
        self.0.push(b'"');
    }
}
