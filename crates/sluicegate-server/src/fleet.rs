//! Membership in the fleet of servers that share a store: joining at the start, leaving at the end.

use std::time::Duration;

use sluicegate::store::redis::Heartbeat;

use crate::engine::Engine;
use crate::settings::StoreUrl;

/// How long the start waits for the store, so that the first requests get decisions and not each rule's
/// `on_store_failure`.
const STORE_WITHIN: Duration = Duration::from_secs(2);

/// The deadline for each step of leaving.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// A membership in the fleet.
#[derive(Debug)]
pub(crate) struct Fleet(Option<Heartbeat>);

impl Fleet {
    /// Waits up to [`STORE_WITHIN`] for a shared store, logs its state, and starts the heartbeat that counts this server.
    pub(crate) async fn join(engine: &Engine, url: &StoreUrl) -> Self {
        let Some(store) = engine.limiter().store().redis() else { return Self(None) };
        match store.ready(STORE_WITHIN).await {
            Ok(()) => tracing::info!(store = %url, "the store answers"),
            Err(error) => tracing::warn!(
                store = %url,
                class = error.class.name(),
                error = %error.message,
                "the store cannot be used yet: until it can, every rule's on_store_failure answers"
            ),
        }
        Self(Some(store.announce(engine.limiter().instances().clone())))
    }

    /// Returns leased permits and leaves the count of servers, if the store responds.
    pub(crate) async fn leave(self, engine: &Engine) {
        let give_back = async {
            if let Some(store) = engine.limiter().store().redis() {
                store.close().await;
            }
        };
        // Permits that are not returned are lost until their limit refills. Without a goodbye the heartbeat expires later.
        let _ = tokio::time::timeout(LEAVE_WITHIN, give_back).await;
        if let Some(heartbeat) = self.0 {
            let _ = tokio::time::timeout(LEAVE_WITHIN, heartbeat.stop()).await;
        }
    }
}
