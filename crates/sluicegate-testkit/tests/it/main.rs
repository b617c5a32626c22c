//! The fixtures do what they say: servers start, answer, die, stand still and come back.

#![allow(clippy::unwrap_used, reason = "tests report by panicking")]

mod fault_proxy;
mod front_proxy;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
