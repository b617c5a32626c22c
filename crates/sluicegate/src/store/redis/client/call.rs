//! One script call, and the envelope of its reply.
//!
//! All scripts share one envelope, so that the client needs no knowledge of limits:
//! - `ARGV[1]` is the deadline: the last microsecond of the server's clock at which the script may execute, or 0 for
//!   none. `ARGV[2]` is a nonce. The client puts both in front of [`Call::arguments`].
//! - The reply is one string: the nonce, a space, the server's time in microseconds, a space, and then the body. The
//!   body is `late` if the script ran after its deadline and did nothing.

use crate::store::redis::client::silence::WaiterCount;
use redis::Value;
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
use std::time::Duration;

/// One argument. Most fit without a heap allocation.
pub(crate) type Argument = SmallVec<[u8; 48]>;

/// A script. Servers know it by the hash of its text.
#[derive(Debug)]
pub(crate) struct Script {
    /// The source text.
    pub(crate) text: &'static str,
    /// The SHA-1 of the text, in hexadecimal.
    pub(crate) hash: String,
}

/// One script call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'a Script,
    /// The keys. On a Cluster they share a slot.
    pub(crate) keys: &'a [Vec<u8>],
    /// The arguments after deadline and nonce.
    pub(crate) arguments: &'a [Argument],
    /// Whether the call may be sent again if its execution is unknown.
    pub(crate) resend: Resend,
    /// The treatment of a reply that misses the deadline.
    pub(crate) late_policy: LatePolicy<'a>,
}

/// The treatment of a reply that misses the deadline. The script does nothing after the deadline, but the reply of
/// an earlier execution may still arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatePolicy<'a> {
    /// The count of waiting requests: the more there are, the longer a silent server is tolerated.
    pub(crate) waiter_count: Option<&'a WaiterCount>,
    /// If set, the call keeps waiting after its deadline while the server is responsive, because its result matters
    /// and no other call should replace it. The value is the time that its waiters had. If not set, the call fails
    /// at its deadline.
    pub(crate) keep_waiting: Option<Duration>,
}

/// Whether a call may be sent again if it is unknown whether it was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resend {
    /// At worst the call charges twice, which never admits a request beyond a limit.
    Allowed,
    /// A second execution would give units back twice.
    Never,
    /// As `Never`, and the call is only sent in this generation of the server's data. In another generation the
    /// charge that it takes back may not exist.
    OnceInGeneration(u64),
}

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptReply {
    /// The server's time.
    pub(crate) now: Timestamp,
    /// The reply after nonce and time.
    pub(crate) body: Vec<u8>,
}

impl ScriptReply {
    /// Whether the script did nothing because the calendar boundaries in its arguments do not cover its time.
    pub(crate) fn is_outdated(&self) -> bool {
        self.body == b"outdated"
    }
}

impl LatePolicy<'_> {
    /// How long a server must be silent before this call, which had `allowed` to complete, treats it as
    /// unresponsive.
    pub(crate) fn patience(&self, allowed: Duration) -> Duration {
        self.waiter_count.map_or(allowed / 2, |waiter_count| waiter_count.patience(allowed))
    }
}

impl Script {
    /// A script with this text.
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }
}

/// The parsed envelope of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// The script was executed.
    Answered(ScriptReply),
    /// The script ran after its deadline and did nothing.
    Late {
        /// The server's time.
        now_micros: u64,
    },
}

/// Parses the reply to the call with this nonce. `None` for any other value.
pub(crate) fn read_envelope(value: Value, nonce: u64) -> Option<Envelope> {
    let mut bytes = match value {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) => text.into_bytes(),
        _ => return None,
    };
    let (echoed, rest) = number(&bytes)?;
    let (now_micros, body) = number(rest)?;
    if echoed != nonce {
        return None;
    }
    if body == b"late" {
        return Some(Envelope::Late { now_micros });
    }
    let start = bytes.len() - body.len();
    bytes.drain(..start);
    Some(Envelope::Answered(ScriptReply { now: Timestamp::now(now_micros), body: bytes }))
}

/// The number before the first space, and the rest after the space.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b' ')?;
    let (digits, rest) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    // The standard parser accepts a sign, which numbers of the protocol do not have.
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(reply: &str) -> Value {
        Value::BulkString(reply.as_bytes().to_vec())
    }

    #[test]
    fn envelopes_are_parsed() {
        let answered = |body: &[u8]| {
            Some(Envelope::Answered(ScriptReply {
                now: Timestamp::now(1_700_000_000_000_000),
                body: body.to_vec(),
            }))
        };
        assert_eq!(read_envelope(text("7 1700000000000000 1 2 3"), 7), answered(b"1 2 3"));
        assert_eq!(read_envelope(text("7 1700000000000000 "), 7), answered(b""));
        assert_eq!(read_envelope(text("7 1700000000000000 later"), 7), answered(b"later"));
        assert_eq!(read_envelope(Value::SimpleString("7 1700000000000000 x".to_owned()), 7), answered(b"x"));
        assert_eq!(read_envelope(text("7 5 late"), 7), Some(Envelope::Late { now_micros: 5 }));
    }

    #[test]
    fn other_values_are_not_replies() {
        for reply in
            ["", "7", "7 ", "7 5", "8 5 x", "07x 5 x", "+7 5 x", "7 -5 x", " 7 5 x", "7  x", "PONG", "é 5 x"]
        {
            assert_eq!(read_envelope(text(reply), 7), None, "{reply}");
        }
        for value in [Value::Nil, Value::Int(7), Value::Okay, Value::Array(vec![text("7 5 x")])] {
            assert_eq!(read_envelope(value, 7), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            read_envelope(Value::BulkString(bytes), 7);
        }

        #[test]
        fn every_body_is_returned_unchanged(nonce: u64, now in 0..1_u64 << 52, body in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assume!(body != b"late");
            let reply = [format!("{nonce} {now} ").into_bytes(), body.clone()].concat();
            let expected = Envelope::Answered(ScriptReply { now: Timestamp::now(now), body });
            prop_assert_eq!(read_envelope(Value::BulkString(reply), nonce), Some(expected));
        }
    }
}
