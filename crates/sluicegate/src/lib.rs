//! A rate limiter to embed: exact, all or nothing over several limits, bounded in memory.
//!
//! A [`Request`] says who asks for what. [`rules`] say what applies to whom. A [`Limiter`] brings both
//! together with a [`store`] and answers with a [`Decision`]:
//!
//! ```
//! use sluicegate::clock::ManualClock;
//! use sluicegate::core::{Micros, Quota, Rate, SlidingWindow, Timestamp, TokenBucket};
//! use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
//! use sluicegate::{Limiter, MemoryStore, Request, Retry};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! // Five at once and one per second, and never more than 100 in an hour.
//! let burst = Quota::from(TokenBucket::new(5, Rate::new(1, Micros::from_secs(1))?)?);
//! let hourly = Quota::from(SlidingWindow::new(100, Micros::from_secs(3_600))?);
//! let rule = Rule::new("api", Limits::all("api", [(None, burst), (None, hourly)]));
//! let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow)?;
//!
//! let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
//! let limiter = Limiter::new(rules, MemoryStore::default(), clock.clone());
//! let request = Request::new("orders.read", "alice");
//! for _ in 0..5 {
//!     assert!(limiter.check(&request).await?.is_allowed());
//! }
//! let denied = limiter.check(&request).await?;
//! assert_eq!(denied.retry(), Some(Retry::After(Micros::from_secs(1))));
//!
//! clock.advance(Micros::from_secs(1));
//! assert!(limiter.check(&request).await?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way of a request: [`rules::matching`] turns it into charges, [`limiter`] reads the clock and asks the
//! store once (and answers by the rules' policies if that fails), [`decision`] is the answer, [`headers`] writes it for HTTP, [`observe`] tells whoever wants to
//! know.

#[cfg(feature = "http")]
pub mod answer;
#[cfg(feature = "file")]
pub mod calendar;
pub mod clock;
pub mod decision;
#[cfg(feature = "axum")]
mod extract;
#[cfg(feature = "http")]
pub mod gate;
pub mod headers;
pub mod hot;
#[cfg(feature = "http")]
pub mod identify;
pub mod identity;
pub mod instances;
pub mod limiter;
#[cfg(feature = "tower")]
pub mod middleware;
pub mod observe;
pub mod path;
#[cfg(feature = "http")]
pub mod problem;
pub mod rules;
pub mod store;
mod sync;
#[cfg(feature = "opentelemetry")]
pub mod trace;

pub use decision::{Decision, LimitReport, Retry};
pub use identity::{Identity, Request};
pub use instances::Instances;
pub use limiter::{CheckError, Limiter};
pub use observe::Observer;
pub use sluicegate_core as core;
pub use store::MemoryStore;
