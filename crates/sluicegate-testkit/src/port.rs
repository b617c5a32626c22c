//! Ports for servers: random, free, and still free when a server comes back to its own.
//!
//! They lie below the range from which the operating system serves outgoing connections. A port out of that
//! range could be taken by any connection of the machine while the server that owns it is being restarted.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

const FIRST: u16 = 10_240;
/// Linux serves outgoing connections from 32768 on.
const COUNT: u16 = 32_768 - FIRST;
const ATTEMPTS: u32 = 1_000;

/// A port of 127.0.0.1 on which nothing listens at this moment.
pub(crate) fn free() -> u16 {
    (0..ATTEMPTS)
        .map(|_| random())
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .unwrap_or_else(|| panic!("{ATTEMPTS} random ports from {FIRST} on are all taken"))
}

fn random() -> u16 {
    // A new random state is seeded anew, which is all the randomness that is needed here.
    let random = RandomState::new().hash_one(0_u8);
    FIRST + u16::try_from(random % u64::from(COUNT)).unwrap_or_default()
}
