//! The state of the connection to the control plane and of its configuration, for log, metrics, health and the admin API.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use sluicegate::core::Timestamp;
use tokio::sync::watch;

use super::PROBLEMS_SHOWN_MAX;
use crate::envoy_ratelimit::xds::XdsSettings;
use crate::metrics::ControlPlaneGauges;

/// The state. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct XdsStatus(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<ControlPlane>,
    is_configured: watch::Sender<bool>,
    /// Whether the server is unhealthy until a configuration has arrived.
    needs_configuration: bool,
}

/// The control plane as the admin API shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControlPlane {
    /// Its address.
    pub(crate) server: String,
    /// Whether there is a connection.
    pub(crate) connected: bool,
    /// Whether any configuration has arrived since the start.
    pub(crate) configured: bool,
    /// The version of the last accepted configuration, as the control plane calls it.
    pub(crate) version: String,
    /// The number of domains in force.
    pub(crate) domains: usize,
    /// When the last configuration took effect, in milliseconds since 1970; 0 before the first.
    pub(crate) configured_at: u64,
    /// Configurations that took effect as a whole.
    pub(crate) accepted: u64,
    /// Configurations that were rejected as a whole or in part.
    pub(crate) rejected: u64,
    /// The errors of the last configuration.
    pub(crate) problems: Vec<String>,
    /// Why the last connection ended, if there is none now.
    pub(crate) error: Option<String>,
}

impl XdsStatus {
    /// Before the first connection.
    pub(crate) fn new(settings: &XdsSettings) -> Self {
        let state = Mutex::new(ControlPlane { server: settings.server.clone(), ..ControlPlane::default() });
        let needs_configuration = !settings.is_healthy_without_configuration;
        Self(Arc::new(Shared { state, is_configured: watch::Sender::new(false), needs_configuration }))
    }

    /// Whether the server is unhealthy because no configuration has arrived yet.
    pub(crate) fn is_missing_configuration(&self) -> bool {
        self.0.needs_configuration && !*self.0.is_configured.borrow()
    }

    /// The current state.
    pub(crate) fn current(&self) -> ControlPlane {
        self.0.state.lock().clone()
    }

    /// Waits for the first configuration.
    pub(crate) async fn wait_until_configured(&self) {
        // The sender lives as long as this.
        let _ = self.0.is_configured.subscribe().wait_for(|is_configured| *is_configured).await;
    }

    pub(super) fn connected(&self) {
        let mut state = self.0.state.lock();
        (state.connected, state.error) = (true, None);
        let (server, configured) = (&state.server, state.configured);
        tracing::info!(server, configured, "connected to the control plane");
    }

    pub(super) fn disconnected(&self, error: String) {
        let mut state = self.0.state.lock();
        let (server, domains) = (&state.server, state.domains);
        // A connection that failed before is logged once.
        if state.connected || state.error.as_ref() != Some(&error) {
            match state.configured {
                true => {
                    tracing::warn!(server, error, domains, "no control plane; what was in force stays in force")
                }
                false => {
                    tracing::warn!(server, error, "no control plane, and no configuration yet; no limit applies")
                }
            }
        }
        (state.connected, state.error) = (false, Some(error));
    }

    /// A configuration took effect, as a whole or without the domains that `problems` name.
    pub(super) fn configured(&self, version: &str, domains: usize, problems: &[String], now: Timestamp) {
        let mut state = self.0.state.lock();
        // A version with problems was not accepted.
        if problems.is_empty() {
            version.clone_into(&mut state.version);
        }
        (state.configured, state.domains) = (true, domains);
        state.configured_at = now.as_micros() / 1_000;
        state.count(problems);
        drop(state);
        self.0.is_configured.send_replace(true);
    }

    /// A configuration was rejected as a whole.
    pub(super) fn rejected(&self, problems: &[String]) {
        self.0.state.lock().count(problems);
    }
}

impl ControlPlane {
    /// The state as metrics.
    pub(crate) fn gauges(&self) -> ControlPlaneGauges {
        let Self { connected, configured, accepted, rejected, .. } = *self;
        ControlPlaneGauges { is_connected: connected, is_configured: configured, accepted, rejected }
    }

    fn count(&mut self, problems: &[String]) {
        self.problems = problems.iter().take(PROBLEMS_SHOWN_MAX).cloned().collect();
        let count = if problems.is_empty() { &mut self.accepted } else { &mut self.rejected };
        *count += 1;
    }
}
