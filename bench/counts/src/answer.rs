//! The path of a `CL.THROTTLE` in the server, from bytes to bytes: parse, decide, write. The parts are the server's own
//! files, without the session that calls them in turn.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use sluicegate::MemoryStore;

use super::parse::Parser;
use super::reply::Replies;
use super::throttle::{Buckets, LastQuota, Throttle};
use crate::paths::{NOW, Path, store};

/// The encoding that client libraries send.
const COMMAND: &[u8] =
    b"*5\r\n$11\r\nCL.THROTTLE\r\n$13\r\nuser:12345678\r\n$6\r\n999999\r\n$7\r\n1000000\r\n$2\r\n60\r\n";

pub(crate) fn all() -> Result<Vec<Path>, Box<dyn Error>> {
    let (parser, quota, replies) = (Parser::default(), LastQuota::default(), Replies::default());
    let mut session = Session { store: store(), buckets: Buckets::new(Duration::MAX), parser, quota, replies };
    let mut ask = move || session.answer(black_box(COMMAND));
    ask().ok_or("the command is one")?;
    Ok(vec![(
        "resp/throttle",
        Box::new(move || {
            black_box(ask());
        }),
    )])
}

struct Session {
    store: MemoryStore,
    buckets: Buckets,
    parser: Parser,
    quota: LastQuota,
    replies: Replies,
}

impl Session {
    fn answer(&mut self, bytes: &[u8]) -> Option<()> {
        let (words, _) = self.parser.next(bytes).ok()??;
        let throttle = Throttle::read(&words).ok()?;
        let quota = self.quota.of(throttle.shape()).ok()?;
        let answer = self.buckets.throttle_now(&self.store, &throttle, quota, NOW)?;
        answer.write(&mut self.replies);
        self.replies.clear(COMMAND.len());
        Some(())
    }
}
