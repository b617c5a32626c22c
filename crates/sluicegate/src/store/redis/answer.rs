//! What a script's reply says, by the protocol that all scripts follow.

use super::call::Answer;
use redis::Value;
use sluicegate_core::Timestamp;

/// A reply that belongs to a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The script ran.
    Answered(Answer),
    /// The script came too late and did nothing.
    Late {
        /// The server's time.
        now_micros: u64,
    },
}

/// Reads the reply to the call with this nonce. Anything else is nobody's reply.
pub(super) fn read(value: Value, nonce: u64) -> Option<Reply> {
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
        return Some(Reply::Late { now_micros });
    }
    let start = bytes.len() - body.len();
    bytes.drain(..start);
    Some(Reply::Answered(Answer { now: Timestamp::now(now_micros), body: bytes }))
}

/// The number before the first space, and what follows the space.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b' ')?;
    let (digits, rest) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    // The standard parser takes a sign, which no number here has.
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
    fn replies_are_taken_apart() {
        let answered = |body: &[u8]| {
            Some(Reply::Answered(Answer { now: Timestamp::now(1_700_000_000_000_000), body: body.to_vec() }))
        };
        assert_eq!(read(text("7 1700000000000000 1 2 3"), 7), answered(b"1 2 3"));
        assert_eq!(read(text("7 1700000000000000 "), 7), answered(b""));
        assert_eq!(read(text("7 1700000000000000 later"), 7), answered(b"later"));
        assert_eq!(read(Value::SimpleString("7 1700000000000000 x".to_owned()), 7), answered(b"x"));
        assert_eq!(read(text("7 5 late"), 7), Some(Reply::Late { now_micros: 5 }));
    }

    #[test]
    fn anything_else_is_nobodys_reply() {
        for reply in
            ["", "7", "7 ", "7 5", "8 5 x", "07x 5 x", "+7 5 x", "7 -5 x", " 7 5 x", "7  x", "PONG", "é 5 x"]
        {
            assert_eq!(read(text(reply), 7), None, "{reply}");
        }
        for value in [Value::Nil, Value::Int(7), Value::Okay, Value::Array(vec![text("7 5 x")])] {
            assert_eq!(read(value, 7), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            read(Value::BulkString(bytes), 7);
        }

        #[test]
        fn every_body_comes_back_as_it_was(nonce: u64, now in 0..1_u64 << 52, body in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assume!(body != b"late");
            let reply = [format!("{nonce} {now} ").into_bytes(), body.clone()].concat();
            let expected = Reply::Answered(Answer { now: Timestamp::now(now), body });
            prop_assert_eq!(read(Value::BulkString(reply), nonce), Some(expected));
        }
    }
}
