//! The cap on open connections per client address, for each listener.
//!
//! Without the cap, one machine that opens connections and keeps them could use up the listener's whole connection limit.
//! IPv6 addresses count by their /64, because the owner of one has all of them. Loopback and trusted proxies are exempt:
//! they carry the requests of many clients. The listener's connection limit bounds the memory of the counts.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use sluicegate::identify::address::{IPV6_PREFIX_BITS, TrustedProxies, counted};

use crate::keyed_cap::{CapGuard, KeyedCap};

/// Counts connections per address.
#[derive(Debug)]
pub(super) struct ConnectionCap {
    exempt: TrustedProxies,
    places: Arc<KeyedCap<IpAddr>>,
}

impl ConnectionCap {
    /// At most `max` connections per address, except for addresses in `exempt`.
    pub(super) fn new(max: NonZeroU32, exempt: TrustedProxies) -> Arc<Self> {
        // The accept loop bounds the total.
        Arc::new(Self { exempt, places: KeyedCap::new(u32::MAX, max.get()) })
    }

    /// Counts one more connection of this address; `None` if the address is at its cap.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<AddressPermit> {
        let is_trusted_proxy = self.exempt.contains(address);
        if is_trusted_proxy || address.to_canonical().is_loopback() {
            return Some(AddressPermit { is_trusted_proxy, _place: None });
        }
        let place = self.places.acquire(counted(address, IPV6_PREFIX_BITS)).ok()?;
        Some(AddressPermit { is_trusted_proxy, _place: Some(place) })
    }
}

/// One counted connection. Dropping it decrements the count.
#[derive(Debug)]
pub(super) struct AddressPermit {
    is_trusted_proxy: bool,
    _place: Option<CapGuard<IpAddr>>,
}

impl AddressPermit {
    /// Whether the connection comes from a trusted proxy.
    pub(super) fn is_trusted_proxy(&self) -> bool {
        self.is_trusted_proxy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(max: u32) -> Arc<ConnectionCap> {
        let exempt = TrustedProxies::parse(["10.0.0.0/8"]).expect("a network");
        ConnectionCap::new(NonZeroU32::new(max).expect("not zero"), exempt)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_address_has_its_own_permits_and_drop_releases_them() {
        let cap = cap(2);
        let permits: Vec<_> = (0..2).map(|_| cap.acquire(ip("192.0.2.1")).expect("a permit")).collect();
        assert!(cap.acquire(ip("192.0.2.1")).is_none());
        assert!(cap.acquire(ip("::ffff:192.0.2.1")).is_none(), "the same address in IPv6 notation");
        assert!(cap.acquire(ip("192.0.2.2")).is_some());
        drop(permits);
        assert!(cap.acquire(ip("192.0.2.1")).is_some());
    }

    #[test]
    fn an_ipv6_network_of_64_bits_counts_as_one_address() {
        let cap = cap(1);
        let _permit = cap.acquire(ip("2001:db8:0:1::1")).expect("a permit");
        assert!(cap.acquire(ip("2001:db8:0:1:ffff::2")).is_none());
        assert!(cap.acquire(ip("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn loopback_and_trusted_proxies_are_exempt() {
        let cap = cap(1);
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3"] {
            let permits: Vec<_> = (0..10).map(|_| cap.acquire(ip(address))).collect();
            let is_trusted =
                |permit: &Option<AddressPermit>| permit.as_ref().is_some_and(AddressPermit::is_trusted_proxy);
            assert!(permits.iter().all(Option::is_some), "{address}");
            assert_eq!(
                permits.iter().all(is_trusted),
                address == "10.1.2.3",
                "loopback is not trusted: {address}"
            );
        }
    }
}
