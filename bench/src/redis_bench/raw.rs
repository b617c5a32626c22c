//! The barest client there is: one blocking connection, requests that were packed before the clock starts, and replies
//! that are counted but not read. What it reaches is the server's limit, not a client's.

use crate::core_bench::now;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Small, so that the server has the next requests before the last replies were taken.
const READ_BYTES: usize = 2_048;
/// Requests are taken in this stride, so that neighbours are not asked for one after the other.
const STRIDE: usize = 7_919;

/// Keeps so many requests under way for so long, and says how many were answered.
pub(super) fn drive(
    address: SocketAddr,
    requests: &[Vec<u8>],
    in_flight: usize,
    lasts: Duration,
) -> Result<u64, String> {
    let broken = |error: std::io::Error| format!("the connection to {address}: {error}");
    let mut connection = TcpStream::connect(address).map_err(broken)?;
    connection.set_nodelay(true).map_err(broken)?;
    let (mut outbox, mut inbox, mut chunk) = (Vec::new(), Vec::new(), [0; READ_BYTES]);
    let (mut sent, mut answered) = (0, 0);
    let started = now();
    loop {
        let is_over = started.elapsed() >= lasts;
        if is_over && sent == answered {
            return Ok(answered as u64);
        }
        let room = if is_over { 0 } else { in_flight - (sent - answered) };
        outbox.clear();
        (0..room).for_each(|more| outbox.extend_from_slice(&requests[(sent + more) * STRIDE % requests.len()]));
        sent += room;
        connection.write_all(&outbox).map_err(broken)?;
        let count = connection.read(&mut chunk).map_err(broken)?;
        if count == 0 {
            return Err(format!("{address} closed the connection"));
        }
        inbox.extend_from_slice(&chunk[..count]);
        answered += take_replies(&mut inbox)?;
    }
}

/// Takes all whole replies away, and says how many there were.
fn take_replies(inbox: &mut Vec<u8>) -> Result<usize, String> {
    let (mut at, mut count) = (0, 0);
    while let Some(length) = reply_bytes(&inbox[at..])? {
        at += length;
        count += 1;
    }
    inbox.drain(..at);
    Ok(count)
}

/// How long the first reply is; nothing if it is not whole yet.
fn reply_bytes(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, head) = (&bytes[..end], end + 2);
    let number = || std::str::from_utf8(&line[1..]).ok()?.parse::<usize>().ok();
    match line.first() {
        Some(b':' | b'+') => Ok(Some(head)),
        Some(b'$') => {
            let whole = head + number().ok_or("a length that is no number")? + 2;
            Ok((bytes.len() >= whole).then_some(whole))
        }
        Some(b'*') => {
            let mut at = head;
            for _ in 0..number().ok_or("a length that is no number")? {
                let Some(length) = reply_bytes(&bytes[at..])? else { return Ok(None) };
                at += length;
            }
            Ok(Some(at))
        }
        _ => Err(format!("the server answered {}", line.escape_ascii())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let replies = b":1\r\n$5\r\n1 2 +\r\n*2\r\n:1\r\n$3\r\n1.5\r\n+OK\r\n";
        for cut in 0..replies.len() {
            let mut inbox = replies[..cut].to_vec();
            let first = take_replies(&mut inbox).unwrap();
            inbox.extend_from_slice(&replies[cut..]);
            assert_eq!(first + take_replies(&mut inbox).unwrap(), 4, "{cut}");
            assert!(inbox.is_empty());
        }
    }

    #[test]
    fn an_error_is_not_an_answer() {
        assert!(take_replies(&mut b":1\r\n-NOSCRIPT No matching script.\r\n".to_vec()).is_err());
    }
}
