//! When a connection last read from its server, whichever call the data was for.
//!
//! Replies to abandoned calls are read and discarded, so only the socket shows that the server sent them. That tells
//! an overloaded server from an unavailable one: see [`SocketActivity::is_silent`].
//!
//! A busy process that writes or reads late must not mistake its own delay for silence of the server. So the time
//! counts from the write, and before a server is declared silent, the kernel is asked whether unread data has
//! arrived.

use parking_lot::Mutex;
use std::io;
use std::net::TcpStream as PeekHandle;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The reads and writes of a connection. Instants are microseconds since it was opened.
#[derive(Debug)]
pub(crate) struct SocketActivity {
    opened: Instant,
    /// The last read.
    read: AtomicU64,
    /// The first write after the last read.
    written: AtomicU64,
    /// A second handle of the socket, to check for unread data; gone with the connection.
    peek_handle: Mutex<Option<PeekHandle>>,
}

/// A stream that records its reads and writes.
pub(crate) struct MonitoredStream<S> {
    stream: S,
    activity: Arc<SocketActivity>,
}

impl SocketActivity {
    /// Whether the server has sent nothing after `since`, and has had at least `patience` to do so.
    pub(crate) fn is_silent(&self, since: Instant, patience: Duration, now: Instant) -> bool {
        let (read, written) = (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed));
        let has_had_time = || Duration::from_micros(self.micros(now)) >= Duration::from_micros(written) + patience;
        written > read && read < self.micros(since) && has_had_time() && !self.has_unread()
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.opened).as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether unread data has arrived. The end of the stream counts as data.
    fn has_unread(&self) -> bool {
        let peek_handle = self.peek_handle.lock();
        let looked = peek_handle.as_ref().map(|peek_handle| peek_handle.peek(&mut [0]));
        looked.is_some_and(|looked| !looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }

    fn note_read(&self) {
        self.read.fetch_max(self.micros(Instant::now()), Ordering::Relaxed);
    }

    fn note_written(&self) {
        if self.written.load(Ordering::Relaxed) <= self.read.load(Ordering::Relaxed) {
            // Keeps the order even within the same microsecond.
            let now = self.micros(Instant::now()).max(self.read.load(Ordering::Relaxed) + 1);
            self.written.store(now, Ordering::Relaxed);
        }
    }
}

/// A second handle of the socket, where the platform has them. Like the socket, it never blocks.
pub(crate) fn peek_handle_of(stream: &TcpStream) -> Option<PeekHandle> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd as _;
        stream.as_fd().try_clone_to_owned().ok().map(PeekHandle::from)
    }
    #[cfg(not(unix))]
    {
        let _ = stream;
        None
    }
}

impl<S> MonitoredStream<S> {
    /// The stream, and its activity.
    pub(crate) fn new(stream: S, peek_handle: Option<PeekHandle>) -> (Self, Arc<SocketActivity>) {
        let (read, written) = (AtomicU64::new(0), AtomicU64::new(0));
        let activity = Arc::new(SocketActivity {
            opened: Instant::now(),
            read,
            written,
            peek_handle: Mutex::new(peek_handle),
        });
        (Self { stream, activity: Arc::clone(&activity) }, activity)
    }

    fn wrote(&self, done: &Poll<io::Result<usize>>) {
        if matches!(done, Poll::Ready(Ok(count)) if *count > 0) {
            self.activity.note_written();
        }
    }
}

impl<S> Drop for MonitoredStream<S> {
    fn drop(&mut self) {
        // The socket closes now, not when the last waiter is gone.
        *self.activity.peek_handle.lock() = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.note_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(&done);
        done
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(&done);
        done
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
