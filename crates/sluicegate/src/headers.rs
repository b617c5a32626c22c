//! Rate-limit header fields: from a [`Decision`] to names and values. Pure; it knows no HTTP library.
//!
//! Two styles, together by default: `X-RateLimit-*`, which speaks for the tightest limit, and the IETF
//! draft's `RateLimit-Policy` and `RateLimit`, with one item per limit. Shadow limits are not shown: a client
//! must not slow down for a rule that is only being tried.

use crate::decision::{Decision, LimitReport, Retry};
use crate::rules::Mode;
use sluicegate_core::Outcome;
use std::fmt::Write;

/// Which fields are written, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit`.
    pub ietf: bool,
    /// What `X-RateLimit-Reset` means.
    pub reset: ResetStyle,
    /// `X-RateLimit-Degraded`, where the store had no part in the decision. It tells clients when limits may be
    /// softer than usual, which not everybody wants to tell.
    pub degraded: bool,
}

/// The field that says that the store had no part in an answer, and its only value.
pub const DEGRADED: (&str, &str) = ("x-ratelimit-degraded", "true");

/// What `X-RateLimit-Reset` means.
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

/// Hands every field of `decision` to `write`, names in lower case.
pub fn write_headers(decision: &Decision, options: HeaderOptions, mut write: impl FnMut(&'static str, &str)) {
    let mut value = String::new();
    let mut field = |name, text: std::fmt::Arguments<'_>| {
        value.clear();
        // Writing to a string cannot fail.
        let _ = value.write_fmt(text);
        write(name, &value);
    };
    if let Some(seconds) = retry_after_secs(decision) {
        field("retry-after", format_args!("{seconds}"));
    }
    if options.degraded && decision.is_degraded() {
        field(DEGRADED.0, format_args!("{}", DEGRADED.1));
    }
    let Some(tightest) = decision.tightest() else { return };
    if options.x_ratelimit {
        let reset = match options.reset {
            ResetStyle::Epoch => tightest.reset_at_millis(decision.now()).div_ceil(1_000),
            ResetStyle::Delta => tightest.verdict.reset_after.ceil_secs(),
        };
        field("x-ratelimit-limit", format_args!("{}", tightest.verdict.limit));
        field("x-ratelimit-remaining", format_args!("{}", tightest.verdict.remaining));
        field("x-ratelimit-reset", format_args!("{reset}"));
    }
    if options.ietf {
        field("ratelimit-policy", format_args!("{}", Items(decision, policy_item)));
        field("ratelimit", format_args!("{}", Items(decision, limit_item)));
    }
}

/// Whole seconds after which a denied request may come again, at least one; `None` when it is allowed or
/// waiting does not help.
#[must_use]
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    match decision.retry()? {
        Retry::After(wait) => Some(wait.ceil_secs().max(1)),
        Retry::Never => None,
    }
}

type WriteItem = fn(&mut std::fmt::Formatter<'_>, &LimitReport<'_>) -> std::fmt::Result;

/// A structured-field list, one item per limit that decides.
struct Items<'d>(&'d Decision, WriteItem);

impl std::fmt::Display for Items<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let deciding = self.0.limits().filter(|report| report.mode == Mode::Enforce);
        for (index, report) in deciding.enumerate() {
            if index > 0 {
                formatter.write_str(", ")?;
            }
            write_string(formatter, report.label)?;
            self.1(formatter, &report)?;
        }
        Ok(())
    }
}

fn policy_item(formatter: &mut std::fmt::Formatter<'_>, report: &LimitReport<'_>) -> std::fmt::Result {
    let window_secs = report.quota.window().ceil_secs().max(1);
    write!(formatter, ";q={};w={window_secs}", report.verdict.limit)
}

fn limit_item(formatter: &mut std::fmt::Formatter<'_>, report: &LimitReport<'_>) -> std::fmt::Result {
    let secs = match report.verdict.outcome {
        // A denial's wait, never earlier than Retry-After says.
        Outcome::Denied { retry_after } => retry_after.ceil_secs().max(1),
        Outcome::Allowed | Outcome::NeverAdmissible => report.verdict.reset_after.ceil_secs(),
    };
    write!(formatter, ";r={};t={secs}", report.verdict.remaining)
}

/// A structured-field string. Names are checked where rules are read; whatever else arrives is written so
/// that the field stays well-formed.
fn write_string(formatter: &mut std::fmt::Formatter<'_>, text: &str) -> std::fmt::Result {
    formatter.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(formatter, "\\{character}")?,
            ' '..='~' => formatter.write_char(character)?,
            _ => formatter.write_char('?')?,
        }
    }
    formatter.write_char('"')
}
