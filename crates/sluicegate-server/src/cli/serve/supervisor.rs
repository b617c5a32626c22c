//! Tells the service manager that started the process, if there is one, how far it is. That is systemd with `Type=notify`, or
//! whatever else names a socket in `NOTIFY_SOCKET`.

use sd_notify::NotifyState;

/// Every listener accepts.
pub(super) fn ready() {
    tell(NotifyState::Ready);
}

/// No more requests are taken.
pub(super) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Without a service manager there is nobody to tell.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager in NOTIFY_SOCKET could not be told");
    }
}
