//! Cluster hash slots: the slot of a key, and the parser of `CLUSTER SLOTS`.

use crate::store::redis::client::address::Address;
use redis::Value;

/// The number of slots of a Cluster.
pub(crate) const SLOTS: u16 = 16384;

/// A contiguous range of slots with one primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: Address,
}

/// The slot of a key: that of its hash tag in braces, if it has one.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag_of(key).unwrap_or(key)) % SLOTS
}

fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let inner = key.get(key.iter().position(|byte| *byte == b'{')? + 1..)?;
    let tag = inner.get(..inner.iter().position(|byte| *byte == b'}')?)?;
    (!tag.is_empty()).then_some(tag)
}

/// Parses the reply to `CLUSTER SLOTS`. `None` if it is malformed or has no slots.
pub(crate) fn ranges(value: &Value, origin: &Address) -> Option<Vec<SlotRange>> {
    let Value::Array(entries) = value else { return None };
    let ranges: Option<Vec<_>> = entries.iter().map(|entry| range(entry, origin)).collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

fn range(entry: &Value, origin: &Address) -> Option<SlotRange> {
    let Value::Array(parts) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    // A server that does not know its own host name omits it. Then the host that was asked applies.
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::Nil => String::new(),
        _ => return None,
    };
    let host = if host.is_empty() || host == "?" { origin.host.clone() } else { host };
    let primary = Address { host, port: u16::try_from(*port).ok()? };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    (first <= last && last < SLOTS).then_some(SlotRange { first, last, primary })
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

    fn origin() -> Address {
        Address { host: "asked".to_owned(), port: 1 }
    }

    fn read(text: &str) -> Option<Vec<SlotRange>> {
        ranges(&redis::parse_redis_value(text.replace(' ', "\r\n").as_bytes()).expect("a value"), &origin())
    }

    #[test]
    fn slot_maps_are_parsed() {
        let known = "*2 *4 :0 :99 *2 $1 h :7000 *2 $1 r :7003 *3 :100 :16383 *3 $0  :7001 $2 id ";
        let range = |first, last, host: &str, port| SlotRange {
            first,
            last,
            primary: Address { host: host.to_owned(), port },
        };
        assert_eq!(read(known), Some(vec![range(0, 99, "h", 7000), range(100, 16383, "asked", 7001)]));
        assert_eq!(read("*1 *3 :5 :5 *2 $-1 :7000 "), Some(vec![range(5, 5, "asked", 7000)]));
    }

    #[test]
    fn malformed_slot_maps_are_rejected() {
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
