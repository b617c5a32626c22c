//! The accept loop of one listener.
//!
//! The loop takes a permit before it accepts a connection, so at the cap connections wait in the kernel's backlog at no
//! cost to the server. The error of one connection is ignored. An error of the machine (no file descriptors, no memory)
//! makes the loop back off, because accept would return the same error at once for as long as the shortage lasts.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::admission::{AdmissionError, AdmittedConnection, ConnectionAdmission};
use super::drain::DrainSignal;
use super::{ConnectionGuard, Listener, Protocol};

/// The accept loop of one listener.
pub(super) struct Acceptor {
    tcp: TcpListener,
    permits: Arc<Semaphore>,
    starter: ConnectionStarter,
}

/// Admits and serves accepted connections.
struct ConnectionStarter {
    name: &'static str,
    admission: Arc<ConnectionAdmission>,
    cut: DrainSignal,
}

impl Acceptor {
    /// Accepts from `listener` while there are `permits`. Raising `cut` closes connections whose admission is in progress.
    pub(super) fn new(listener: Listener, permits: Arc<Semaphore>, cut: DrainSignal) -> Self {
        let Listener { name, tcp, admission, .. } = listener;
        Self { tcp, permits, starter: ConnectionStarter { name, admission: Arc::new(admission), cut } }
    }

    /// Accepts until `drain` is cancelled, then closes the listening socket.
    pub(super) async fn run(self, drain: &CancellationToken, protocol: &impl Protocol) {
        // Dropping the future of `accept_forever` loses nothing: accepting is cancel safe.
        tokio::select! {
            biased;
            () = drain.cancelled() => {}
            never = self.accept_forever(protocol) => match never {},
        }
        self.accept_backlog(protocol);
    }

    async fn accept_forever(&self, protocol: &impl Protocol) -> std::convert::Infallible {
        let mut backoff = Backoff::default();
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                // Unreachable: the semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.tcp.accept().await {
                Ok((stream, peer)) => {
                    backoff = Backoff::default();
                    self.starter.start(protocol, stream, peer, permit);
                }
                Err(error) if concerns_one_connection(error.kind()) => {
                    tracing::debug!(listener = self.starter.name, %error, "a connection was closed before it was accepted");
                }
                Err(error) => {
                    // One line per shortage, not one per attempt.
                    if backoff.failures == 0 {
                        tracing::warn!(
                            listener = self.starter.name,
                            %error,
                            "cannot accept connections; raise the limit on open files (ulimit -n)",
                        );
                    }
                    let pause = backoff.next_pause();
                    sleep(pause).await;
                }
            }
        }
    }

    /// Serves the connections that the kernel has accepted already: their clients are connected.
    fn accept_backlog(self, protocol: &impl Protocol) {
        let Ok(listener) = self.tcp.into_std() else {
            return;
        };
        while let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned()
            // The socket is non-blocking, so an empty backlog is an error and ends the loop.
            && let Ok((stream, peer)) = listener.accept()
            && stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            self.starter.start(protocol, stream, peer, permit);
        }
    }
}

impl ConnectionStarter {
    /// Admits a connection and serves it in its own task.
    fn start<P: Protocol>(&self, protocol: &P, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        protocol.prepare(&stream);
        let protocol = protocol.clone();
        match self.admission.try_admit(stream, peer) {
            Either::Left(Ok(admitted)) => {
                tokio::spawn(serve(protocol, admitted, permit));
            }
            Either::Left(Err(error)) => log_rejection(self.name, peer, &error),
            Either::Right(stream) => {
                let (name, admission, cut) = (self.name, Arc::clone(&self.admission), self.cut.raised());
                tokio::spawn(async move {
                    let admitted = tokio::select! {
                        biased;
                        () = cut => return,
                        // Boxed: a handshake needs much memory, which the connection does not need afterwards.
                        admitted = Box::pin(admission.admit(stream, peer)) => admitted,
                    };
                    match admitted {
                        Ok(admitted) => serve(protocol, admitted, permit).await,
                        Err(error) => log_rejection(name, peer, &error),
                    }
                });
            }
        }
    }
}

fn serve<P: Protocol>(
    protocol: P,
    admitted: AdmittedConnection,
    permit: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + Send {
    let AdmittedConnection { io, client, address_permit } = admitted;
    protocol.serve(io, client, ConnectionGuard { _permit: permit, address: address_permit })
}

fn log_rejection(listener: &'static str, peer: SocketAddr, error: &AdmissionError) {
    tracing::debug!(listener, %peer, %error, "a connection was not admitted");
}

/// Whether the error belongs to the connection that was about to be accepted, and not to the listener.
fn concerns_one_connection(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
    )
}

/// Pauses that double from 10 ms to 1 s.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    fn next_pause(&mut self) -> Duration {
        let pause = Duration::from_millis(10 << self.failures.min(7));
        self.failures = self.failures.saturating_add(1);
        pause.min(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_one_second() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..10).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn a_shortage_of_file_descriptors_is_an_error_of_the_listener() {
        let emfile = std::io::Error::from_raw_os_error(24);
        assert!(!concerns_one_connection(emfile.kind()));
        assert!(concerns_one_connection(ErrorKind::ConnectionAborted));
    }
}
