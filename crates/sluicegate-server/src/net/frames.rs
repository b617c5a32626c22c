//! HTTP/2 frames that make work and bring nothing, counted.
//!
//! RST_STREAM, SETTINGS, PING, PRIORITY and frames of unknown types are a few bytes each, and a peer may send as many as
//! the line carries: rapid reset and the floods of settings and pings are nothing else. The library under us bounds
//! what they can make it hold, not how often it has to look. This counts them as they pass; [`super::activity`] says how
//! many are too many. Only frame headers are read, and nothing is decided about what is in a frame.

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

/// Follows the frames of one connection, from the end of its preface on.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` that have arrived.
    header_bytes: usize,
    /// Bytes of the present frame that are still to come.
    payload_bytes: usize,
}

impl Frames {
    /// How many frames that bring nothing begin in `bytes`.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u32 {
        let mut found = 0;
        while !bytes.is_empty() {
            let skipped = self.payload_bytes.min(bytes.len());
            self.payload_bytes -= skipped;
            bytes = &bytes[skipped..];

            let taken = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.header_bytes += taken;
            bytes = &bytes[taken..];
            if self.header_bytes == HEADER_BYTES {
                found += u32::from(self.header_complete());
            }
        }
        found
    }

    /// Goes on to the payload; whether the frame is one that brings nothing.
    fn header_complete(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload_bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.header_bytes = 0;
        match kind {
            DATA | HEADERS | GOAWAY | WINDOW_UPDATE | CONTINUATION => false,
            SETTINGS | PING => flags & ACK == 0,
            _ => true,
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
            let count: u32 = stream.chunks(size).map(|piece| frames.count(piece)).sum();
            assert_eq!(count, 5, "in pieces of {size}");
        }
    }
}
