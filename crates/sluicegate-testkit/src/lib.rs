//! What the tests of several crates share. Never shipped.
//!
//! [`model`] is a second opinion on every algorithm, [`mod@reference`] a store too simple to be wrong,
//! [`conformance`] what every store must do, [`faulty_store`] a store that fails when it is told to. [`explore`] finds every
//! state of a small system, of which [`lease_model`] is one. With the feature
//! `servers` there are also real servers to run against: `redis_server` starts one, `redis_cluster` and
//! `redis_sentinel` several, `postgres_server` a database, and they die with the test that owns them; `fault_proxy` breaks
//! connections, `front_proxy` runs the proxies that people put in front, `browser` looks at pages and `terminal` at what
//! programs write to one. With the feature `envoy`, `envoy_client` asks as Envoy does; with `otlp`,
//! `otlp_collector` takes spans.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a test kit reports by panicking")]

#[cfg(feature = "servers")]
pub mod browser;
pub mod conformance;
#[cfg(feature = "envoy")]
pub mod envoy_client;
pub mod explore;
#[cfg(feature = "servers")]
pub mod fault_proxy;
pub mod faulty_store;
#[cfg(feature = "servers")]
pub mod front_proxy;
pub mod lease_model;
pub mod model;
#[cfg(feature = "otlp")]
pub mod otlp_collector;
#[cfg(feature = "servers")]
pub mod poll;
#[cfg(feature = "servers")]
mod port;
#[cfg(feature = "servers")]
pub mod postgres_server;
#[cfg(feature = "servers")]
mod process;
#[cfg(feature = "servers")]
pub mod redis_cluster;
#[cfg(feature = "servers")]
pub mod redis_sentinel;
#[cfg(feature = "servers")]
pub mod redis_server;
pub mod reference;
#[cfg(feature = "servers")]
pub mod terminal;
