//! The HTTP/1 framing guard against request smuggling: it checks message boundaries before hyper parses them.
//!
//! hyper frames messages by RFC 9112 and is lenient where the standard allows it. It silently drops a `Content-Length`
//! beside a `Transfer-Encoding`, accepts a bare LF as a line end, keeps one of two equal lengths, and ignores chunk
//! extensions. Each of these has been used to smuggle requests past other servers. hyper's requests no longer show them,
//! so [`FramingGuard`] checks the incoming bytes.
//!
//! The guard leaves valid requests unchanged. If a line is ambiguous, it overwrites one byte with NUL before hyper sees it.
//! hyper rejects NUL: in a head with 400, in a body with an error that the handler maps to 400. The connection then closes,
//! and nothing after that byte is parsed.
//!
//! Where the guard differs from the standard it is stricter. So the guard and hyper can only disagree about a rejected
//! message; if both accept one, both see the same lines, the same length and the same end.

use std::ops::ControlFlow;

/// Bytes kept of a line that arrives in pieces. The relevant lines are short: a length has at most 20 digits, and a length
/// behind hundreds of spaces is rejected.
const LINE_BYTES_KEPT: usize = 256;

/// A byte that hyper rejects in every position.
const POISON: u8 = 0;

/// The framing state of one connection.
#[derive(Debug)]
pub(super) struct FramingGuard {
    state: FramingState,
    line: Line,
    /// Complete heads so far.
    heads: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingState {
    /// Before a request line; empty lines may come first.
    Start,
    /// In the header lines of a head.
    Head(Head),
    /// This many bytes of a body are missing; then the second value follows.
    Bytes(u64, After),
    /// In the line with the size of the next chunk.
    ChunkSize,
    /// In the line end after a chunk.
    ChunkEnd,
    /// In the trailers.
    Trailers,
    /// After a request for a protocol upgrade. Bytes before its response belong to neither protocol.
    Held,
    /// The guard is off: the rest is not checked.
    Off,
}

/// The framing headers of a head so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    length: Option<u64>,
    is_chunked: bool,
    requests_upgrade: bool,
}

/// The state after counted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Request { requests_upgrade: bool },
    ChunkEnd,
}

/// The reason to reject the rest of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ambiguous {
    /// A line does not end in CR LF.
    BareLf,
    /// The content of a line is ambiguous or invalid.
    Content,
}

/// The responses of a connection so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseProgress {
    /// Requests that were answered or aborted.
    pub(super) answers: u64,
    /// The last response was 101: the bytes are no longer HTTP.
    pub(super) is_upgraded: bool,
}

impl FramingGuard {
    /// The guard of a new connection.
    pub(super) fn new() -> Self {
        Self { state: FramingState::Start, line: Line::default(), heads: 0 }
    }

    fn stop(&mut self) {
        self.state = FramingState::Off;
    }

    fn is_on(&self) -> bool {
        self.state != FramingState::Off
    }

    /// Checks incoming bytes, and poisons one if they make a request ambiguous. Returns whether it did.
    pub(super) fn pass(&mut self, bytes: &mut [u8], progress: ResponseProgress) -> bool {
        if progress.is_upgraded {
            self.stop();
        }
        if self.state == FramingState::Held && progress.answers >= self.heads {
            self.state = FramingState::Start;
        }
        // The start of the current head in these bytes.
        let (mut at, mut head) = (0, 0);
        while at < bytes.len() && self.is_on() {
            if self.state == FramingState::Start {
                head = at;
            }
            match self.step(&bytes[at..]) {
                ControlFlow::Continue(taken) => at += taken,
                ControlFlow::Break((end, why)) => {
                    if let Some(poisoned) = self.byte_to_poison(&bytes[..=at + end], head, why) {
                        bytes[poisoned] = POISON;
                    }
                    self.stop();
                    return true;
                }
            }
        }
        false
    }

    /// The byte to poison. The last of `bytes` ends the ambiguous line, and the current head begins at `head`. `None` if hyper
    /// rejects the bytes as they are.
    ///
    /// In a body the LF is poisoned, because hyper checks little else. A bare LF after a chunk size stays, because hyper
    /// checks for it. hyper parses a head only once it sees the head's end, and without the end the client would wait for
    /// a response. So in a head the last byte other than CR and LF is poisoned, if it is still in this buffer.
    fn byte_to_poison(&self, bytes: &[u8], head: usize, why: Ambiguous) -> Option<usize> {
        let end = bytes.len() - 1;
        match self.state {
            FramingState::Start | FramingState::Head(_) => {
                let visible = bytes[head..end].iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
                Some(visible.map_or(end, |place| head + place))
            }
            FramingState::ChunkSize if why == Ambiguous::BareLf => None,
            _ => Some(end),
        }
    }

    /// Consumes some of `bytes`, which are not empty. Breaks with the end and the reason of an ambiguous line.
    fn step(&mut self, bytes: &[u8]) -> ControlFlow<(usize, Ambiguous), usize> {
        if let FramingState::Bytes(left, after) = &mut self.state {
            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= taken as u64;
            if *left == 0 {
                self.state = after.state();
            }
            return ControlFlow::Continue(taken);
        }
        if self.state == FramingState::Held {
            return ControlFlow::Break((0, Ambiguous::Content));
        }
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.line.keep(bytes);
            return ControlFlow::Continue(bytes.len());
        };
        let taken = if self.line.is_empty() {
            self.state.end_of_line(&bytes[..end], false)
        } else {
            self.line.keep(&bytes[..end]);
            self.state.end_of_line(&self.line.kept, self.line.is_cut)
        };
        self.line.clear();
        match taken {
            Ok(next) => {
                self.heads += u64::from(
                    matches!(self.state, FramingState::Head(_)) && !matches!(next, FramingState::Head(_)),
                );
                self.state = next;
                ControlFlow::Continue(end + 1)
            }
            Err(why) => ControlFlow::Break((end, why)),
        }
    }
}

impl FramingState {
    /// The state after a line. `line` lacks its LF, and its middle if it `is_cut`.
    fn end_of_line(self, line: &[u8], is_cut: bool) -> Result<Self, Ambiguous> {
        let Some((b'\r', line)) = line.split_last() else {
            return Err(Ambiguous::BareLf);
        };
        match self {
            Self::Start if line.is_empty() => Ok(Self::Start),
            Self::Start if line.contains(&b'\r') => Err(Ambiguous::Content),
            Self::Start => {
                Ok(Self::Head(Head { requests_upgrade: line.starts_with(b"CONNECT "), ..Head::default() }))
            }
            Self::Head(head) if line.is_empty() => head.end(),
            Self::Head(head) => head.field(line, is_cut).map(Self::Head),
            Self::ChunkSize if !is_cut => match chunk_size(line)? {
                0 => Ok(Self::Trailers),
                bytes => Ok(Self::Bytes(bytes, After::ChunkEnd)),
            },
            Self::ChunkEnd if line.is_empty() => Ok(Self::ChunkSize),
            Self::Trailers if line.is_empty() => Ok(Self::Start),
            Self::Trailers => Ok(Self::Trailers),
            Self::ChunkSize | Self::ChunkEnd | Self::Bytes(..) | Self::Held | Self::Off => Err(Ambiguous::Content),
        }
    }
}

impl Head {
    /// Adds a header line.
    fn field(mut self, line: &[u8], is_cut: bool) -> Result<Self, Ambiguous> {
        // The first letter distinguishes nearly all names.
        match line[0] | 0x20 {
            b'c' if let Some(value) = value_of(line, b"content-length") => {
                if is_cut || self.length.is_some() {
                    return Err(Ambiguous::Content);
                }
                self.length = Some(decimal(value)?);
            }
            b't' if value_of(line, b"transfer-encoding").is_some() => {
                if is_cut {
                    return Err(Ambiguous::Content);
                }
                // `head.rs` checks the codings, where a response can name them; all that hyper accepts end in chunked.
                self.is_chunked = true;
            }
            b'u' if value_of(line, b"upgrade").is_some() => self.requests_upgrade = true,
            _ => {}
        }
        if self.is_chunked && self.length.is_some() { Err(Ambiguous::Content) } else { Ok(self) }
    }

    /// The state after the head.
    fn end(self) -> Result<FramingState, Ambiguous> {
        let requests_upgrade = self.requests_upgrade;
        match self.length {
            // No client sends a chunked body before a protocol upgrade.
            _ if self.is_chunked && requests_upgrade => Err(Ambiguous::Content),
            _ if self.is_chunked => Ok(FramingState::ChunkSize),
            None | Some(0) => Ok(After::Request { requests_upgrade }.state()),
            Some(length) => Ok(FramingState::Bytes(length, After::Request { requests_upgrade })),
        }
    }
}

impl After {
    fn state(self) -> FramingState {
        match self {
            Self::Request { requests_upgrade: true } => FramingState::Held,
            Self::Request { requests_upgrade: false } => FramingState::Start,
            Self::ChunkEnd => FramingState::ChunkEnd,
        }
    }
}

/// The trimmed value, if the line is the header `name`, which is in lower case.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let (b':', value) = rest.split_first()? else { return None };
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// A number of decimal digits only.
fn decimal(digits: &[u8]) -> Result<u64, Ambiguous> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Ambiguous::Content);
    }
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Ambiguous::Content)
}

/// A number of hexadecimal digits only: no sign, no `0x`, no spaces, no extension.
fn chunk_size(digits: &[u8]) -> Result<u64, Ambiguous> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Ambiguous::Content);
    }
    str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(Ambiguous::Content)
}

/// The start of an incomplete line, and its last byte.
#[derive(Debug, Default)]
struct Line {
    kept: Vec<u8>,
    /// Bytes between the start and the last byte were dropped.
    is_cut: bool,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = LINE_BYTES_KEPT.saturating_sub(self.kept.len());
        if piece.len() <= room {
            self.kept.extend_from_slice(piece);
            return;
        }
        self.kept.extend_from_slice(&piece[..room]);
        self.is_cut = true;
        // The rest only matters for whether the line ends in CR.
        if let (Some(last), Some(slot)) = (piece.last(), self.kept.last_mut()) {
            *slot = *last;
        }
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests;
