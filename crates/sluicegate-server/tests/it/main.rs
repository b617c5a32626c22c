//! Tests of the real binary from outside, from the view of users, scripts and attackers.
//!
//! Every test owns its server on ports that the kernel assigns; see [`server::Server`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise, and measure real time"
)]

mod api;
mod bounds;
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
mod limit_sets;
mod limits;
mod metrics;
mod oracle;
mod overload;
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
mod usage;
