//! Commands of the RESP listener. The first byte says in what pieces the rest arrives.
//!
//! What must hold: it makes no difference in which pieces the bytes come; a command takes some of them and never more
//! than there are; and a command that was read is read alike when it is written as an array.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip]
#[path = "../../crates/sluicegate-server/src/resp/parse.rs"]
mod parse;

use parse::{BULK_BYTES_MAX, LINE_BYTES_MAX, Parser, ProtocolError, WORDS_MAX};

type Command = Vec<Vec<u8>>;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, input)) = bytes.split_first() else { return };
    let (commands, error) = read(input.chunks(input.len().max(1)));
    assert_eq!(read(input.chunks(usize::from(*size).max(1))), (commands.clone(), error));
    assert_eq!(read(input.chunks(1)), (commands.clone(), error));
    for command in &commands {
        assert!(command.len() <= WORDS_MAX);
        assert!(command.iter().all(|word| word.len() <= BULK_BYTES_MAX.max(LINE_BYTES_MAX)));
    }
    let written: Vec<u8> = commands.iter().flat_map(written).collect();
    assert_eq!(read([&written[..]].into_iter()), (commands, None));
    if let Some(error) = error {
        assert!(error.to_string().starts_with("Protocol error: "));
    }
});

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Command>, Option<ProtocolError>) {
    let (mut parser, mut buffer, mut commands) = (Parser::default(), Vec::new(), Vec::new());
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
