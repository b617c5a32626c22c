//! One connection: bytes in, commands through the session, answers out.
//!
//! All commands that one read brings are answered before the next read, with the clock read once, and their answers
//! are sent together. Those that wait for a shared store wait at the same time. While answers are being sent nothing is
//! read, so a client that does not read its answers stops being asked for more, and is cut after
//! [`RespOptions::write_stall`].
//!
//! There is one timer, which is moved only when it would be late or when it fires, so that a busy connection does not
//! touch the timer wheel for every read.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::RespOptions;
use super::parse::Parser;
use super::session::{Flow, Session};
use crate::net::notice::Given;

/// Room for the next read: an idle connection keeps no more.
const READ_BYTES_MIN: usize = 4 * 1_024;
/// Room for the next read of a client that sends much at a time.
const READ_BYTES_MAX: usize = 64 * 1_024;
/// Answers that are sent before more commands are looked at.
const WRITE_BYTES: usize = 64 * 1_024;
/// What is thrown away per read after the last answer.
const LINGER_BYTES: usize = 16 * 1_024;

/// Why a connection is no longer read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has closed, or its side is broken.
    Gone,
    /// We close, and the client may still be sending.
    Ours,
}

/// A connection that is being served.
pub(super) struct Connection<'o, I> {
    io: I,
    session: Session,
    options: &'o RespOptions,
    parser: Parser,
    input: BytesMut,
    opened: Instant,
    /// Fires when the next bytes must have come, or earlier.
    timer: Pin<Box<Sleep>>,
    /// Since when the command that has only begun to arrive is awaited.
    unfinished_since: Option<Instant>,
    draining_since: Option<Instant>,
    /// The last read brought more than a small buffer holds. Whoever sends that much at a time does so again, and then
    /// needs no second read for the rest, nor another buffer.
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

    /// Serves until one side has had enough.
    pub(super) async fn serve(mut self, mut drained: Given) {
        match self.serve_commands(&mut drained).await {
            Ok(End::Ours) => self.part().await,
            Ok(End::Gone) => {}
            Err(error) => tracing::debug!(%error, "a connection ended early"),
        }
    }

    async fn serve_commands(&mut self, drained: &mut Given) -> io::Result<End> {
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
    async fn receive(&mut self, drained: &mut Given) -> io::Result<Option<End>> {
        self.make_room();
        let mut deadline = self.deadline();
        loop {
            if deadline < self.timer.deadline() {
                self.timer.as_mut().reset(deadline);
            }
            let is_draining = self.draining_since.is_some();
            tokio::select! {
                biased;
                // Bytes that are there already are read also after the deadline.
                read = self.io.read_buf(&mut self.input) => {
                    let bytes = read?;
                    self.is_eager = bytes >= READ_BYTES_MIN;
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

    /// Until when the next bytes must have come.
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

    /// Answers every command that is there in full.
    async fn answer_all(&mut self) -> io::Result<Flow> {
        let mut now = self.session.now();
        let (mut taken, mut flow) = (0, Flow::Continue);
        while flow == Flow::Continue {
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
                // Nothing waits for a client that takes its time.
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

    /// Says that nothing more comes, then reads and throws away what the client still sends. Closing at once would
    /// reset the connection, and the reset can overtake the last answers.
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
        // Whatever goes wrong now, the connection is over.
        let _ = timeout(self.options.linger, linger).await;
    }
}

/// Sends all answers, or fails if the client does not take them.
async fn send<I: AsyncWrite + Unpin>(io: &mut I, session: &mut Session, options: &RespOptions) -> io::Result<()> {
    let replies = session.replies();
    if replies.as_bytes().is_empty() {
        return Ok(());
    }
    let sent = {
        let mut written = pin!(io.write_all(replies.as_bytes()));
        // Nearly always there is room for all of it at once, and then no timer is made.
        match poll_fn(|cx| Poll::Ready(written.as_mut().poll(cx))).await {
            Poll::Ready(sent) => Ok(sent),
            Poll::Pending => timeout(options.write_stall, written).await,
        }
    };
    replies.clear(WRITE_BYTES);
    sent.unwrap_or_else(|_elapsed| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read what it asked for"))
    })
}

#[cfg(test)]
mod tests;
