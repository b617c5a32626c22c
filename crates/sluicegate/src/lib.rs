//! A distributed rate limiter to embed.

pub mod clock;
pub mod identity;
pub mod rules;
pub mod store;
mod sync;

pub use sluicegate_core as core;
