//! The memory budgets of buffered request bodies: one per connection, one per address and one per listener.
//!
//! A body that is buffered whole stays in memory until its end, for which a client may make the server wait. Bodies,
//! streams and connections are each bounded, but their product exceeds the memory of a machine. So each chunk counts
//! against all budgets when it arrives. A chunk that exceeds one aborts its request, which frees the request's memory.
//! A body that is forwarded chunk by chunk is not buffered; flow control bounds it.
//!
//! The budget of a listener has two pools: a reserve for small bodies only, and a pool for all others. A body that outgrows the
//! reserve, or finds it full, moves to the other pool as a whole. In each pool an address has a share, so one address cannot use
//! up either. The chunk that completes a body does not count, because the server no longer waits for its client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sluicegate::identify::address::{IPV6_PREFIX_BITS, counted};

use crate::body::BodyFault;

/// The memory of a chunk besides its bytes: some readers keep chunks as they arrived.
const PIECE_BYTES: u64 = 32;

/// The longest small body. Single checks are far shorter.
const SMALL_BODY_BYTES: u64 = 16 * 1_024;

/// The part of a listener's bytes that is reserved for small bodies is 1 / this.
const RESERVE_SHARE: u64 = 8;

/// The largest part of each pool that one address holds is 1 / this.
const ADDRESS_SHARE: u64 = 4;

/// The same for a trusted proxy, which forwards the requests of many clients.
const PROXY_SHARE: u64 = 2;

/// A number of bytes that several holders share.
#[derive(Debug)]
pub(super) struct BodyBudget {
    bytes_max: u64,
    held: AtomicU64,
}

impl BodyBudget {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, held: AtomicU64::new(0) }
    }

    /// Takes this many bytes, if as many are left.
    fn take(&self, bytes: u64) -> bool {
        // Relaxed: the count orders no other memory access.
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before.saturating_add(bytes) <= self.bytes_max;
        if !has_room {
            self.give_back(bytes);
        }
        has_room
    }

    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The pools for small bodies and for all others.
#[derive(Debug)]
struct BudgetPools {
    small: BodyBudget,
    large: BodyBudget,
}

impl BudgetPools {
    /// Pools of 1 / `share` of these.
    fn part(&self, share: u64) -> Self {
        let part = |pool: &BodyBudget| BodyBudget::new(pool.bytes_max / share);
        Self { small: part(&self.small), large: part(&self.large) }
    }
}

/// The budget of all bodies of a listener.
#[derive(Debug)]
pub(super) struct ListenerBudget {
    pools: BudgetPools,
    /// The shares of addresses with a connection that has had an unfinished body, so at most one entry per connection.
    addresses: Mutex<HashMap<IpAddr, Arc<BudgetPools>>>,
}

impl ListenerBudget {
    pub(super) fn new(bytes_max: u64) -> Arc<Self> {
        let reserve = bytes_max / RESERVE_SHARE;
        let pools = BudgetPools { small: BodyBudget::new(reserve), large: BodyBudget::new(bytes_max - reserve) };
        Arc::new(Self { pools, addresses: Mutex::default() })
    }

    /// The share of an address.
    fn acquire_share(&self, address: IpAddr, share: u64) -> Arc<BudgetPools> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(addresses.entry(address).or_insert_with(|| Arc::new(self.pools.part(share))))
    }

    /// Removes the share of an address once no connection uses it.
    fn release_share(&self, address: IpAddr, share: Arc<BudgetPools>) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        drop(share);
        // Shares are cloned and dropped only under the lock, so the count is exact.
        if addresses.get(&address).is_some_and(|share| Arc::strong_count(share) == 1) {
            addresses.remove(&address);
        }
    }
}

/// The bytes of one body in each pool.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    small: u64,
    large: u64,
}

/// The budgets of one connection's bodies.
#[derive(Debug)]
pub(super) struct BodyBudgets {
    connection: BodyBudget,
    /// The connection's address, IPv6 by its /64.
    address: IpAddr,
    is_trusted_proxy: bool,
    /// The share of the address, once the connection has had an unfinished body.
    share: OnceLock<Arc<BudgetPools>>,
    listener: Arc<ListenerBudget>,
}

impl BodyBudgets {
    /// The budgets of a new connection from `address`, which may hold `connection_bytes_max`.
    pub(super) fn new(
        connection_bytes_max: u64,
        listener: Arc<ListenerBudget>,
        address: IpAddr,
        is_trusted_proxy: bool,
    ) -> Self {
        let address = counted(address, IPV6_PREFIX_BITS);
        let connection = BodyBudget::new(connection_bytes_max);
        Self { connection, address, is_trusted_proxy, share: OnceLock::new(), listener }
    }

    /// Counts a chunk of this length.
    pub(super) fn take(&self, held: &mut HeldBytes, bytes: usize) -> Result<(), BodyFault> {
        let bytes = PIECE_BYTES.saturating_add(bytes as u64);
        if !self.connection.take(bytes) {
            return Err(BodyFault::TooManyOfConnection { max: self.connection.bytes_max });
        }
        let listener = &self.listener.pools;
        let share = self.share.get_or_init(|| {
            let part = if self.is_trusted_proxy { PROXY_SHARE } else { ADDRESS_SHARE };
            self.listener.acquire_share(self.address, part)
        });
        let is_small = held.large == 0 && held.small.saturating_add(bytes) <= SMALL_BODY_BYTES;
        if is_small && take_both(&share.small, &listener.small, bytes).is_ok() {
            held.small += bytes;
            return Ok(());
        }
        let moved = held.small.saturating_add(bytes);
        if let Err(fault) = take_both(&share.large, &listener.large, moved) {
            self.connection.give_back(bytes);
            return Err(fault);
        }
        share.small.give_back(held.small);
        listener.small.give_back(held.small);
        *held = HeldBytes { small: 0, large: held.large + moved };
        Ok(())
    }

    /// Gives back the bytes of a body.
    pub(super) fn give_back(&self, held: &HeldBytes) {
        let Some(share) = self.share.get() else { return };
        self.connection.give_back(held.small + held.large);
        for pools in [share, &self.listener.pools] {
            pools.small.give_back(held.small);
            pools.large.give_back(held.large);
        }
    }
}

impl Drop for BodyBudgets {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            self.listener.release_share(self.address, share);
        }
    }
}

/// Takes bytes from a pool, and from the share of an address in it.
fn take_both(share: &BodyBudget, pool: &BodyBudget, bytes: u64) -> Result<(), BodyFault> {
    if !share.take(bytes) {
        return Err(BodyFault::TooManyOfAddress { max: share.bytes_max });
    }
    if !pool.take(bytes) {
        share.give_back(bytes);
        return Err(BodyFault::TooManyOfListener { max: pool.bytes_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn budgets(listener: &Arc<ListenerBudget>, address: &str, is_trusted_proxy: bool) -> BodyBudgets {
        BodyBudgets::new(u64::MAX, Arc::clone(listener), ip(address), is_trusted_proxy)
    }

    /// The bodies of this length that fit, and the error of the next one.
    fn fill(budgets: &BodyBudgets, bytes: usize) -> (Vec<HeldBytes>, BodyFault) {
        let mut all = Vec::new();
        loop {
            let mut held = HeldBytes::default();
            match budgets.take(&mut held, bytes) {
                Ok(()) => all.push(held),
                Err(fault) => return (all, fault),
            }
        }
    }

    #[test]
    fn each_address_has_a_share_of_each_pool() {
        // 8 MiB are reserved for small bodies.
        let listener = ListenerBudget::new(64 << 20);
        let attacker = budgets(&listener, "2001:db8:0:1::1", false);
        let (large, fault) = fill(&attacker, (1 << 20) - 32);
        assert_eq!((large.len(), fault), (14, BodyFault::TooManyOfAddress { max: 14 << 20 }));
        let neighbour = budgets(&listener, "2001:db8:0:1:ffff::2", false);
        assert_eq!(fill(&neighbour, 1 << 19).0.len(), 0, "a /64 is one address");
        let (small, fault) = fill(&neighbour, 16_384 - 32);
        assert_eq!((small.len(), fault), (128, BodyFault::TooManyOfAddress { max: 14 << 20 }), "its reserve");

        let proxy = budgets(&listener, "192.0.2.1", true);
        assert_eq!(fill(&proxy, (1 << 20) - 32).0.len(), 28, "a trusted proxy has half");
        let last = budgets(&listener, "192.0.2.2", false);
        let _rest = fill(&last, (1 << 20) - 32);
        let late = budgets(&listener, "192.0.2.3", false);
        let (none, fault) = fill(&late, 1 << 20);
        assert_eq!((none.len(), fault), (0, BodyFault::TooManyOfListener { max: 56 << 20 }));
        assert!(late.take(&mut HeldBytes::default(), 1_000).is_ok(), "small bodies have their reserve");
    }

    #[test]
    fn a_body_that_grows_moves_to_the_large_pool_and_releases_all_its_bytes() {
        let listener = ListenerBudget::new(64 << 20);
        let one = budgets(&listener, "192.0.2.1", false);
        let mut held = HeldBytes::default();
        for _ in 0..40 {
            one.take(&mut held, 1_000 - 32).expect("room");
        }
        assert_eq!((held.small, held.large), (0, 40_000));
        let share = listener.acquire_share(ip("192.0.2.1"), ADDRESS_SHARE);
        let counts =
            |pools: &BudgetPools| [&pools.small, &pools.large].map(|pool| pool.held.load(Ordering::Relaxed));
        assert_eq!([counts(&share), counts(&listener.pools)], [[0, 40_000]; 2]);
        one.give_back(&held);
        assert_eq!([counts(&share), counts(&listener.pools)], [[0, 0]; 2]);
        listener.release_share(ip("192.0.2.1"), share);
        assert_eq!(listener.addresses.lock().expect("whole").len(), 1);
        drop(one);
        assert!(listener.addresses.lock().expect("whole").is_empty(), "no share is left");
    }

    #[test]
    fn a_chunk_that_does_not_fit_takes_nothing() {
        let listener = ListenerBudget::new(8_000);
        let one = BodyBudgets::new(600, Arc::clone(&listener), ip("192.0.2.1"), false);
        let mut held = HeldBytes::default();
        one.take(&mut held, 568).expect("exactly all of it");
        assert_eq!(one.take(&mut held, 1), Err(BodyFault::TooManyOfConnection { max: 600 }));
        let other = budgets(&listener, "192.0.2.2", false);
        assert_eq!(other.take(&mut HeldBytes::default(), 2_000), Err(BodyFault::TooManyOfAddress { max: 1_750 }));
        one.give_back(&held);
        let held = |budget: &BodyBudget| budget.held.load(Ordering::Relaxed);
        let pools = &listener.pools;
        assert_eq!([&pools.small, &pools.large, &one.connection, &other.connection].map(held), [0; 4]);
    }
}
