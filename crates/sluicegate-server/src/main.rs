//! The server binary.

mod body;
mod problem;

fn main() {}
