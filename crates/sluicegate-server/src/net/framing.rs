//! Where the requests of an HTTP/1 connection begin and end, seen from outside of hyper, so that nothing ambiguous
//! gets past it.
//!
//! hyper frames messages as RFC 9112 says and is lenient where the standard lets it be: it drops a `Content-Length`
//! beside a `Transfer-Encoding` without telling anybody, takes a bare LF for the end of a line, keeps one of two equal
//! lengths, and reads over chunk extensions. Each of these is how a request has been smuggled past some other server.
//! By the time we see the request the evidence is gone, so [`Framing`] looks at the bytes on their way in.
//!
//! It decides nothing about valid requests and answers none. Of a line that it does not like it replaces a byte by a NUL,
//! which hyper refuses there: in a head with 400, in a body with an error that the handler turns into one, and the
//! connection closes after either. What follows on that connection is never looked at.
//!
//! It is stricter than the standard in every respect in which it differs, so the two can only disagree about a message
//! that is refused: where both accept, both see the same lines, the same length and the same end.

use std::ops::ControlFlow;

/// Bytes of one line that are kept when it arrives in pieces. The lines that matter are short: a length has at most 20
/// digits, and whoever hides one behind hundreds of spaces is refused.
const LINE_BYTES_KEPT: usize = 256;

/// What hyper refuses wherever it stands.
const POISON: u8 = 0;

/// Follows the framing of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    state: State,
    line: Line,
    /// Heads that were complete so far.
    heads: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a request line; empty lines may come first.
    Start,
    /// Among the field lines of a head.
    Head(Head),
    /// So many bytes of a body are still to come, then this.
    Bytes(u64, After),
    /// In a line that says how long the next chunk is.
    ChunkSize,
    /// In the line end after a chunk.
    ChunkEnd,
    /// Among the trailer fields.
    Trailers,
    /// A request asked for another protocol. What comes before its answer belongs to nobody.
    Held,
    /// Nothing is looked at any more.
    Off,
}

/// What a head has said so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    length: Option<u64>,
    is_chunked: bool,
    asks_upgrade: bool,
}

/// What follows counted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Request { asks_upgrade: bool },
    ChunkEnd,
}

/// Why the rest of a connection cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ambiguous {
    /// A line does not end in CR LF.
    BareLf,
    /// What a line says.
    Said,
}

/// How far the connection is on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Requests that were answered, or given up.
    pub(super) answers: u64,
    /// The last answer was 101: the bytes are no longer HTTP.
    pub(super) is_upgraded: bool,
}

impl Framing {
    /// A connection that has not sent anything.
    pub(super) fn new() -> Self {
        Self { state: State::Start, line: Line::default(), heads: 0 }
    }

    fn stop(&mut self) {
        self.state = State::Off;
    }

    fn is_on(&self) -> bool {
        self.state != State::Off
    }

    /// Looks at bytes on their way in, and spoils those that make a request ambiguous. True if it did.
    pub(super) fn pass(&mut self, bytes: &mut [u8], standing: Standing) -> bool {
        if standing.is_upgraded {
            self.stop();
        }
        if self.state == State::Held && standing.answers >= self.heads {
            self.state = State::Start;
        }
        // Where in these bytes the present head begins.
        let (mut at, mut head) = (0, 0);
        while at < bytes.len() && self.is_on() {
            if self.state == State::Start {
                head = at;
            }
            match self.step(&bytes[at..]) {
                ControlFlow::Continue(taken) => at += taken,
                ControlFlow::Break((end, why)) => {
                    if let Some(spoiled) = self.spoiled(&bytes[..=at + end], head, why) {
                        bytes[spoiled] = POISON;
                    }
                    self.stop();
                    return true;
                }
            }
        }
        false
    }

    /// Which byte to spoil where the last of `bytes` ends something ambiguous, and the present head begins at `head`. None if
    /// hyper refuses it as it is.
    ///
    /// Of a body it is the LF, because hyper looks at little else; only a bare one after the length of a chunk has to stay,
    /// because there it is what hyper looks for. hyper does not look at a head until it sees an end of it, and without one
    /// whoever sent it would wait for an answer: there it is the last byte which is neither CR nor LF, if that is still here.
    fn spoiled(&self, bytes: &[u8], head: usize, why: Ambiguous) -> Option<usize> {
        let end = bytes.len() - 1;
        match self.state {
            State::Start | State::Head(_) => {
                let visible = bytes[head..end].iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
                Some(visible.map_or(end, |place| head + place))
            }
            State::ChunkSize if why == Ambiguous::BareLf => None,
            _ => Some(end),
        }
    }

    /// Takes some of `bytes`, which are not empty, or says where something ambiguous ends, and why it is that.
    fn step(&mut self, bytes: &[u8]) -> ControlFlow<(usize, Ambiguous), usize> {
        if let State::Bytes(left, after) = &mut self.state {
            let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= taken as u64;
            if *left == 0 {
                self.state = after.state();
            }
            return ControlFlow::Continue(taken);
        }
        if self.state == State::Held {
            return ControlFlow::Break((0, Ambiguous::Said));
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
                self.heads += u64::from(matches!(self.state, State::Head(_)) && !matches!(next, State::Head(_)));
                self.state = next;
                ControlFlow::Continue(end + 1)
            }
            Err(why) => ControlFlow::Break((end, why)),
        }
    }
}

impl State {
    /// What a line leads to; `line` is without its LF, and without its middle if it `is_cut`.
    fn end_of_line(self, line: &[u8], is_cut: bool) -> Result<Self, Ambiguous> {
        let Some((b'\r', line)) = line.split_last() else {
            return Err(Ambiguous::BareLf);
        };
        match self {
            Self::Start if line.is_empty() => Ok(Self::Start),
            Self::Start if line.contains(&b'\r') => Err(Ambiguous::Said),
            Self::Start => Ok(Self::Head(Head { asks_upgrade: line.starts_with(b"CONNECT "), ..Head::default() })),
            Self::Head(head) if line.is_empty() => head.end(),
            Self::Head(head) => head.field(line, is_cut).map(Self::Head),
            Self::ChunkSize if !is_cut => match chunk_size(line)? {
                0 => Ok(Self::Trailers),
                bytes => Ok(Self::Bytes(bytes, After::ChunkEnd)),
            },
            Self::ChunkEnd if line.is_empty() => Ok(Self::ChunkSize),
            Self::Trailers if line.is_empty() => Ok(Self::Start),
            Self::Trailers => Ok(Self::Trailers),
            Self::ChunkSize | Self::ChunkEnd | Self::Bytes(..) | Self::Held | Self::Off => Err(Ambiguous::Said),
        }
    }
}

impl Head {
    /// What another field line says.
    fn field(mut self, line: &[u8], is_cut: bool) -> Result<Self, Ambiguous> {
        // Nearly all names are told apart by their first letter.
        match line[0] | 0x20 {
            b'c' if let Some(value) = value_of(line, b"content-length") => {
                if is_cut || self.length.is_some() {
                    return Err(Ambiguous::Said);
                }
                self.length = Some(decimal(value)?);
            }
            b't' if value_of(line, b"transfer-encoding").is_some() => {
                if is_cut {
                    return Err(Ambiguous::Said);
                }
                // Which codings there are is checked where an answer can say so; all that hyper takes end in chunked.
                self.is_chunked = true;
            }
            b'u' if value_of(line, b"upgrade").is_some() => self.asks_upgrade = true,
            _ => {}
        }
        if self.is_chunked && self.length.is_some() { Err(Ambiguous::Said) } else { Ok(self) }
    }

    /// What comes after the head.
    fn end(self) -> Result<State, Ambiguous> {
        let asks_upgrade = self.asks_upgrade;
        match self.length {
            // A body of pieces that ends in another protocol is nothing that anybody sends.
            _ if self.is_chunked && asks_upgrade => Err(Ambiguous::Said),
            _ if self.is_chunked => Ok(State::ChunkSize),
            None | Some(0) => Ok(After::Request { asks_upgrade }.state()),
            Some(length) => Ok(State::Bytes(length, After::Request { asks_upgrade })),
        }
    }
}

impl After {
    fn state(self) -> State {
        match self {
            Self::Request { asks_upgrade: true } => State::Held,
            Self::Request { asks_upgrade: false } => State::Start,
            Self::ChunkEnd => State::ChunkEnd,
        }
    }
}

/// The value of the field `name`, in lower case, if the line is one, without the spaces around it.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let (b':', value) = rest.split_first()? else { return None };
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Digits and nothing else.
fn decimal(digits: &[u8]) -> Result<u64, Ambiguous> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Ambiguous::Said);
    }
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Ambiguous::Said)
}

/// Hexadecimal digits and nothing else: no sign, no `0x`, no spaces, no extension.
fn chunk_size(digits: &[u8]) -> Result<u64, Ambiguous> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Ambiguous::Said);
    }
    str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(Ambiguous::Said)
}

/// The beginning of a line whose end has not come, and its last byte.
#[derive(Debug, Default)]
struct Line {
    kept: Vec<u8>,
    /// Something between the beginning and the last byte was left out.
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
        // Whether the line ends in CR is all that the rest is good for.
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
