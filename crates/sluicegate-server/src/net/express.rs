//! The express lane of a connection: the one request that nearly all of the api listener's are, answered from bytes to
//! bytes.
//!
//! hyper makes a map of the fields of every request and of every answer, a channel for every body and a future for every
//! handler. A plain check ([`Plain`]) needs none of that. It does not replace hyper: what is anything else, or not wholly
//! there, is put back on the connection, and from then on hyper has it. So every refusal is hyper's and the router's, and
//! what the two ways have in common, a test asks both.
//!
//! The bytes come out of the same [`WatchedIo`](super::io::WatchedIo), so framing is watched, and the deadlines of
//! [`Activity`] hold here as well.

pub(super) mod reply;

use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::future::poll_immediate;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::activity::Activity;
use crate::app::App;
use crate::http::Plain;
use reply::Outbox;

/// Bytes that are read at once: a check with long names and a few dozen fields, or several short ones. A request that
/// does not fit is for hyper.
const INBOX_BYTES: usize = 4_096;

/// Answers plain checks of one connection.
pub(super) struct Express<'c> {
    app: &'c App,
    activity: &'c Arc<Activity>,
    outbox: Outbox,
}

/// How the lane ended.
pub(super) enum Left {
    /// With the connection.
    Closed,
    /// With bytes that are for somebody else.
    Rest(BytesMut),
}

impl<'c> Express<'c> {
    /// A lane to this app.
    pub(super) fn new(app: &'c App, activity: &'c Arc<Activity>) -> Self {
        Self { app, activity, outbox: Outbox::default() }
    }

    /// Answers until there is something else, or the connection ends.
    pub(super) async fn serve<I: AsyncRead + AsyncWrite + Unpin>(mut self, io: &mut I) -> io::Result<Left> {
        let mut inbox = BytesMut::with_capacity(INBOX_BYTES);
        loop {
            inbox.clear();
            if io.read_buf(&mut inbox).await? == 0 {
                return Ok(Left::Closed);
            }
            let (mut taken, mut is_last, mut in_flight) = (0, false, None);
            while !is_last && let Some(plain) = Plain::read(&inbox[taken..]) {
                let in_flight = in_flight.insert(self.activity.request_began());
                let mut deciding = pin!(plain.decide(self.app));
                let decided = match poll_immediate(deciding.as_mut()).await {
                    Some(decided) => decided,
                    None => {
                        // Nobody waits for an answer because of the next one.
                        self.outbox.flush(io).await?;
                        deciding.await
                    }
                };
                decided.write(self.app, &mut self.outbox).await;
                is_last = self.activity.is_last_answer();
                self.outbox.end(is_last);
                in_flight.answered();
                taken += plain.bytes();
            }
            self.outbox.flush(io).await?;
            // Until here, because a request is in flight until its answer is handed over.
            drop(in_flight);
            if is_last {
                io.shutdown().await?;
                return Ok(Left::Closed);
            }
            if taken < inbox.len() {
                return Ok(Left::Rest(inbox.split_off(taken)));
            }
        }
    }
}
