//! Locks and atomics: those of parking_lot and std, or those of loom, which explores the interleavings of a model.

#[cfg(not(sluicegate_loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(sluicegate_loom))]
pub(crate) use std::sync::atomic::AtomicU64;
#[cfg(not(sluicegate_loom))]
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(sluicegate_loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(sluicegate_loom)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(sluicegate_loom)]
pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};

/// loom's lock with the signature of parking_lot's.
#[cfg(sluicegate_loom)]
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(sluicegate_loom)]
impl<T> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
