//! The server binary.

#[cfg_attr(not(test), expect(dead_code, reason = "the command line, which calls it, comes separately"))]
mod config;

fn main() {}
