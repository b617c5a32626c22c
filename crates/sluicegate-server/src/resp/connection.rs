//! One connection: bytes in, commands through the session, replies out.
//!
//! All commands of one read get their replies before the next read, with one read of the clock, and their replies
//! are sent together. Those that need a shared store run concurrently. While replies are being sent nothing is
//! read, so a client that does not read its replies causes back-pressure, and is disconnected after
//! [`RespOptions::write_stall`]. Before authentication, reads and buffers are small.
//!
//! There is one timer, which is reset only when it would be late or when it fires, so that a busy connection does not
//! touch the timer wheel for every read.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::RespOptions;
use super::parse::{Bounds, Parser};
use super::session::{Flow, Session};
use crate::net::drain::DrainSignalFuture;

/// Buffer for the next read of an idle connection.
const READ_BYTES_MIN: usize = 4 * 1_024;
/// Buffer for the next read of a client that sends much at a time.
const READ_BYTES_MAX: usize = 64 * 1_024;
/// Replies that are sent before more commands are processed.
const WRITE_BYTES: usize = 64 * 1_024;
/// Bytes that are discarded per read after the last reply.
const LINGER_BYTES: usize = 16 * 1_024;

/// Why reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has closed, or the connection is broken.
    Gone,
    /// The server closes, and the client may still be sending.
    Ours,
}

/// A connection.
pub(super) struct Connection<'o, I> {
    io: I,
    session: Session,
    options: &'o RespOptions,
    parser: Parser,
    input: BytesMut,
    opened: Instant,
    /// Fires at or before the deadline of the next bytes.
    timer: Pin<Box<Sleep>>,
    /// When the command that has arrived only in part began.
    unfinished_since: Option<Instant>,
    draining_since: Option<Instant>,
    /// The last read filled a small buffer. Such a client sends as much again, and then
    /// needs neither a second read for the rest nor another buffer.
    is_eager: bool,
    has_spoken: bool,
}

impl<'o, I: AsyncRead + AsyncWrite + Unpin> Connection<'o, I> {
    pub(super) fn new(io: I, session: Session, options: &'o RespOptions) -> Self {
        let opened = Instant::now();
        Self {
            io,
            session,
            options,
            parser: Parser::default(),
            input: BytesMut::new(),
            opened,
            timer: Box::pin(sleep_until(opened + options.first_command)),
            unfinished_since: None,
            draining_since: None,
            is_eager: false,
            has_spoken: false,
        }
    }

    /// Serves until the client or the server closes.
    pub(super) async fn serve(mut self, mut drained: DrainSignalFuture) {
        match self.serve_commands(&mut drained).await {
            Ok(End::Ours) => self.part().await,
            Ok(End::Gone) => {}
            Err(error) => tracing::debug!(%error, "a connection ended early"),
        }
    }

    async fn serve_commands(&mut self, drained: &mut DrainSignalFuture) -> io::Result<End> {
        loop {
            if let Some(end) = self.receive(drained).await? {
                return Ok(end);
            }
            if self.answer_all().await? == Flow::Close {
                return Ok(End::Ours);
            }
        }
    }

    /// Waits for more bytes.
    async fn receive(&mut self, drained: &mut DrainSignalFuture) -> io::Result<Option<End>> {
        self.make_room();
        let mut deadline = self.deadline();
        loop {
            if deadline < self.timer.deadline() {
                self.timer.as_mut().reset(deadline);
            }
            let is_draining = self.draining_since.is_some();
            tokio::select! {
                biased;
                // Bytes that have arrived are read also after the deadline.
                read = self.io.read_buf(&mut self.input) => {
                    let bytes = read?;
                    self.is_eager = bytes >= READ_BYTES_MIN && self.session.is_authenticated();
                    return Ok((bytes == 0).then_some(End::Gone));
                }
                () = &mut *drained, if !is_draining => {
                    let now = Instant::now();
                    self.draining_since = Some(now);
                    deadline = deadline.min(now + self.options.drain_quiet);
                }
                () = self.timer.as_mut() => {
                    if self.timer.deadline() >= deadline {
                        return Ok(Some(End::Ours));
                    }
                    self.timer.as_mut().reset(deadline);
                }
            }
        }
    }

    fn make_room(&mut self) {
        if self.input.is_empty() && !self.is_eager && self.input.capacity() > READ_BYTES_MIN {
            self.input = BytesMut::new();
        }
        self.input.reserve(if self.is_eager { READ_BYTES_MAX } else { READ_BYTES_MIN });
    }

    /// The deadline of the next bytes.
    fn deadline(&self) -> Instant {
        let options = self.options;
        let usual = if !self.has_spoken || !self.session.is_authenticated() {
            self.opened + options.first_command
        } else {
            match self.unfinished_since {
                Some(since) => since + options.command_read,
                None => Instant::now() + options.idle,
            }
        };
        self.draining_since.map_or(usual, |since| usual.min(since + options.drain_quiet))
    }

    /// Processes every complete command.
    async fn answer_all(&mut self) -> io::Result<Flow> {
        let mut now = self.session.now();
        let (mut taken, mut flow) = (0, Flow::Continue);
        while flow == Flow::Continue {
            let is_known = self.session.is_authenticated();
            self.parser.bound(if is_known { Bounds::Usual } else { Bounds::Stranger });
            match self.parser.next(&self.input[taken..]) {
                Ok(None) => break,
                Ok(Some((words, bytes))) => {
                    taken += bytes;
                    flow = self.session.execute(&words, now).await;
                }
                Err(error) => {
                    self.session.finish().await;
                    self.session.replies().error(format_args!("ERR {error}"));
                    flow = Flow::Close;
                }
            }
            if self.session.replies().as_bytes().len() >= WRITE_BYTES {
                // No call waits for a slow client.
                self.session.finish().await;
                send(&mut self.io, &mut self.session, self.options).await?;
                now = self.session.now();
            }
        }
        self.session.finish().await;
        self.input.advance(taken);
        self.has_spoken |= taken > 0;
        self.unfinished_since = match self.unfinished_since {
            _ if self.input.is_empty() => None,
            Some(since) if taken == 0 => Some(since),
            _ => Some(Instant::now()),
        };
        send(&mut self.io, &mut self.session, self.options).await?;
        Ok(flow)
    }

    /// Closes the write side, then reads and discards further input. Closing at once would
    /// reset the connection, and the reset can overtake the last replies.
    async fn part(&mut self) {
        let linger = async {
            self.io.shutdown().await?;
            loop {
                self.input.clear();
                self.input.reserve(LINGER_BYTES);
                if self.io.read_buf(&mut self.input).await? == 0 {
                    return io::Result::Ok(());
                }
            }
        };
        // Errors no longer matter: the connection is over.
        let _ = timeout(self.options.linger, linger).await;
    }
}

/// Sends all replies, or fails if the client does not read them.
async fn send<I: AsyncWrite + Unpin>(io: &mut I, session: &mut Session, options: &RespOptions) -> io::Result<()> {
    let replies = session.replies();
    if replies.as_bytes().is_empty() {
        return Ok(());
    }
    let sent = {
        let mut written = pin!(io.write_all(replies.as_bytes()));
        // Usually the socket accepts everything at once, and no timer is created.
        match poll_fn(|cx| Poll::Ready(written.as_mut().poll(cx))).await {
            Poll::Ready(sent) => Ok(sent),
            Poll::Pending => timeout(options.write_stall, written).await,
        }
    };
    replies.clear(WRITE_BYTES);
    sent.unwrap_or_else(|_elapsed| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read its responses"))
    })
}

#[cfg(test)]
mod tests;
