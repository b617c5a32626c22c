//! This server among those that share its store: when it joins them, and when it leaves.

use std::time::Duration;

use sluicegate::store::redis::Heartbeat;

use crate::app::App;
use crate::settings::StoreUrl;

/// How long the start waits for the store. Whoever asks in the first moment should get a decision rather than what
/// the rules say about a store that fails.
const STORE_WITHIN: Duration = Duration::from_secs(2);

/// How long a server takes to say goodbye.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// A place in the fleet.
#[derive(Debug)]
pub(crate) struct Fleet(Option<Heartbeat>);

impl Fleet {
    /// Waits a moment for a shared store, says how it is, and begins to be counted.
    pub(crate) async fn join(app: &App, url: &StoreUrl) -> Self {
        let Some(store) = app.limiter().store().redis() else { return Self(None) };
        match store.ready(STORE_WITHIN).await {
            Ok(()) => tracing::info!(store = %url, "the store answers"),
            Err(error) => tracing::warn!(
                store = %url,
                class = error.class.name(),
                error = %error.message,
                "the store cannot be used yet: until it can, every rule's on_store_failure answers"
            ),
        }
        Self(Some(store.announce(app.limiter().instances().clone())))
    }

    /// Gives back what was charged ahead and tells the others, if the store answers.
    pub(crate) async fn leave(self, app: &App) {
        let give_back = async {
            if let Some(store) = app.limiter().store().redis() {
                store.close().await;
            }
        };
        // What is not given back is lost until time brings it back, and a server that says nothing is forgotten later.
        let _ = tokio::time::timeout(LEAVE_WITHIN, give_back).await;
        if let Some(heartbeat) = self.0 {
            let _ = tokio::time::timeout(LEAVE_WITHIN, heartbeat.stop()).await;
        }
    }
}
