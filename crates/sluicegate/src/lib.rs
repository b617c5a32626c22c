//! An embeddable rate limiter: exact, atomic over several limits, bounded in memory.
//!
//! A [`Request`] names a client and the resource that it requests. The [`rules`] define which limits apply to which
//! requests. A [`Limiter`] combines the rules with a [`store`] and returns a [`Decision`]:
//!
//! ```
//! use sluicegate::clock::ManualClock;
//! use sluicegate::core::{Micros, Quota, Rate, SlidingWindow, Timestamp, TokenBucket};
//! use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
//! use sluicegate::{Limiter, MemoryStore, Request, Retry};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! // At most 5 in a burst, 1 per second, and 100 per hour.
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
//! The path of a request: [`rules::matching`] turns the request into charges. The [`limiter`] reads the clock and
//! calls the store once; if the store fails, it applies the policies of the rules. The result is a [`decision`].
//! [`headers`] renders it for HTTP, and the hooks of [`observe`] report it to metrics, logs and traces.
//!
//! # Layers
//!
//! No module imports one that comes later in this list:
//!
//! - `sync`, [`clock`], `calendar`, [`instances`], [`pattern`], [`path`], [`authority`]
//! - [`identity`]
//! - [`store`]
//! - [`rules`]
//! - [`error`], [`decision`]
//! - [`observe`]
//! - [`limiter`], [`top_k`]
//! - `trace`
//! - HTTP: [`headers`], `problem`, `identify`, `gate`, `response`, `extract`, `middleware`

pub mod authority;
#[cfg(feature = "file")]
pub mod calendar;
pub mod clock;
pub mod decision;
pub mod error;
#[cfg(feature = "axum")]
mod extract;
#[cfg(feature = "http")]
pub mod gate;
pub mod headers;
#[cfg(feature = "http")]
pub mod identify;
pub mod identity;
pub mod instances;
pub mod limiter;
#[cfg(feature = "tower")]
pub mod middleware;
pub mod observe;
pub mod path;
pub mod pattern;
#[cfg(feature = "http")]
pub mod problem;
#[cfg(feature = "http")]
pub mod response;
pub mod rules;
pub mod store;
mod sync;
pub mod top_k;
#[cfg(feature = "opentelemetry")]
pub mod trace;

pub use decision::{Decision, LimitReport, Retry};
pub use error::CheckError;
pub use identity::{Charging, Identity, Request};
pub use instances::Instances;
pub use limiter::Limiter;
pub use observe::Observer;
pub use sluicegate_core as core;
pub use store::MemoryStore;
