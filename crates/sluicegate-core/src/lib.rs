//! Exact rate-limit decisions as pure functions.
//!
//! Everything here is a function of *(state, quota, cost, now)*. There is no clock, I/O, lock, float or dependency.
//! So the same input gives the same result on every machine, and tests compare the Lua scripts for Redis with this
//! crate bit for bit.
//!
//! | module | contents |
//! |---|---|
//! | [`time`] | [`Micros`] and [`Timestamp`]: integer microseconds |
//! | [`quota`] | [`Rate`], [`Cost`] and [`QuotaError`]: the parts of a limit, valid by construction |
//! | [`calendar`] | [`Calendar`]: windows of unequal length |
//! | [`algorithm`] | [`Quota`] and [`State`]: one variant and one file per algorithm |
//! | [`verdict`] | [`Outcome`], [`Standing`], [`Verdict`]: the result of one limit |
//! | [`decision`] | the decision from several verdicts: all or nothing |
//!
//! Invariants of every algorithm, each tested as a property:
//!
//! * a denied request charges nothing;
//! * waiting exactly `retry_after` is enough, and one microsecond less is not;
//! * exactly `remaining` more units are admitted at the same instant;
//! * a clock that steps back never adds tokens;
//! * dropping a state after its [`Quota::kept_until`] changes no later result.
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
//!
//! # Layers
//!
//! A module imports only modules before it in this list.
//!
//! - [`time`]
//! - [`quota`], [`calendar`], [`verdict`]
//! - [`algorithm`]
//! - [`decision`]

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
pub use quota::{Cost, DEBT_LIMITS_MAX, QuotaError, Rate};
pub use time::{Micros, Timestamp};
pub use verdict::{Outcome, Standing, Verdict};
