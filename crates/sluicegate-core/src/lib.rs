//! Exact rate-limit decisions as pure functions.
//!
//! Everything here is a function of *(state, quota, cost, now)*. There is no clock, no I/O, no lock, no
//! float and no dependency, so the same input gives the same answer on every machine, and the Lua that runs
//! inside Redis can be held against this crate bit for bit.
//!
//! | module | what it holds |
//! |---|---|
//! | [`time`] | [`Micros`] and [`Timestamp`]: integer microseconds |
//! | [`quota`] | [`Rate`], [`Cost`] and [`QuotaError`]: limits that cannot be wrong once built |
//! | [`calendar`] | [`Calendar`]: windows of unequal length |
//! | [`algorithm`] | [`Quota`] and [`State`]: one arm per algorithm, one file each |
//! | [`verdict`] | [`Outcome`], [`Standing`], [`Verdict`]: the answer of one limit |
//! | [`decision`] | several verdicts, one decision: all or nothing, the tightest speaks |
//!
//! What holds for every algorithm, and is tested as a property:
//!
//! * a denied request charges nothing;
//! * waiting exactly `retry_after` is enough, one microsecond less is not;
//! * exactly `remaining` more units pass at the same instant;
//! * a clock that steps back never adds tokens;
//! * forgetting a state after its [`Quota::kept_until`] changes no later answer.
//!
//! # Example
//!
//! ```
//! use sluicegate_core::{Cost, Micros, Outcome, Quota, Rate, Timestamp, TokenBucket};
//!
//! // Ten requests at once, then two per second.
//! let quota = Quota::from(TokenBucket::new(10, Rate::new(2, Micros::from_secs(1))?)?);
//! let now = Timestamp::now(1_705_312_800_000_000);
//!
//! let mut state = None;
//! for _ in 0..10 {
//!     let (next, verdict) = quota.decide(state, Cost::ONE, now);
//!     assert_eq!(verdict.outcome, Outcome::Allowed);
//!     state = next;
//! }
//! let (_, verdict) = quota.decide(state, Cost::ONE, now);
//! assert_eq!(verdict.outcome, Outcome::Denied { retry_after: Micros::from_millis(500) });
//! # Ok::<(), sluicegate_core::QuotaError>(())
//! ```

pub mod algorithm;
pub mod calendar;
pub mod decision;
pub mod quota;
pub mod time;
pub mod verdict;

pub use algorithm::fixed_window::{Align, FixedWindow};
pub use algorithm::sliding_counter::SlidingCounter;
pub use algorithm::sliding_window::SlidingWindow;
pub use algorithm::token_bucket::TokenBucket;
pub use algorithm::{Algorithm, Quota, State};
pub use calendar::Calendar;
pub use quota::{Cost, QuotaError, Rate};
pub use time::{Micros, Timestamp};
pub use verdict::{Outcome, Standing, Verdict};
