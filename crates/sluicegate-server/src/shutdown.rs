//! Stopping: from a signal to two tokens that everything else watches.
//!
//! The first SIGTERM or SIGINT begins the drain: readiness goes off, then [`Shutdown::drain`] is
//! cancelled. A second one cancels [`Shutdown::at_once`]: whoever sends it does not want to wait.
//! Neither token is ever un-cancelled.
//!
//! SIGHUP stops nothing: it asks for a reload of the configuration.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::http::health::{Health, Readiness};
use crate::reload::Reload;

/// The two steps of stopping. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    drain: CancellationToken,
    at_once: CancellationToken,
}

impl Shutdown {
    /// Cancelled when no more work is taken. Endless answers, such as event streams, end on it.
    pub(crate) fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled when not even work in progress is waited for.
    pub(crate) fn at_once(&self) -> &CancellationToken {
        &self.at_once
    }

    /// Takes the next step: the first call begins the drain, the second ends it.
    pub(crate) fn step(&self, health: &Health) {
        if self.drain.is_cancelled() {
            self.at_once.cancel();
            return;
        }
        // In this order, so that whoever sees a closed listener can already see why.
        health.set(Readiness::Stopping);
        self.drain.cancel();
    }
}

/// The signals that the server understands, caught from the moment this exists.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers. Before this, a signal ends the process at once.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Turns stop signals into steps of `shutdown` until there are no more steps, and hangups into reloads.
    pub(crate) async fn forward(mut self, shutdown: Shutdown, health: Health, reload: Reload) {
        while !shutdown.at_once.is_cancelled() {
            let signal = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hangup.recv() => {
                    // A stop signal does not wait for it.
                    tokio::spawn(reload_logged(reload.clone()));
                    continue;
                }
            };
            tracing::info!(signal, "stopping");
            shutdown.step(&health);
        }
    }
}

/// What comes of a reload is in the log; only that there was none is left to tell.
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
