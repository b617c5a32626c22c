//! The slots of a Cluster: which slot a key has, and what a server says about who has which.

use crate::store::redis::address::Address;
use redis::Value;

/// How many slots a Cluster has.
pub(in crate::store::redis) const SLOTS: u16 = 16384;

/// Slots in a row that one primary has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Address,
}

/// The slot of a key: that of its tag in braces, if it has one.
pub(in crate::store::redis) fn slot_of(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag_of(key).unwrap_or(key)) % SLOTS
}

fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let inner = key.get(key.iter().position(|byte| *byte == b'{')? + 1..)?;
    let tag = inner.get(..inner.iter().position(|byte| *byte == b'}')?)?;
    (!tag.is_empty()).then_some(tag)
}

/// Reads the answer to `CLUSTER SLOTS`. Nothing if it makes no sense, or if the server does not know of any slot.
pub(super) fn ranges(value: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(entries) = value else { return None };
    let ranges: Option<Vec<_>> = entries.iter().map(|entry| range(entry, asked)).collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

fn range(entry: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(parts) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    // A server that does not know its own name leaves it out: then it has the one under which we know it.
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::Nil => String::new(),
        _ => return None,
    };
    let host = if host.is_empty() || host == "?" { asked.host.clone() } else { host };
    let primary = Address { host, port: u16::try_from(*port).ok()? };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    (first <= last && last < SLOTS).then_some(Range { first, last, primary })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 12739);
        assert_eq!(slot_of(b""), 0);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_ne!(slot_of(b"foo{bar"), slot_of(b"bar"));
    }

    fn asked() -> Address {
        Address { host: "asked".to_owned(), port: 1 }
    }

    fn read(text: &str) -> Option<Vec<Range>> {
        ranges(&redis::parse_redis_value(text.replace(' ', "\r\n").as_bytes()).expect("a value"), &asked())
    }

    #[test]
    fn maps_are_read() {
        let known = "*2 *4 :0 :99 *2 $1 h :7000 *2 $1 r :7003 *3 :100 :16383 *3 $0  :7001 $2 id ";
        let range = |first, last, host: &str, port| Range {
            first,
            last,
            primary: Address { host: host.to_owned(), port },
        };
        assert_eq!(read(known), Some(vec![range(0, 99, "h", 7000), range(100, 16383, "asked", 7001)]));
        assert_eq!(read("*1 *3 :5 :5 *2 $-1 :7000 "), Some(vec![range(5, 5, "asked", 7000)]));
    }

    #[test]
    fn maps_that_make_no_sense_are_not_used() {
        for text in [
            "*0 ",
            ":1 ",
            "*1 :1 ",
            "*1 *3 :5 :4 *2 $1 h :1 ",
            "*1 *3 :0 :16384 *2 $1 h :1 ",
            "*1 *3 :0 :1 *1 $1 h ",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
