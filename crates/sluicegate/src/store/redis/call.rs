//! One script call: the seam between what is said to a server and how it gets there.
//!
//! Every script follows one protocol, so that whoever delivers a call needs to know nothing about limits:
//! - `ARGV[1]` is the last microsecond, on the server's clock, at which the script may still do anything, or 0 for
//!   no such bound; `ARGV[2]` is a nonce. Both are added by the delivery, in front of [`Call::arguments`].
//! - The reply is one string: nonce, a space, the server's time in microseconds, a space, and then either `late`
//!   (the script came after its time and did nothing) or the body.

use sluicegate_core::Timestamp;
use smallvec::SmallVec;

/// One argument. Most are short enough to need no place of their own in memory.
pub(super) type Word = SmallVec<[u8; 48]>;

/// A script, known to servers by the hash of its text.
#[derive(Debug)]
pub(super) struct Script {
    /// The text.
    pub(super) text: &'static str,
    /// Its SHA-1 in hexadecimal.
    pub(super) hash: String,
}

/// One script call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// What runs.
    pub(super) script: &'a Script,
    /// The keys. On a Cluster they share a slot.
    pub(super) keys: &'a [Vec<u8>],
    /// What follows the deadline and the nonce.
    pub(super) arguments: &'a [Word],
    /// Whether it may be sent again when it is not known whether it ran.
    pub(super) repeat: Repeat,
}

/// Whether a call may be sent again when it is not known whether it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// At worst it charges twice, which admits nobody.
    Allowed,
    /// It would mint what it gives back twice.
    Never,
    /// The same; and in another era than this it is not even sent once, because what it gives back was perhaps never
    /// charged there.
    NeverAndOnlyIn(u64),
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The server's time.
    pub(super) now: Timestamp,
    /// What follows nonce and time.
    pub(super) body: Vec<u8>,
}

impl Script {
    /// The script of this text.
    pub(super) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }
}
