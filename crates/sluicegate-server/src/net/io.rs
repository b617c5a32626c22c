//! The socket of one connection, watched.
//!
//! It tells [`Activity`] when bytes arrive and whether they are HTTP/2, has [`Framing`] look at those that are not and
//! [`Frames`] at those that are, gives up on a peer that does not read, lingers where closing at once would lose an answer,
//! and takes bytes back that the [express lane](super::express) has no use for. It holds the connection's slot: the slot
//! is free again exactly when the socket is closed, also after an upgrade has taken it away from hyper.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;
use super::frames::{Arrived, Frames};
use super::framing::Framing;
use super::options::ListenerOptions;

/// What an HTTP/2 client with prior knowledge sends first (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An I/O stream that reports to an [`Activity`].
pub(super) struct WatchedIo<T, S> {
    io: T,
    activity: Arc<Activity>,
    preface: Preface,
    framing: Framing,
    frames: Frames,
    write_stall: Duration,
    write_timer: Option<Pin<Box<Sleep>>>,
    linger: Duration,
    linger_timer: Option<Pin<Box<Sleep>>>,
    /// Bytes that somebody read who had no use for them.
    put_back: BytesMut,
    _slot: S,
}

/// How much of the HTTP/2 preface has been seen.
enum Preface {
    Matched(usize),
    Seen,
    Absent,
}

impl<T, S> WatchedIo<T, S> {
    /// Watches `io`, and holds `slot` as long as it is open.
    pub(super) fn new(io: T, activity: Arc<Activity>, options: &ListenerOptions, slot: S) -> Self {
        Self {
            io,
            activity,
            preface: Preface::Matched(0),
            framing: Framing::new(),
            frames: Frames::default(),
            write_stall: options.write_stall,
            write_timer: None,
            linger: options.linger,
            linger_timer: None,
            put_back: BytesMut::new(),
            _slot: slot,
        }
    }

    /// Takes back what was read last: it is read again before anything else. The time for a head counts from here.
    pub(super) fn put_back(&mut self, bytes: BytesMut) {
        self.activity.bytes_arrived();
        self.put_back = bytes;
    }

    fn arrived(&mut self, bytes: &mut [u8]) {
        let standing = self.activity.bytes_arrived();
        let preface_bytes = self.look_for_preface(bytes);
        match self.preface {
            Preface::Seen => {
                let Arrived { idle_frames, head } = self.frames.pass(&bytes[preface_bytes..]);
                if idle_frames > 0 {
                    self.activity.idle_frames_arrived(idle_frames);
                }
                if let Some(head) = head {
                    self.activity.http2_head(head);
                }
            }
            // Harmless to look at while it may still be the preface: there is nothing in it to spoil.
            Preface::Matched(_) | Preface::Absent => {
                if self.framing.pass(bytes, standing) {
                    self.activity.bytes_spoiled();
                }
            }
        }
    }

    /// How many of these bytes belong to the preface, if that is what they are.
    fn look_for_preface(&mut self, bytes: &[u8]) -> usize {
        let Preface::Matched(matched) = self.preface else {
            return 0;
        };
        let expected = &HTTP2_PREFACE[matched..];
        let compared = expected.len().min(bytes.len());
        self.preface = if bytes[..compared] != expected[..compared] {
            Preface::Absent
        } else if compared == expected.len() {
            self.activity.speaks_http2();
            Preface::Seen
        } else {
            Preface::Matched(matched + compared)
        };
        compared
    }

    /// Passes a write's outcome on; one that stays pending for too long becomes an error.
    fn bound_write<R>(&mut self, outcome: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            self.write_timer = None;
            return outcome;
        }
        let write_stall = self.write_stall;
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(sleep(write_stall)));
        ready!(timer.as_mut().poll(cx));
        let reason = "the peer does not read what it asked for";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<T: AsyncRead + Unpin, S: Unpin> WatchedIo<T, S> {
    /// Reads and throws away what the peer still sends, until it closes or the time is up.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger;
        let timer = self.linger_timer.get_or_insert_with(|| Box::pin(sleep(linger)));
        let mut scratch = [0; 4_096];
        while timer.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + Unpin, S: Unpin> AsyncRead for WatchedIo<T, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.put_back.is_empty() {
            let count = self.put_back.len().min(buffer.remaining());
            buffer.put_slice(&self.put_back.split_to(count));
            if self.put_back.is_empty() {
                // What is empty still holds its memory.
                self.put_back = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let filled_before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let bytes = &mut buffer.filled_mut()[filled_before..];
        if !bytes.is_empty() {
            self.arrived(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, S: Unpin> AsyncWrite for WatchedIo<T, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.bound_write(outcome, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.bound_write(outcome, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.bound_write(outcome, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        if self.activity.may_have_unread_bytes() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
