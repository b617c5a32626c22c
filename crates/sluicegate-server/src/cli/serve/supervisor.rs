//! Notifies the service manager of readiness and stopping: systemd with `Type=notify`, or any other that sets `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// Reports that all listeners accept.
pub(super) fn ready() {
    notify(NotifyState::Ready);
}

/// Reports that the server accepts no more requests.
pub(super) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Sends a state. Without a service manager, this does nothing.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager at NOTIFY_SOCKET could not be notified");
    }
}
