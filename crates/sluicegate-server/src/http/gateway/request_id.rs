//! The identifier of one request, in `X-Request-Id`, to find it in several logs.
//!
//! It is a UUID of version 7, which sorts by time. It distinguishes requests and is not meant to be hard to guess.
//! The identifier of a trusted proxy is kept if it has a plain form.

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::core::Timestamp;
use uuid::Builder;

/// The field.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest identifier that is kept, in bytes.
const BYTES_MAX: usize = 128;

/// The identifier of a request with these fields that arrived at `now`.
pub(super) fn of(headers: &HeaderMap, now: Timestamp) -> HeaderValue {
    let mut given = headers.get_all(REQUEST_ID).iter();
    match (given.next(), given.next()) {
        (Some(only), None) if is_plain(only) => only.clone(),
        _ => new(now),
    }
}

fn is_plain(value: &HeaderValue) -> bool {
    (1..=BYTES_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn new(now: Timestamp) -> HeaderValue {
    let random = (u128::from(fastrand::u64(..)) << 64) | u128::from(fastrand::u64(..));
    let [_, _, _, _, _, _, random @ ..] = random.to_be_bytes();
    let id = Builder::from_unix_timestamp_millis(now.as_micros() / 1_000, &random).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    // Hexadecimal digits and hyphens are a valid value; the default only keeps this function total.
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text))
        .unwrap_or_else(|_| HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_705_312_900_000_000;

    fn of_lines(lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(REQUEST_ID, line.parse().expect("a value"));
        }
        of(&headers, Timestamp::now(NOW)).to_str().expect("ASCII").to_owned()
    }

    #[test]
    fn a_new_name_is_a_uuid_that_sorts_by_time() {
        let (one, other) = (of_lines(&[]), of_lines(&[]));
        assert_ne!(one, other);
        for id in [one, other] {
            let id = id.parse::<uuid::Uuid>().expect("a UUID");
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(id.as_u128() >> 80, u128::from(NOW / 1_000));
        }
    }

    #[test]
    fn only_a_plain_name_is_kept() {
        assert_eq!(of_lines(&["abc-1"]), "abc-1");
        assert_eq!(of_lines(&[&"x".repeat(128)]).len(), 128);
        for lines in [&["a b"][..], &[""], &[&"x".repeat(129)], &["é"], &["a", "b"]] {
            let id = of_lines(lines);
            assert_eq!((id.len(), id.matches('-').count()), (36, 4), "{lines:?}");
        }
    }
}
