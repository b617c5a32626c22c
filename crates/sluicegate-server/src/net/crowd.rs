//! How many connections each client address has open on one listener, and how many it may.
//!
//! Without this, one machine that opens connections and keeps them could take all places of a listener. IPv6 addresses
//! count by their /64, as they do everywhere: whoever has one has all of them. Loopback and trusted proxies are exempt:
//! they speak for many clients. The map holds an entry per address that has a connection open, so it is bounded by the
//! connections of the listener.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate::identify::address::{IPV6_PREFIX_BITS, TrustedProxies, counted};

/// Counts connections per address.
#[derive(Debug)]
pub(super) struct Crowd {
    max: NonZeroU32,
    exempt: TrustedProxies,
    counts: Mutex<HashMap<IpAddr, u32>>,
}

impl Crowd {
    /// At most `max` connections per address, except for those that are `exempt`.
    pub(super) fn new(max: NonZeroU32, exempt: TrustedProxies) -> Arc<Self> {
        Arc::new(Self { max, exempt, counts: Mutex::default() })
    }

    /// A place for one more connection of this address, if it may have one.
    pub(super) fn join(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        if address.to_canonical().is_loopback() || self.exempt.contains(address) {
            return Some(Place(None));
        }
        let address = counted(address, IPV6_PREFIX_BITS);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_insert(0);
        if *count >= self.max.get() {
            return None;
        }
        *count += 1;
        Some(Place(Some((Arc::clone(self), address))))
    }

    fn leave(&self, address: IpAddr) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = counts.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// One connection's place; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place(Option<(Arc<Crowd>, IpAddr)>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((crowd, address)) = self.0.take() {
            crowd.leave(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(max: u32) -> Arc<Crowd> {
        let exempt = TrustedProxies::parse(["10.0.0.0/8"]).expect("a network");
        Crowd::new(NonZeroU32::new(max).expect("not zero"), exempt)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_address_has_its_own_places_and_they_come_back() {
        let crowd = crowd(2);
        let places: Vec<_> = (0..2).map(|_| crowd.join(ip("192.0.2.1")).expect("a place")).collect();
        assert!(crowd.join(ip("192.0.2.1")).is_none());
        assert!(crowd.join(ip("::ffff:192.0.2.1")).is_none(), "the same address, written otherwise");
        assert!(crowd.join(ip("192.0.2.2")).is_some());
        drop(places);
        assert!(crowd.join(ip("192.0.2.1")).is_some());
        assert!(crowd.counts.lock().expect("whole").is_empty(), "nobody is remembered");
    }

    #[test]
    fn a_network_of_sixty_four_bits_is_one_client() {
        let crowd = crowd(1);
        let _place = crowd.join(ip("2001:db8:0:1::1")).expect("a place");
        assert!(crowd.join(ip("2001:db8:0:1:ffff::2")).is_none());
        assert!(crowd.join(ip("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn who_speaks_for_many_is_not_counted() {
        let crowd = crowd(1);
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3"] {
            let places: Vec<_> = (0..10).map(|_| crowd.join(ip(address))).collect();
            assert!(places.iter().all(Option::is_some), "{address}");
        }
        assert!(crowd.counts.lock().expect("whole").is_empty());
    }
}
