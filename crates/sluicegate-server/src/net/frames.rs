//! HTTP/2 frames that make work and bring nothing, counted, and heads that have begun and not ended.
//!
//! RST_STREAM, SETTINGS, PING, PRIORITY and frames of unknown types are a few bytes each, and a peer may send as many as
//! the line carries: rapid reset and the floods of settings and pings are nothing else. The library under us bounds
//! what they can make it hold, not how often it has to look. Nor does it ask how long a head takes, which is one or
//! several frames with nothing between them. This sees them pass; [`super::activity`] says how many are too many, and
//! how long is too long. Only frame headers are read, and nothing is decided about what is in a frame.

/// The bytes of a frame's header (RFC 9113 §4.1).
const HEADER_BYTES: usize = 9;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// On SETTINGS and PING: an answer to ours.
const ACK: u8 = 1;
/// On HEADERS and CONTINUATION: the head ends with this frame.
const END_HEADERS: u8 = 4;

/// What some bytes brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// How many frames that bring nothing began.
    pub(super) idle_frames: u32,
    /// What became of the head that is open, if anything did.
    pub(super) head: Option<Head>,
}

/// Something that happens to a head, trailers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// One has begun that is not whole yet; if another was open before, that one has ended.
    Began,
    /// The one that was open has ended, and none is.
    Ended,
}

/// Follows the frames of one connection, from the end of its preface on.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` that have arrived.
    header_bytes: usize,
    /// Bytes of the present frame that are still to come.
    payload_bytes: usize,
    open: Open,
}

/// Whether a head has begun and not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    None,
    /// With the end of the present frame it ends.
    LastFrame,
    MoreFrames,
}

impl Frames {
    /// Goes on by `bytes`, and says what they brought.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> Arrived {
        let was_open = self.open != Open::None;
        let (mut idle_frames, mut has_begun) = (0, false);
        while !bytes.is_empty() {
            let skipped = self.payload_bytes.min(bytes.len());
            self.payload_bytes -= skipped;
            bytes = &bytes[skipped..];
            self.end_head();

            let taken = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.header_bytes += taken;
            bytes = &bytes[taken..];
            if self.header_bytes == HEADER_BYTES {
                idle_frames += u32::from(self.header_complete());
                has_begun |= self.header[3] == HEADERS;
                self.end_head();
            }
        }
        let head = match (was_open, self.open != Open::None) {
            (_, true) if has_begun => Some(Head::Began),
            (true, false) => Some(Head::Ended),
            _ => None,
        };
        Arrived { idle_frames, head }
    }

    /// Goes on to the payload; whether the frame is one that brings nothing.
    fn header_complete(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload_bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.header_bytes = 0;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.open = if flags & END_HEADERS == 0 { Open::MoreFrames } else { Open::LastFrame };
        }
        match kind {
            DATA | HEADERS | GOAWAY | WINDOW_UPDATE | CONTINUATION => false,
            SETTINGS | PING => flags & ACK == 0,
            _ => true,
        }
    }

    fn end_head(&mut self) {
        if self.payload_bytes == 0 && self.open == Open::LastFrame {
            self.open = Open::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn only_what_brings_nothing_counts_however_it_arrives() {
        let stream = [
            frame(SETTINGS, 0, &[0; 12]),
            frame(SETTINGS, ACK, &[]),
            frame(HEADERS, 5, b"\x82\x84\x86"),
            frame(DATA, 0, &frame(PING, 0, &[0; 8])),
            frame(PING, 0, &[0; 8]),
            frame(PING, ACK, &[0; 8]),
            frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
            frame(3, 0, &[0; 4]),
            frame(2, 0, &[0; 5]),
            frame(200, 0, &[0; 300]),
            frame(CONTINUATION, 4, b"x"),
            frame(GOAWAY, 0, &[0; 8]),
        ]
        .concat();
        for size in [stream.len(), 1, 2, 7, 9, 10, 64] {
            let mut frames = Frames::default();
            let count: u32 = stream.chunks(size).map(|piece| frames.pass(piece).idle_frames).sum();
            assert_eq!(count, 5, "in pieces of {size}");
        }
    }
    #[test]
    fn a_head_is_open_until_all_of_it_has_come() {
        let stream = [
            frame(SETTINGS, 0, &[]),
            frame(HEADERS, 0, b"ab"),
            frame(CONTINUATION, 0, b""),
            frame(CONTINUATION, END_HEADERS, b"c"),
            frame(PING, 0, &[0; 8]),
            frame(HEADERS, END_HEADERS, b""),
            frame(DATA, 0, &frame(HEADERS, 0, b"")),
            frame(HEADERS, END_HEADERS, b"abc"),
        ]
        .concat();
        let at_once = Frames::default().pass(&stream);
        assert_eq!(at_once, Arrived { idle_frames: 2, head: None }, "whole heads need no time");

        let mut frames = Frames::default();
        let byte_by_byte = stream.iter().enumerate();
        let heads: Vec<(usize, Head)> =
            byte_by_byte.filter_map(|(at, byte)| Some((at, frames.pass(&[*byte]).head?))).collect();
        // One ends with its CONTINUATION, the empty one where it begins, the last with its third byte.
        let last = stream.len() - 1;
        assert_eq!(heads, [(17, Head::Began), (38, Head::Ended), (last - 3, Head::Began), (last, Head::Ended)]);
    }

    #[test]
    fn a_head_that_begins_where_another_ends_is_a_new_one() {
        let mut frames = Frames::default();
        assert_eq!(frames.pass(&frame(HEADERS, 0, b"a")).head, Some(Head::Began));
        let end_and_next = [frame(CONTINUATION, END_HEADERS, b"b"), frame(HEADERS, 0, b"c")].concat();
        assert_eq!(frames.pass(&end_and_next).head, Some(Head::Began));
        assert_eq!(frames.pass(&frame(CONTINUATION, 0, b"d")).head, None);
        assert_eq!(frames.pass(&frame(CONTINUATION, END_HEADERS, b"e")).head, Some(Head::Ended));
    }
}
