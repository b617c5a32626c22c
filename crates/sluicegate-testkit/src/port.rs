//! Ports for servers: random, free, and still free when a server restarts on its own port.
//!
//! They lie below the range from which the operating system assigns ports to outgoing connections. Any connection of
//! the machine could take a port from that range while its server restarts.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

const FIRST: u16 = 10_240;
/// Linux assigns ports to outgoing connections from 32768 on.
const COUNT: u16 = 32_768 - FIRST;
const ATTEMPTS: u32 = 1_000;

/// A port of 127.0.0.1 without a listener at this moment.
pub fn free() -> u16 {
    (0..ATTEMPTS)
        .map(|_| random())
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .unwrap_or_else(|| panic!("{ATTEMPTS} random ports from {FIRST} on are all taken"))
}

fn random() -> u16 {
    // Each new random state has a new seed, which is random enough here.
    let random = RandomState::new().hash_one(0_u8);
    FIRST + u16::try_from(random % u64::from(COUNT)).unwrap_or_default()
}
