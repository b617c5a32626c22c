//! Integration tests of the library: the stores against the reference, and the limiter against its guarantees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests report by panicking")]

mod allocations;
mod batch;
#[cfg(feature = "file")]
mod calendar;
mod clock_steps;
mod conformance;
#[cfg(all(feature = "tower", feature = "file"))]
mod examples;
mod failure_properties;
mod failures;
#[cfg(all(feature = "http", feature = "file"))]
mod gate;
mod limit_sets;
mod limiter;
#[cfg(feature = "redis")]
mod lua_parity;
mod memory;
#[cfg(all(feature = "axum", feature = "file"))]
mod middleware;
#[cfg(all(feature = "redis", feature = "file"))]
mod oracle;
mod overflow;
#[cfg(feature = "redis")]
mod redis_calendar;
#[cfg(feature = "redis")]
mod redis_coalescing;
#[cfg(feature = "redis")]
mod redis_delivery;
#[cfg(feature = "redis")]
mod redis_denial_cache;
#[cfg(feature = "redis")]
mod redis_denial_cache_numbers;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_leases;
#[cfg(feature = "redis")]
mod redis_overload;
#[cfg(feature = "redis")]
mod redis_release;
#[cfg(feature = "redis")]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_store;
#[cfg(feature = "redis")]
mod redis_undo;
mod source_defects;
#[cfg(feature = "opentelemetry")]
mod spans;
mod support;
#[cfg(feature = "jwt")]
mod tokens;
mod top_k;
mod usage;
