//! The real binary from outside: what a user, a script or an attacker can see.
//!
//! Every test owns its server on ports that the kernel chose; see [`server::Server`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise, and measure real time"
)]

mod api;
mod canary;
mod check_cli;
mod client;
mod config;
mod dashboard;
mod database;
mod decision_log;
mod deploy;
mod envoy;
mod envoy_ratelimit;
mod explain_cli;
mod fleet;
mod forward_auth;
mod gateway;
mod hostile;
mod limits;
mod metrics;
mod proxy_protocol;
mod readme;
mod redis;
mod reload;
mod resp;
mod same_answer;
mod server;
mod simulate;
mod start;
mod stop;
mod storms;
mod tls;
mod tokens;
mod top;
mod traces;
