//! Relays bytes in both directions between a client and an upstream after an upgrade to WebSocket.
//!
//! Nothing is relayed before the upstream has accepted with 101: until then the client's bytes are not read. A tunnel
//! ends if nothing moves for too long, or if one side has closed and the bytes in flight have arrived.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::timeout;

/// Relays once both sides are ready, until one closes or nothing has moved for `idle`. Then it drops `held`.
pub(super) fn spawn(client: OnUpgrade, upstream: OnUpgrade, idle: Duration, held: impl Send + 'static) {
    tokio::spawn(async move {
        let _held = held;
        let (Ok(client), Ok(upstream)) = (client.await, upstream.await) else { return };
        relay(TokioIo::new(client), TokioIo::new(upstream), idle).await;
    });
}

async fn relay<A, B>(client: A, upstream: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moves = Arc::new(AtomicU32::new(0));
    let mut client = CountedStream { io: client, moves: Arc::clone(&moves) };
    let mut upstream = CountedStream { io: upstream, moves: Arc::clone(&moves) };
    let mut copying = std::pin::pin!(copy_bidirectional(&mut client, &mut upstream));
    loop {
        let before = moves.load(Ordering::Relaxed);
        let is_over = timeout(idle, copying.as_mut()).await.is_ok();
        if is_over || moves.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// One end of a tunnel, with a counter of its bytes.
struct CountedStream<T> {
    io: T,
    /// Counts reads and writes; the counter may wrap.
    moves: Arc<AtomicU32>,
}

impl<T> CountedStream<T> {
    fn count<R>(&self, moved: Poll<R>) -> Poll<R> {
        if moved.is_ready() {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        moved
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.count(moved)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CountedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.count(moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_go_both_ways_until_nothing_has_moved_for_too_long() {
        let ((mut client, near), (far, mut upstream)) = (duplex(64), duplex(64));
        let relaying = tokio::spawn(relay(near, far, Duration::from_secs(60)));
        let mut piece = [0; 4];
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            client.write_all(b"ping").await.expect("open");
            upstream.read_exact(&mut piece).await.expect("open");
            upstream.write_all(b"pong").await.expect("open");
            client.read_exact(&mut piece).await.expect("open");
        }
        assert_eq!(&piece, b"pong");
        let quiet_since = tokio::time::Instant::now();
        assert_eq!(client.read(&mut piece).await.expect("closed"), 0);
        relaying.await.expect("no panic");
        let quiet = quiet_since.elapsed();
        assert!((Duration::from_secs(60)..=Duration::from_secs(120)).contains(&quiet), "{quiet:?}");
    }

    #[tokio::test]
    async fn the_end_of_one_side_is_the_end_of_the_other() {
        let ((client, near), (far, mut upstream)) = (duplex(64), duplex(64));
        let relaying = tokio::spawn(relay(near, far, Duration::from_secs(60)));
        drop(client);
        assert_eq!(upstream.read(&mut [0; 4]).await.expect("closed"), 0);
        drop(upstream);
        relaying.await.expect("no panic");
    }
}
