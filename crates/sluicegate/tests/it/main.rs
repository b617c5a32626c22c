//! The library from outside: stores held against the reference, the limiter against its promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests report by panicking")]

mod allocations;
#[cfg(feature = "file")]
mod calendar;
mod conformance;
#[cfg(all(feature = "tower", feature = "file"))]
mod examples;
mod failure_properties;
mod failures;
#[cfg(all(feature = "http", feature = "file"))]
mod gate;
mod hot;
mod limiter;
#[cfg(feature = "redis")]
mod lua_parity;
mod memory;
#[cfg(all(feature = "axum", feature = "file"))]
mod middleware;
#[cfg(feature = "redis")]
mod redis_calendar;
#[cfg(feature = "redis")]
mod redis_company;
#[cfg(feature = "redis")]
mod redis_delivery;
#[cfg(feature = "redis")]
mod redis_denials;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_leases;
#[cfg(feature = "redis")]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_store;
#[cfg(feature = "redis")]
mod redis_undo;
mod several;
mod source_defects;
#[cfg(feature = "opentelemetry")]
mod spans;
mod support;
#[cfg(feature = "jwt")]
mod tokens;
