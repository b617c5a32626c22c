//! The server binary.

mod body;
mod http;
mod problem;
mod secret;

fn main() {}
