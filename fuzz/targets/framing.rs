//! HTTP/1 message framing on a connection. The first byte selects the sizes of the pieces in which the rest arrives.
//!
//! Properties: the pieces do not matter, except for line ends before the poisoned byte. At most one byte is poisoned, and nothing
//! after it is parsed. A parser that sees all bytes at once finds the same message boundaries.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip]
#[path = "../../crates/sluicegate-server/src/net/http1_framing.rs"]
mod framing;

use framing::{FramingGuard, ResponseProgress};

/// Lines up to this length stay whole however they arrive; longer ones may be rejected only if they arrive in pieces.
const LINE_BYTES: usize = 256;

/// The response is not written before all of it has arrived.
const STANDING: ResponseProgress = ResponseProgress { answers: 0, is_upgraded: false };

fuzz_target!(|bytes: &[u8]| {
    let Some((size, input)) = bytes.split_first() else { return };
    let whole = passed(input, input.len().max(1));
    let has_long_lines = input.split(|byte| *byte == b'\n').any(|line| line.len() >= LINE_BYTES);
    if !has_long_lines {
        for size in [usize::from(*size).max(1), 1] {
            let pieces = passed(input, size);
            assert_eq!(pieces.is_some(), whole.is_some(), "{}", input.escape_ascii());
            assert!(are_at_one_place(input, pieces, whole), "{}", input.escape_ascii());
        }
    }
    let expected = ambiguous_at(input);
    assert_eq!(whole.is_some(), expected.is_some(), "{}", input.escape_ascii());
    assert!(are_at_one_place(input, whole, expected.map(Some)), "{}", input.escape_ascii());
});

/// The poisoned byte, if any. A byte that was NUL before looks the same, so its position is unknown.
type Spoiled = Option<Option<usize>>;

/// The result of the framing guard.
fn passed(input: &[u8], size: usize) -> Spoiled {
    let mut framing = FramingGuard::new();
    let mut bytes = input.to_vec();
    let spoiled = bytes.chunks_mut(size).filter_map(|piece| framing.pass(piece, STANDING).then_some(())).count();
    assert!(spoiled <= 1, "nothing is looked at after a byte was spoiled");
    let changed: Vec<usize> = (0..input.len()).filter(|&at| input[at] != bytes[at]).collect();
    assert!(changed.len() <= spoiled, "{changed:?} in {}", input.escape_ascii());
    assert!(changed.iter().all(|at| bytes[*at] == 0), "{changed:?} in {}", input.escape_ascii());
    (spoiled == 1).then(|| changed.first().copied())
}

/// Whether there are only line ends between the two.
fn are_at_one_place(input: &[u8], one: Spoiled, other: Spoiled) -> bool {
    let (Some(Some(one)), Some(Some(other))) = (one, other) else { return true };
    let between = &input[one.min(other) + 1..=one.max(other)];
    between.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// The end of the first ambiguous element, by a parser that reads the requests one after the other.
fn ambiguous_at(input: &[u8]) -> Option<usize> {
    let mut reader = Reader { input, at: 0 };
    loop {
        if let Err(end) = reader.request() {
            return end;
        }
    }
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

/// `Err(None)` is the end of the input, `Err(Some(at))` an ambiguous element.
type Read<T> = Result<T, Option<usize>>;

impl<'a> Reader<'a> {
    /// The next line without its end, which must be CR LF, and the position of its LF.
    fn line(&mut self) -> Read<(&'a [u8], usize)> {
        let rest = &self.input[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or(None)?;
        let end = self.at + length;
        self.at = end + 1;
        Ok((rest[..length].strip_suffix(b"\r").ok_or(Some(end))?, end))
    }

    fn skip(&mut self, bytes: u64) -> Read<()> {
        let bytes = usize::try_from(bytes).map_err(|_| None)?;
        if bytes > self.input.len() - self.at {
            return Err(None);
        }
        self.at += bytes;
        Ok(())
    }

    fn request(&mut self) -> Read<()> {
        let (mut start, mut end) = self.line()?;
        while start.is_empty() {
            (start, end) = self.line()?;
        }
        if start.contains(&b'\r') {
            return Err(Some(end));
        }
        let (mut length, mut is_chunked, mut is_last) = (None, false, start.starts_with(b"CONNECT "));
        let end = loop {
            let (line, end) = self.line()?;
            if line.is_empty() {
                break end;
            }
            let line = String::from_utf8_lossy(line).to_ascii_lowercase();
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            match name {
                "content-length" if line.contains(':') => {
                    if length.is_some() {
                        return Err(Some(end));
                    }
                    length = Some(number(value.trim_ascii(), 10).ok_or(Some(end))?);
                }
                "transfer-encoding" if line.contains(':') => is_chunked = true,
                "upgrade" if line.contains(':') => is_last = true,
                _ => {}
            }
            if is_chunked && length.is_some() {
                return Err(Some(end));
            }
        };
        match length {
            _ if is_chunked && is_last => return Err(Some(end)),
            _ if is_chunked => self.chunks()?,
            _ => self.skip(length.unwrap_or(0))?,
        }
        // All bytes after a request to upgrade the protocol are poisoned.
        if is_last && self.at < self.input.len() { Err(Some(self.at)) } else { Ok(()) }
    }

    fn chunks(&mut self) -> Read<()> {
        loop {
            let (line, end) = self.line()?;
            match number(str::from_utf8(line).map_err(|_| Some(end))?, 16).ok_or(Some(end))? {
                0 => break,
                bytes => self.skip(bytes)?,
            }
            let (line, end) = self.line()?;
            if !line.is_empty() {
                return Err(Some(end));
            }
        }
        while !self.line()?.0.is_empty() {}
        Ok(())
    }
}

fn number(digits: &str, radix: u32) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}
