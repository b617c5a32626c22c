//! The shared store: state in Redis or Valkey, one atomic script call per decision.

mod address;
mod answer;
mod breaker;
mod call;
mod counters;
mod dialer;
mod error;
mod link;
mod node;
mod options;
mod password;
mod pause;
mod server_clock;
mod servers;
mod tls;
mod topology;

pub use options::{OptionsError, RedisOptions};
