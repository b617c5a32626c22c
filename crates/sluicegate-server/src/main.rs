//! The server binary.

mod body;
mod http;
mod net;
mod problem;
mod secret;
mod shutdown;
mod telemetry;

fn main() {}
