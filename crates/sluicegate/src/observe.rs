//! Who wants to know what was decided: the hook for metrics, logs and dashboards, with none of their
//! libraries.

use crate::decision::Decision;
use crate::store::StoreError;
use std::sync::Arc;

/// Is told of everything that happens to a request. Called on the request's own path, so it must be quick
/// and must not block.
pub trait Observer: Send + Sync {
    /// A request was decided. Not called for peeks, refunds and resets.
    fn decided(&self, decision: &Decision) {
        let _ = decision;
    }

    /// The store could not decide.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
    }
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn decided(&self, decision: &Decision) {
        (**self).decided(decision);
    }

    fn store_failed(&self, error: &StoreError) {
        (**self).store_failed(error);
    }
}
