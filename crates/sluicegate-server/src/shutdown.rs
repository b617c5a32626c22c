//! Shutdown: signals become two cancellation tokens, which all other parts watch.
//!
//! The first SIGTERM or SIGINT begins the drain: the server stops being ready, then [`Shutdown::drain`] is cancelled. A
//! second signal cancels [`Shutdown::at_once`], which ends the server without waiting.
//!
//! SIGHUP requests a reload of the configuration.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::health::{Health, Readiness};
use crate::reload::Reload;

/// The two steps of a shutdown. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    drain: CancellationToken,
    at_once: CancellationToken,
}

impl Shutdown {
    /// Cancelled when the server accepts no more work. Endless responses, such as event streams, end then.
    pub(crate) fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled when the server no longer waits for work in progress.
    pub(crate) fn at_once(&self) -> &CancellationToken {
        &self.at_once
    }

    /// Advances: the first call begins the drain, the second ends it.
    pub(crate) fn step(&self, health: &Health) {
        if self.drain.is_cancelled() {
            self.at_once.cancel();
            return;
        }
        // In this order, so that a client that finds a listener closed can already read the reason.
        health.set(Readiness::Stopping);
        self.drain.cancel();
    }
}

/// The handlers of the server's signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers. Before this call a signal ends the process immediately.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Turns stop signals into steps of `shutdown`, and SIGHUP into reloads, until the last step.
    pub(crate) async fn forward(mut self, shutdown: Shutdown, health: Health, reload: Reload) {
        while !shutdown.at_once.is_cancelled() {
            let signal = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hangup.recv() => {
                    // In its own task, so that a stop signal does not wait for the reload.
                    tokio::spawn(reload_logged(reload.clone()));
                    continue;
                }
            };
            tracing::info!(signal, "stopping");
            shutdown.step(&health);
        }
    }
}

/// The reload logs its own outcome; this logs that there was none.
async fn reload_logged(reload: Reload) {
    tracing::info!(signal = "SIGHUP", "reloading");
    if let Err(no_reload) = reload.now().await {
        tracing::warn!(signal = "SIGHUP", "{no_reload}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_drains_and_the_second_stops_at_once() {
        let (shutdown, health) = (Shutdown::default(), Health::default());
        health.set(Readiness::Ready);

        shutdown.step(&health);
        assert_eq!(health.readiness(), Readiness::Stopping);
        assert!(shutdown.drain().is_cancelled());
        assert!(!shutdown.at_once().is_cancelled());

        shutdown.step(&health);
        assert!(shutdown.at_once().is_cancelled());
    }

    #[tokio::test]
    async fn readiness_is_off_before_the_drain_is_seen() {
        let (shutdown, health) = (Shutdown::default(), Health::default());
        health.set(Readiness::Ready);
        let seen = tokio::spawn({
            let (shutdown, health) = (shutdown.clone(), health.clone());
            async move {
                shutdown.drain().cancelled().await;
                health.readiness()
            }
        });
        shutdown.step(&health);
        assert_eq!(seen.await.expect("the task ends"), Readiness::Stopping);
    }
}
