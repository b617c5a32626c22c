//! Commands of the RESP listener. The first byte selects the sizes of the pieces in which the rest arrives, and whether the client
//! has authenticated.
//!
//! Properties: the pieces do not matter. A command consumes some of the bytes, never more
//! than there are. A command parses the same after it is written as an array.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip]
#[path = "../../crates/sluicegate-server/src/resp/parse.rs"]
mod parse;

use parse::{
    BULK_BYTES_MAX, Bounds, LINE_BYTES_MAX, Parser, ProtocolError, STRANGER_BYTES_MAX, STRANGER_WORDS_MAX,
    WORDS_MAX,
};

type Command = Vec<Vec<u8>>;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, input)) = bytes.split_first() else { return };
    let (size, bounds) = (usize::from(first & 0x7F).max(1), bounds(*first));
    let (commands, error) = read(bounds, input.chunks(input.len().max(1)));
    assert_eq!(read(bounds, input.chunks(size)), (commands.clone(), error));
    assert_eq!(read(bounds, input.chunks(1)), (commands.clone(), error));
    let (words_max, bytes_max) = match bounds {
        Bounds::Usual => (WORDS_MAX, BULK_BYTES_MAX.max(LINE_BYTES_MAX)),
        Bounds::Stranger => (STRANGER_WORDS_MAX, STRANGER_BYTES_MAX),
    };
    for command in &commands {
        assert!(command.len() <= words_max);
        assert!(command.iter().all(|word| word.len() <= bytes_max));
    }
    let written: Vec<u8> = commands.iter().flat_map(written).collect();
    assert_eq!(read(bounds, [&written[..]].into_iter()), (commands, None));
    if let Some(error) = error {
        assert!(error.to_string().starts_with("Protocol error: "));
    }
});

fn bounds(first: u8) -> Bounds {
    if first < 0x80 { Bounds::Usual } else { Bounds::Stranger }
}

fn read<'a>(bounds: Bounds, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Command>, Option<ProtocolError>) {
    let (mut parser, mut buffer, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    parser.bound(bounds);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let taken = match parser.next(&buffer) {
                Ok(None) => break,
                Ok(Some((words, taken))) => {
                    commands.push(words.iter().map(|word| word.to_vec()).collect());
                    taken
                }
                Err(error) => return (commands, Some(error)),
            };
            assert!((1..=buffer.len()).contains(&taken), "{taken} of {}", buffer.len());
            buffer.drain(..taken);
        }
    }
    (commands, None)
}

fn written(command: &Command) -> Vec<u8> {
    let words =
        command.iter().flat_map(|word| [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    format!("*{}\r\n", command.len()).into_bytes().into_iter().chain(words).collect()
}
