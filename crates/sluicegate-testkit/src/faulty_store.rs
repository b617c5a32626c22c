//! A store with injected errors, to test how requests behave when the store fails.
//!
//! It is the embedded store with a switch. Tests of the failures of real servers use real servers.

use sluicegate::MemoryStore;
use sluicegate::core::Timestamp;
use sluicegate::store::{Charge, ErrorClass, Health, Reply, Store, StoreError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The embedded store with a switch. Clones share both.
#[derive(Clone, Debug)]
pub struct FaultyStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: MemoryStore,
    switch: Mutex<Switch>,
}

#[derive(Debug, Default)]
struct Switch {
    trouble: Option<Trouble>,
    deadlines: Vec<Duration>,
}

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Every call fails at once.
    Fails(ErrorClass),
    /// Every call hangs until its deadline has passed.
    Hangs,
}

impl FaultyStore {
    /// A store without errors.
    #[must_use]
    pub fn new(store: MemoryStore) -> Self {
        Self(Arc::new(Shared { store, switch: Mutex::default() }))
    }

    /// Injects this error into all calls from now on; `None` removes it.
    pub fn set(&self, trouble: Option<Trouble>) {
        self.switch().trouble = trouble;
    }

    /// The embedded store itself, without injected errors.
    #[must_use]
    pub fn inner(&self) -> &MemoryStore {
        &self.0.store
    }

    /// The deadlines of all calls so far.
    #[must_use]
    pub fn deadlines(&self) -> Vec<Duration> {
        self.switch().deadlines.clone()
    }

    fn switch(&self) -> MutexGuard<'_, Switch> {
        self.0.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn called(&self, deadline: Duration) -> Result<(), StoreError> {
        let trouble = {
            let mut switch = self.switch();
            switch.deadlines.push(deadline);
            switch.trouble
        };
        match trouble {
            None => Ok(()),
            Some(Trouble::Fails(class)) => Err(StoreError::new(class, "told to fail")),
            Some(Trouble::Hangs) => {
                tokio::time::sleep(deadline).await;
                Err(StoreError::new(ErrorClass::Timeout, "told to hang"))
            }
        }
    }
}

impl Store for FaultyStore {
    async fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        self.called(deadline).await?;
        self.0.store.charge(charges, now, deadline).await
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, deadline: Duration) -> Result<Reply, StoreError> {
        self.called(deadline).await?;
        self.0.store.peek(charges, now, deadline).await
    }

    async fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        self.called(deadline).await?;
        self.0.store.refund(charges, now, deadline).await
    }

    async fn report(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        self.called(deadline).await?;
        self.0.store.report(charges, now, deadline).await
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        self.called(deadline).await?;
        self.0.store.reset(charges, now, deadline).await
    }

    fn tracked_keys(&self) -> Option<u64> {
        self.0.store.tracked_keys()
    }

    fn can_fail(&self) -> bool {
        true
    }

    /// True as for shared stores that charge permits in advance, although this store never does.
    fn charges_ahead(&self) -> bool {
        true
    }

    fn health(&self) -> Health {
        match self.switch().trouble {
            None => Health::Up,
            Some(Trouble::Fails(class)) => Health::Down { class },
            Some(Trouble::Hangs) => Health::Down { class: ErrorClass::Timeout },
        }
    }
}
