//! Test fixtures and models that several crates share. The crate is never shipped.
//!
//! [`model`] reimplements every algorithm independently. [`mod@reference`] is a store too simple to be wrong.
//! [`conformance`] holds the tests that every store must pass. [`faulty_store`] is a store with injected errors.
//! [`explore`] finds every state of a small system, for example of [`lease_model`]. [`oracle`] compares a whole system
//! with the contract.
//!
//! The feature `servers` adds real servers, which end with the test that owns them: `redis_server` starts one,
//! `redis_cluster` and `redis_sentinel` start several, and `postgres_server` starts a database. `fault_proxy` breaks
//! connections, `front_proxy` runs common reverse proxies, `browser` drives web pages, and `terminal` runs programs in
//! a pseudo-terminal. The feature `envoy` adds `envoy_client`, a client of Envoy's rate limit service. The feature
//! `otlp` adds `otlp_collector`, which receives spans, and the feature `xds` adds `control_plane`, which sends rate limit
//! configurations.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a test kit reports by panicking")]

#[cfg(feature = "servers")]
pub mod browser;
pub mod conformance;
#[cfg(feature = "xds")]
pub mod control_plane;
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
pub mod oracle;
#[cfg(feature = "otlp")]
pub mod otlp_collector;
#[cfg(feature = "servers")]
pub mod poll;
#[cfg(feature = "servers")]
pub mod port;
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
