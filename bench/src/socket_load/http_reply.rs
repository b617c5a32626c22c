//! The part of HTTP/1.1 that counting replies needs: a head, and a body of its `content-length`.

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// Removes all complete replies from the buffer; returns their number and how many of them have the status 200.
pub(super) fn take(inbox: &mut Vec<u8>) -> Result<(usize, usize), String> {
    let (mut at, mut count, mut allowed) = (0, 0, 0);
    while let Some((length, is_allowed)) = first(&inbox[at..])? {
        at += length;
        count += 1;
        allowed += usize::from(is_allowed);
    }
    inbox.drain(..at);
    Ok((count, allowed))
}

/// The length of the first reply and whether it is 200; `None` while it is incomplete.
fn first(bytes: &[u8]) -> Result<Option<(usize, bool)>, String> {
    let Some(end) = bytes.windows(END.len()).position(|window| window == END) else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "a head that is no text")?;
    let status = head.get(9..12).unwrap_or_default();
    if !matches!(status, "200" | "429") {
        return Err(format!("the server answered {head}\n{}", bytes[end..].escape_ascii()));
    }
    let length = body_bytes(head).ok_or("a reply without content-length")?;
    let whole = end + END.len() + length;
    Ok((bytes.len() >= whole).then_some((whole, status == "200")))
}

fn body_bytes(head: &str) -> Option<usize> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let replies =
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyesHTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n";
        for cut in 0..replies.len() {
            let mut inbox = replies[..cut].to_vec();
            let first = take(&mut inbox).unwrap();
            inbox.extend_from_slice(&replies[cut..]);
            let second = take(&mut inbox).unwrap();
            assert_eq!((first.0 + second.0, first.1 + second.1), (2, 1), "{cut}");
            assert!(inbox.is_empty());
        }
    }

    #[test]
    fn an_error_is_not_an_answer() {
        assert!(take(&mut b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec()).is_err());
    }
}
