//! The accept loop of one listener.
//!
//! A slot is taken before a connection is accepted, so at the cap connections wait in the kernel's
//! backlog and cost us nothing. An error of one connection is forgotten; an error of the machine
//! (no file descriptors, no memory) makes the loop wait longer each time, because it would return
//! at once for as long as the shortage lasts.

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

use super::door::{Door, Entered, Refused};
use super::notice::Notice;
use super::{Listener, Protocol, Slot};

/// Accepts for one listener.
pub(super) struct Acceptor {
    tcp: TcpListener,
    slots: Arc<Semaphore>,
    reception: Reception,
}

/// Sees accepted connections through the door.
struct Reception {
    name: &'static str,
    door: Arc<Door>,
    cut: Notice,
}

impl Acceptor {
    /// Accepts from `listener` as long as there are `slots`; who is at the door when `cut` is given stays outside.
    pub(super) fn new(listener: Listener, slots: Arc<Semaphore>, cut: Notice) -> Self {
        let Listener { name, tcp, door, .. } = listener;
        Self { tcp, slots, reception: Reception { name, door: Arc::new(door), cut } }
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
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
                // Nobody closes this semaphore; were it closed, there would be nothing to accept
                // for.
                std::future::pending::<()>().await;
                continue;
            };
            match self.tcp.accept().await {
                Ok((stream, peer)) => {
                    backoff = Backoff::default();
                    self.reception.start(protocol, stream, peer, slot);
                }
                Err(error) if concerns_one_connection(error.kind()) => {
                    tracing::debug!(listener = self.reception.name, %error, "a connection was gone already");
                }
                Err(error) => {
                    // Said once per shortage, not once per attempt.
                    if backoff.failures == 0 {
                        tracing::warn!(
                            listener = self.reception.name,
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

    /// Takes what the kernel has accepted on our behalf; its clients believe they are connected.
    fn accept_backlog(self, protocol: &impl Protocol) {
        let Ok(listener) = self.tcp.into_std() else {
            return;
        };
        while let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned()
            // The socket is non-blocking, so an empty backlog is an error and ends the loop.
            && let Ok((stream, peer)) = listener.accept()
            && stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            self.reception.start(protocol, stream, peer, slot);
        }
    }
}

impl Reception {
    /// Serves a connection on a task of its own, once it is through the door.
    fn start<P: Protocol>(&self, protocol: &P, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        protocol.prepare(&stream);
        let protocol = protocol.clone();
        match self.door.pass_at_once(stream, peer) {
            Either::Left(Ok(entered)) => {
                tokio::spawn(serve(protocol, entered, permit));
            }
            Either::Left(Err(refused)) => log_refusal(self.name, peer, &refused),
            Either::Right(stream) => {
                let (name, door, cut) = (self.name, Arc::clone(&self.door), self.cut.given());
                tokio::spawn(async move {
                    let entered = tokio::select! {
                        biased;
                        () = cut => return,
                        // Boxed: what a handshake needs is large, and of no use to the connection after it.
                        entered = Box::pin(door.pass(stream, peer)) => entered,
                    };
                    match entered {
                        Ok(entered) => serve(protocol, entered, permit).await,
                        Err(refused) => log_refusal(name, peer, &refused),
                    }
                });
            }
        }
    }
}

fn serve<P: Protocol>(
    protocol: P,
    entered: Entered,
    permit: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + Send {
    let Entered { io, client, place } = entered;
    protocol.serve(io, client, Slot { _permit: permit, _place: place })
}

fn log_refusal(listener: &'static str, peer: SocketAddr, refused: &Refused) {
    tracing::debug!(listener, %peer, %refused, "a connection was not let in");
}

/// Errors that belong to the connection that was about to be accepted.
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
    fn pauses_grow_to_a_second_and_stay_there() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..10).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn running_out_of_file_descriptors_is_not_one_connections_fault() {
        let emfile = std::io::Error::from_raw_os_error(24);
        assert!(!concerns_one_connection(emfile.kind()));
        assert!(concerns_one_connection(ErrorKind::ConnectionAborted));
    }
}
