//! A minimal client: one blocking connection, requests that are encoded before the clock starts, and replies
//! that are counted but not parsed. Its throughput is the limit of the server, not of a client.

use super::load::Driven;
use super::workloads::Workload;
use crate::core_bench::now;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Small, so that the server has the next requests before the last replies are read.
const READ_BYTES: usize = 2_048;

/// Keeps this many requests in flight for the given time.
pub(super) fn drive(
    address: SocketAddr,
    requests: &[Vec<u8>],
    workload: Workload,
    lasts: Duration,
) -> Result<Driven, String> {
    let broken = |error: std::io::Error| format!("the connection to {address}: {error}");
    let mut connection = TcpStream::connect(address).map_err(broken)?;
    connection.set_nodelay(true).map_err(broken)?;
    let (mut outbox, mut inbox, mut chunk) = (Vec::new(), Vec::new(), [0; READ_BYTES]);
    let (mut sent, mut driven, mut waiting) = (0, Driven::nothing()?, VecDeque::new());
    let started = now();
    loop {
        let (is_over, under_way) = (started.elapsed() >= lasts, sent - driven.answered as usize);
        if is_over && under_way == 0 {
            driven.wall = started.elapsed();
            return Ok(driven);
        }
        let room = if is_over { 0 } else { workload.in_flight - under_way };
        outbox.clear();
        (sent..sent + room).for_each(|step| outbox.extend_from_slice(&requests[workload.identity(step)]));
        sent += room;
        waiting.push_back((now(), room as u64));
        connection.write_all(&outbox).map_err(broken)?;
        let count = connection.read(&mut chunk).map_err(broken)?;
        if count == 0 {
            return Err(format!("{address} closed the connection"));
        }
        inbox.extend_from_slice(&chunk[..count]);
        answered(&mut driven, &mut waiting, take_replies(&mut inbox)? as u64);
    }
}

/// Replies arrive in the order of the requests, so the longest waiter is first.
fn answered(driven: &mut Driven, waiting: &mut VecDeque<(Instant, u64)>, mut replies: u64) {
    driven.answered += replies;
    while let Some((since, count)) = waiting.front_mut() {
        let taken = replies.min(*count);
        driven.waited_since(*since, taken);
        (*count, replies) = (*count - taken, replies - taken);
        if *count > 0 {
            return;
        }
        waiting.pop_front();
    }
}

/// Removes all complete replies from the buffer and returns their number.
pub(crate) fn take_replies(inbox: &mut Vec<u8>) -> Result<usize, String> {
    let (mut at, mut count) = (0, 0);
    while let Some(length) = reply_bytes(&inbox[at..])? {
        at += length;
        count += 1;
    }
    inbox.drain(..at);
    Ok(count)
}

/// The length of the first reply; `None` while it is incomplete.
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
    fn the_longest_waiter_is_answered_first() {
        let mut driven = Driven::nothing().unwrap();
        let mut waiting: VecDeque<_> = [(now(), 3), (now(), 4)].into();
        answered(&mut driven, &mut waiting, 2);
        assert_eq!(waiting.iter().map(|each| each.1).collect::<Vec<_>>(), [1, 4]);
        answered(&mut driven, &mut waiting, 4);
        assert_eq!(waiting.iter().map(|each| each.1).collect::<Vec<_>>(), [1]);
        assert_eq!((driven.answered, driven.nanos.len()), (6, 6));
    }

    #[test]
    fn an_error_is_not_an_answer() {
        assert!(take_replies(&mut b":1\r\n-NOSCRIPT No matching script.\r\n".to_vec()).is_err());
    }
}
