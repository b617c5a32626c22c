//! One connection: bytes in, commands through the session, answers out.
//!
//! All commands that one read brings are answered before the next read, with the clock read once, and their answers
//! are sent together. Those that wait for a shared store wait at the same time. While answers are being sent nothing is read, so a client that does not read its answers stops
//! being asked for more, and is cut after [`RespOptions::write_stall`].

use std::io;
use std::pin::Pin;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::WaitForCancellationFuture;

use super::RespOptions;
use super::parse::Parser;
use super::session::{Flow, Session};

/// Room for the next read: an idle connection keeps no more.
const READ_BYTES_MIN: usize = 4 * 1_024;
/// Room for the next read of a client that fills what there is.
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
    /// Since when the command that has only begun to arrive is awaited.
    unfinished_since: Option<Instant>,
    draining_since: Option<Instant>,
    /// The last read filled all the room there was.
    is_eager: bool,
    has_spoken: bool,
}

impl<'o, I: AsyncRead + AsyncWrite + Unpin> Connection<'o, I> {
    pub(super) fn new(io: I, session: Session, options: &'o RespOptions) -> Self {
        Self {
            io,
            session,
            options,
            parser: Parser::default(),
            input: BytesMut::new(),
            opened: Instant::now(),
            unfinished_since: None,
            draining_since: None,
            is_eager: false,
            has_spoken: false,
        }
    }

    /// Serves until one side has had enough.
    pub(super) async fn serve(mut self, drained: Pin<&mut WaitForCancellationFuture<'_>>) {
        match self.serve_commands(drained).await {
            Ok(End::Ours) => self.part().await,
            Ok(End::Gone) => {}
            Err(error) => tracing::debug!(%error, "a connection ended early"),
        }
    }

    async fn serve_commands(&mut self, mut drained: Pin<&mut WaitForCancellationFuture<'_>>) -> io::Result<End> {
        loop {
            if let Some(end) = self.receive(drained.as_mut()).await? {
                return Ok(end);
            }
            if self.answer_all().await? == Flow::Close {
                return Ok(End::Ours);
            }
        }
    }

    /// Waits for more bytes.
    async fn receive(&mut self, mut drained: Pin<&mut WaitForCancellationFuture<'_>>) -> io::Result<Option<End>> {
        self.make_room();
        loop {
            let deadline = self.deadline();
            let is_draining = self.draining_since.is_some();
            tokio::select! {
                biased;
                // Bytes that are there already are read also after the deadline.
                read = timeout_at(deadline, self.io.read_buf(&mut self.input)) => {
                    return match read {
                        Ok(Ok(0)) => Ok(Some(End::Gone)),
                        Ok(Ok(_)) => {
                            self.is_eager = self.input.len() == self.input.capacity();
                            Ok(None)
                        }
                        Ok(Err(error)) => Err(error),
                        Err(_elapsed) => Ok(Some(End::Ours)),
                    };
                }
                () = drained.as_mut(), if !is_draining => self.draining_since = Some(Instant::now()),
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
    let sent = timeout(options.write_stall, io.write_all(replies.as_bytes())).await;
    replies.clear(WRITE_BYTES);
    sent.unwrap_or_else(|_elapsed| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read what it asked for"))
    })
}

#[cfg(test)]
mod tests;
