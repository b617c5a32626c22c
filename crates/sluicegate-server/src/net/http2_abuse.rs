//! Frame counts against HTTP/2 abuse: control frames, unfinished heads, and the bytes of responses.
//!
//! A frame is a few bytes that cost the server work, and a peer may send as many as the network carries. Rapid reset and
//! floods of settings, pings, acknowledgements and window updates work this way. hyper bounds the memory of such frames and
//! not the work. Nor does it bound the time of a head, which is one or several frames in sequence. [`super::deadlines`]
//! has the bounds of both. This module reads frame headers only, never the content of a frame.
//!
//! | frame | count |
//! |---|---|
//! | DATA with content, or with the end of its stream | none: it is a request's body, and flow control bounds it |
//! | HEADERS | separate: each request that begins pays for two |
//! | PING without ACK, WINDOW_UPDATE | separate: normal peers send them in reply to data, so sent data pays for them |
//! | all others, including unknown types and empty DATA | control frame |

/// The bytes of a frame's header (RFC 9113 §4.1).
const HEADER_BYTES: usize = 9;

/// The bytes of a PING.
const PING_BYTES: u32 = 17;

/// A DATA frame with fewer bytes costs more than its content.
const SMALL_DATA_BYTES: usize = 256;

/// Small DATA frames that hyper receives per turn. hyper ends a connection with some hundred unread ones, so the tasks that
/// read them need turns in between.
pub(super) const SMALL_DATA_PER_TURN: u32 = 64;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// On SETTINGS and PING: an acknowledgement of the server's frame.
const ACK: u8 = 1;
/// On DATA: the request ends with this frame.
const END_STREAM: u8 = 1;
/// On HEADERS and CONTINUATION: the head ends with this frame.
const END_HEADERS: u8 = 4;

/// The frames in a piece of input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameCounts {
    /// Bytes processed. The others wait for the next turn, because of [`SMALL_DATA_PER_TURN`].
    pub(super) bytes: usize,
    /// Control frames that are neither `head_frames` nor `flow_frames`.
    pub(super) control_frames: u32,
    /// HEADERS frames, of requests and of trailers.
    pub(super) head_frames: u32,
    /// Frames that a peer sends in reply to data: PING without ACK, and WINDOW_UPDATE.
    pub(super) flow_frames: u32,
    /// Bytes of the acknowledgements that the server must send.
    pub(super) acknowledgement_bytes: u32,
    /// The change of the open head, if there is one.
    pub(super) head: Option<Head>,
}

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Part of a request's body.
    Body,
    /// The beginning of a request, or its trailers.
    Head,
    /// A reply to data.
    WindowUpdate,
    /// A reply to data that the server must acknowledge.
    Ping,
    /// A frame that the server must acknowledge.
    Settings,
    /// All others.
    Control,
}

impl FrameCounts {
    /// Whether any counted frame began.
    pub(super) fn has_counted_frames(&self) -> bool {
        self.control_frames > 0 || self.head_frames > 0 || self.flow_frames > 0
    }

    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Body => {}
            Kind::Head => self.head_frames += 1,
            Kind::WindowUpdate => self.flow_frames += 1,
            Kind::Ping => {
                self.flow_frames += 1;
                self.acknowledgement_bytes += PING_BYTES;
            }
            Kind::Settings => {
                self.control_frames += 1;
                self.acknowledgement_bytes += HEADER_BYTES as u32;
            }
            Kind::Control => self.control_frames += 1,
        }
    }
}

/// A change of the open head, which may also be of trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// A head has begun and is incomplete. A head that was open before has ended.
    Began,
    /// The open head has ended.
    Ended,
}

/// The position in a sequence of frames.
#[derive(Debug, Default)]
struct Cursor {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` received so far.
    header_bytes: usize,
    /// Bytes of the current frame that are missing.
    payload_bytes: usize,
}

impl Cursor {
    /// Skips the current frame's payload in `bytes`. Returns its length there.
    fn pass_payload(&mut self, bytes: &mut &[u8]) -> usize {
        let passed = self.payload_bytes.min(bytes.len());
        self.payload_bytes -= passed;
        *bytes = &bytes[passed..];
        passed
    }

    /// Continues the frame header. Returns it once it is complete.
    fn pass_header(&mut self, bytes: &mut &[u8]) -> Option<[u8; HEADER_BYTES]> {
        let taken = (HEADER_BYTES - self.header_bytes).min(bytes.len());
        self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
        self.header_bytes += taken;
        *bytes = &bytes[taken..];
        if self.header_bytes < HEADER_BYTES {
            return None;
        }
        let [high, middle, low, ..] = self.header;
        self.payload_bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.header_bytes = 0;
        Some(self.header)
    }
}

/// Counts the DATA bytes that the server sends on one connection.
#[derive(Debug, Default)]
pub(super) struct SentFrames {
    cursor: Cursor,
    is_data: bool,
}

impl SentFrames {
    /// Processes sent bytes. Returns how many of them belong to response bodies.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> usize {
        let mut body_bytes = 0;
        while !bytes.is_empty() {
            let passed = self.cursor.pass_payload(&mut bytes);
            if self.is_data {
                body_bytes += passed;
            }
            if let Some([_, _, _, kind, ..]) = self.cursor.pass_header(&mut bytes) {
                self.is_data = kind == DATA;
            }
        }
        body_bytes
    }
}

/// Counts the frames that a peer sends, from the end of its preface.
#[derive(Debug, Default)]
pub(super) struct ReceivedFrames {
    cursor: Cursor,
    open: Open,
}

/// The state of a head that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    None,
    /// It ends with the current frame.
    LastFrame,
    MoreFrames,
}

impl ReceivedFrames {
    /// Counts the frames in `bytes`, up to the end of the turn.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> FrameCounts {
        let (all, mut small_data) = (bytes.len(), 0);
        let was_open = self.open != Open::None;
        let (mut arrived, mut has_begun) = (FrameCounts::default(), false);
        while !bytes.is_empty() && small_data < SMALL_DATA_PER_TURN {
            self.cursor.pass_payload(&mut bytes);
            self.end_head();
            if let Some([_, _, _, kind, flags, ..]) = self.cursor.pass_header(&mut bytes) {
                arrived.count(self.frame_began(kind, flags));
                has_begun |= kind == HEADERS;
                small_data +=
                    u32::from(kind == DATA && (1..SMALL_DATA_BYTES).contains(&self.cursor.payload_bytes));
                self.end_head();
            }
        }
        arrived.bytes = all - bytes.len();
        arrived.head = match (was_open, self.open != Open::None) {
            (_, true) if has_begun => Some(Head::Began),
            (true, false) => Some(Head::Ended),
            _ => None,
        };
        arrived
    }

    /// Tracks the head that begins or continues with the frame. Returns the kind of the frame.
    fn frame_began(&mut self, kind: u8, flags: u8) -> Kind {
        if matches!(kind, HEADERS | CONTINUATION) {
            self.open = if flags & END_HEADERS == 0 { Open::MoreFrames } else { Open::LastFrame };
        }
        match kind {
            DATA if self.cursor.payload_bytes > 0 || flags & END_STREAM != 0 => Kind::Body,
            HEADERS => Kind::Head,
            WINDOW_UPDATE => Kind::WindowUpdate,
            PING if flags & ACK == 0 => Kind::Ping,
            SETTINGS if flags & ACK == 0 => Kind::Settings,
            _ => Kind::Control,
        }
    }

    fn end_head(&mut self) {
        if self.cursor.payload_bytes == 0 && self.open == Open::LastFrame {
            self.open = Open::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAWAY: u8 = 7;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn every_frame_that_is_no_part_of_a_body_counts_however_it_arrives() {
        let stream = [
            frame(SETTINGS, 0, &[0; 12]),
            frame(SETTINGS, ACK, &[]),
            frame(HEADERS, 5, b"\x82\x84\x86"),
            frame(DATA, 0, &frame(PING, 0, &[0; 8])),
            frame(DATA, END_STREAM, &[]),
            frame(DATA, 0, &[]),
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
            let mut frames = ReceivedFrames::default();
            let (mut control, mut heads, mut flow, mut owed) = (0, 0, 0, 0);
            for piece in stream.chunks(size) {
                let arrived = frames.pass(piece);
                control += arrived.control_frames;
                heads += arrived.head_frames;
                flow += arrived.flow_frames;
                owed += arrived.acknowledgement_bytes;
            }
            assert_eq!((control, heads, flow, owed), (9, 1, 2, 17 + 9), "in pieces of {size}");
        }
    }

    #[test]
    fn so_many_small_data_go_at_a_time() {
        let (small, large) = (frame(DATA, 0, b"x"), frame(DATA, 0, &[7; SMALL_DATA_BYTES]));
        let stream = [large.repeat(300), small.repeat(64), frame(PING, 0, &[0; 8]), small.repeat(64)].concat();
        let mut frames = ReceivedFrames::default();
        let first = frames.pass(&stream);
        assert_eq!(
            first.bytes,
            large.len() * 300 + small.len() * 63 + HEADER_BYTES,
            "but for what is in the last"
        );
        assert_eq!(first.flow_frames, 0);
        let second = frames.pass(&stream[first.bytes..]);
        assert_eq!((second.bytes, second.flow_frames), (1 + 17 + small.len() * 63 + HEADER_BYTES, 1));
        assert_eq!(frames.pass(&stream[first.bytes + second.bytes..]).bytes, 1);
    }

    #[test]
    fn only_bytes_in_data_frames_count_as_sent() {
        let stream = [
            frame(SETTINGS, 0, &[0; 12]),
            frame(HEADERS, 4, b"\x88"),
            frame(DATA, 0, &[7; 300]),
            frame(PING, 0, &[0; 8]),
            frame(DATA, END_STREAM, &[]),
            frame(DATA, END_STREAM, &[7; 5]),
            frame(HEADERS, 5, b"\x88"),
        ]
        .concat();
        for size in [stream.len(), 1, 2, 7, 9, 10, 64] {
            let mut sent = SentFrames::default();
            let body_bytes: usize = stream.chunks(size).map(|piece| sent.pass(piece)).sum();
            assert_eq!(body_bytes, 305, "in pieces of {size}");
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
        let at_once = ReceivedFrames::default().pass(&stream);
        assert_eq!(at_once.head, None, "whole heads need no time");

        let mut frames = ReceivedFrames::default();
        let byte_by_byte = stream.iter().enumerate();
        let heads: Vec<(usize, Head)> =
            byte_by_byte.filter_map(|(at, byte)| Some((at, frames.pass(&[*byte]).head?))).collect();
        // One ends with its CONTINUATION, the empty one where it begins, the last with its third byte.
        let last = stream.len() - 1;
        assert_eq!(heads, [(17, Head::Began), (38, Head::Ended), (last - 3, Head::Began), (last, Head::Ended)]);
    }

    #[test]
    fn a_head_that_begins_where_another_ends_is_a_new_one() {
        let mut frames = ReceivedFrames::default();
        assert_eq!(frames.pass(&frame(HEADERS, 0, b"a")).head, Some(Head::Began));
        let end_and_next = [frame(CONTINUATION, END_HEADERS, b"b"), frame(HEADERS, 0, b"c")].concat();
        assert_eq!(frames.pass(&end_and_next).head, Some(Head::Began));
        assert_eq!(frames.pass(&frame(CONTINUATION, 0, b"d")).head, None);
        assert_eq!(frames.pass(&frame(CONTINUATION, END_HEADERS, b"e")).head, Some(Head::Ended));
    }
}
