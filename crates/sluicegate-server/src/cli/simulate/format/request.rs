//! The request line as logs quote it: `"GET /path HTTP/1.1"`, and what has to follow it.

use super::Fault;

/// What a text in quotes holds, and what comes after them. A quote behind a backslash is part of the text.
pub(crate) fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end = memchr::memchr_iter(b'"', text).find(|&at| {
        let backslashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        backslashes.is_multiple_of(2)
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// The method and the target of a request line; the version may be absent, as in HTTP/0.9.
pub(crate) fn method_and_target(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let (method, rest) = super::split_at_byte(line, b' ').ok_or(Fault::BadRequest)?;
    let target = match memchr::memrchr(b' ', rest) {
        Some(at) if rest[at + 1..].starts_with(b"HTTP/") => &rest[..at],
        _ => rest,
    };
    let is_method = !method.is_empty() && method.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
    if !is_method || target.is_empty() {
        return Err(Fault::BadRequest);
    }
    Ok((method, target))
}

/// What comes after a status: three digits, or a hyphen where nothing was answered.
pub(crate) fn after_status(text: &[u8]) -> Result<&[u8], Fault> {
    let text = text.strip_prefix(b" ").ok_or(Fault::NoStatus)?;
    let length = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    let (status, rest) = text.split_at(length);
    let is_status = status == b"-" || (matches!(status.len(), 1 | 3) && status.iter().all(u8::is_ascii_digit));
    if is_status { Ok(rest) } else { Err(Fault::NoStatus) }
}
