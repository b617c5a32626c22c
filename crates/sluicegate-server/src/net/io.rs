//! The watched stream of one connection.
//!
//! - It reports to [`Activity`] when bytes arrive and whether they are HTTP/2.
//! - [`FramingGuard`] checks HTTP/1 bytes, and [`ReceivedFrames`] counts HTTP/2 frames.
//! - It ends the connection of a peer that does not read, or reads too slowly.
//! - It lingers where an immediate close would lose a response.
//! - It takes back bytes that the handler's fast path has not consumed.
//! - It owns the connection's guard, so the guard is released exactly when the socket is closed, also after an upgrade has
//!   taken the socket from hyper.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::deadlines::Activity;
use super::http1_framing::FramingGuard;
use super::http2_abuse::{ReceivedFrames, SentFrames};
use super::options::ListenerOptions;
use crate::body::response_credit;

/// The connection preface of HTTP/2 (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An I/O stream that reports to an [`Activity`].
pub(super) struct WatchedIo<T, S> {
    io: T,
    activity: Arc<Activity>,
    preface: Preface,
    framing: FramingGuard,
    frames: ReceivedFrames,
    sent: SentFrames,
    /// The peer floods the connection. Nothing more is read, and [`Activity`] ends the connection.
    is_flooded: bool,
    write_stall: Duration,
    /// How long the peer may still be waited for; every byte that it takes gives a part of it back, up to `write_stall`.
    write_credit: Duration,
    /// Since when the peer is waited for, and the end of its credit.
    write_timer: Option<(Instant, Pin<Box<Sleep>>)>,
    linger: Duration,
    linger_timer: Option<Pin<Box<Sleep>>>,
    /// Bytes that the fast path has read and not consumed.
    put_back: BytesMut,
    /// Bytes that have arrived and wait for the next turn, neither checked nor returned.
    later: BytesMut,
    /// Whether that turn has come.
    is_later: bool,
    _guard: S,
}

/// How much of the HTTP/2 preface has been seen.
enum Preface {
    Matched(usize),
    Seen,
    Absent,
}

impl<T, S> WatchedIo<T, S> {
    /// Watches `io`, and holds `guard` as long as it is open.
    pub(super) fn new(io: T, activity: Arc<Activity>, options: &ListenerOptions, guard: S) -> Self {
        Self {
            io,
            activity,
            preface: Preface::Matched(0),
            framing: FramingGuard::new(),
            frames: ReceivedFrames::default(),
            sent: SentFrames::default(),
            is_flooded: false,
            write_stall: options.write_stall,
            write_credit: options.write_stall,
            write_timer: None,
            linger: options.linger,
            linger_timer: None,
            put_back: BytesMut::new(),
            later: BytesMut::new(),
            is_later: false,
            _guard: guard,
        }
    }

    /// Takes back the bytes of the last read: the next reads return them first. The deadline of a head starts here.
    pub(super) fn put_back(&mut self, bytes: BytesMut) {
        self.activity.bytes_arrived();
        self.put_back = bytes;
    }

    /// Checks arrived bytes. Returns how many of them the read may return now.
    fn arrived(&mut self, bytes: &mut [u8]) -> usize {
        let progress = self.activity.bytes_arrived();
        let preface_bytes = self.look_for_preface(bytes);
        match self.preface {
            Preface::Seen => {
                let arrived = self.frames.pass(&bytes[preface_bytes..]);
                if arrived.has_counted_frames() {
                    self.is_flooded = self.activity.frames_arrived(arrived);
                }
                if let Some(head) = arrived.head {
                    self.activity.http2_head(head);
                }
                preface_bytes + arrived.bytes
            }
            // The guard also runs while the bytes may still be the preface, which has nothing to poison.
            Preface::Matched(_) | Preface::Absent => {
                if self.framing.pass(bytes, progress) {
                    self.activity.bytes_spoiled();
                }
                bytes.len()
            }
        }
    }

    /// The number of these bytes that belong to the preface; zero if the connection has none.
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

    /// Reports written bytes to [`Activity`] on HTTP/2, where the peer may reply to them.
    fn written<'b>(
        &mut self,
        outcome: Poll<io::Result<usize>>,
        slices: impl Iterator<Item = &'b [u8]>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &outcome
            && matches!(self.preface, Preface::Seen)
        {
            let (mut left, mut body_bytes) = (*count, 0);
            for slice in slices {
                let written = left.min(slice.len());
                body_bytes += self.sent.pass(&slice[..written]);
                left -= written;
            }
            self.activity.bytes_sent(*count, body_bytes);
        }
        let bytes = if let Poll::Ready(Ok(count)) = &outcome { *count } else { 0 };
        self.bound_write(outcome, bytes, cx)
    }

    /// Passes on the outcome of a write of this many bytes. A write that stays pending beyond the peer's credit becomes an
    /// error.
    fn bound_write<R>(
        &mut self,
        outcome: Poll<io::Result<R>>,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            let waited = self.write_timer.take().map(|(since, _)| since.elapsed());
            // Peers that read fast always have all of it.
            if waited.is_some() || self.write_credit < self.write_stall {
                let left = self.write_credit.saturating_sub(waited.unwrap_or_default());
                self.write_credit = left.saturating_add(response_credit(bytes as u64)).min(self.write_stall);
            }
            return outcome;
        }
        let credit = self.write_credit;
        let (_, timer) = self.write_timer.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(credit))));
        ready!(timer.as_mut().poll(cx));
        let reason = "the peer does not read its responses, or too slowly";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<T: AsyncRead + Unpin, S: Unpin> WatchedIo<T, S> {
    /// Returns more of the waiting bytes, after other tasks had a turn.
    fn poll_later(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.is_later, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_later = false;
        let mut later = std::mem::take(&mut self.later);
        let count = later.len().min(buffer.remaining());
        let handed_over = self.arrived(&mut later[..count]);
        buffer.put_slice(&later.split_to(handed_over));
        if !later.is_empty() {
            self.later = later;
        }
        Poll::Ready(())
    }

    /// Discards the bytes that the peer still sends, until it closes or the deadline passes.
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
                // An empty buffer still holds its memory.
                self.put_back = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        if self.is_flooded {
            // The timer wakes the connection's task.
            return Poll::Pending;
        }
        if !self.later.is_empty() {
            return self.poll_later(cx, buffer).map(Ok);
        }
        let filled_before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let bytes = &mut buffer.filled_mut()[filled_before..];
        if !bytes.is_empty() {
            let handed_over = self.arrived(bytes);
            if handed_over < bytes.len() {
                self.later.extend_from_slice(&bytes[handed_over..]);
                buffer.set_filled(filled_before + handed_over);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, S: Unpin> AsyncWrite for WatchedIo<T, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.written(outcome, std::iter::once(bytes), cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.written(outcome, slices.iter().map(|slice| &**slice), cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.bound_write(outcome, 0, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        if self.activity.may_have_unread_bytes() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
