//! Tests of the fixtures: servers start, answer, die, pause and return.

#![allow(clippy::unwrap_used, reason = "tests report by panicking")]

mod fault_proxy;
mod front_proxy;
mod oracle;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
