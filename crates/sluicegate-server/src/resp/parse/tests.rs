//! Valid and invalid commands, in any fragmentation.

use proptest::prelude::*;

use super::*;

/// All commands in `input`, then the error if there is one.
fn all(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    pieces(&[input])
}

/// The same for bytes that come in pieces.
fn pieces(pieces: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
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
            buffer.drain(..taken);
        }
    }
    (commands, None)
}

fn words(input: &str) -> Vec<String> {
    let (commands, error) = all(input.as_bytes());
    assert_eq!((commands.len(), error), (1, None), "{input:?}");
    commands[0].iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[track_caller]
fn refused(input: impl AsRef<[u8]>, expected: ProtocolError) {
    assert_eq!(all(input.as_ref()), (Vec::new(), Some(expected)));
}

#[test]
fn arrays_and_lines_are_commands() {
    assert_eq!(words("*1\r\n$4\r\nPING\r\n"), ["PING"]);
    assert_eq!(words("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"), ["ECHO", ""]);
    assert_eq!(words("*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n"), ["ECHO", "a\r\nb"]);
    assert_eq!(words("PING\r\n"), ["PING"]);
    assert_eq!(words("PING\n"), ["PING"]);
    assert_eq!(words("  CL.THROTTLE\tkey  15 30 60 \r\n"), ["CL.THROTTLE", "key", "15", "30", "60"]);
    assert_eq!(words(concat!(r#"ECHO "a b\n\x41\q" 'c"d\'e\n'"#, "\r\n")), ["ECHO", "a b\nAq", "c\"d'e\\n"]);
    assert_eq!(words("ECHO a\"b c\"\r\n"), ["ECHO", "ab c"]);
}

#[test]
fn an_empty_line_or_array_is_a_command_without_words() {
    for input in ["\r\n", "\n", "  \r\n", "*0\r\n", "*-1\r\n", "*-9\r\n"] {
        assert!(words(input).is_empty(), "{input:?}");
    }
}

#[test]
fn invalid_input_is_a_protocol_error() {
    refused("*x\r\n", ProtocolError::ArrayLength);
    refused("*\r\n", ProtocolError::ArrayLength);
    refused("*+1\r\n", ProtocolError::ArrayLength);
    refused("*1\n", ProtocolError::ArrayLength);
    refused("*1025\r\n", ProtocolError::ArrayLength);
    refused("*99999999999999999999\r\n", ProtocolError::ArrayLength);
    refused(format!("*{}", "0".repeat(HEADER_BYTES_MAX)), ProtocolError::ArrayLength);
    refused("*1\r\n$-1\r\n", ProtocolError::BulkLength);
    refused("*1\r\n$65537\r\n", ProtocolError::BulkLength);
    refused(b"*1\r\n$\xff\r\n", ProtocolError::BulkLength);
    refused("*1\r\n:1\r\n", ProtocolError::NotABulk(b':'));
    refused("*1\r\n$4\r\nPINGS\r\n", ProtocolError::BulkEnd);
    refused("ECHO \"a\r\n", ProtocolError::Quotes);
    refused("ECHO 'a\\'\r\n", ProtocolError::Quotes);
    refused("ECHO \"a\"b\r\n", ProtocolError::Quotes);
    refused("ECHO \"a\\\r\n", ProtocolError::Quotes);
}

#[test]
fn maximum_sizes_are_accepted_and_one_more_is_not() {
    let bulk = |bytes: usize| format!("*1\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes));
    assert_eq!(words(&bulk(BULK_BYTES_MAX))[0].len(), BULK_BYTES_MAX);
    refused(bulk(BULK_BYTES_MAX + 1), ProtocolError::BulkLength);

    let array = |count: usize| format!("*{count}\r\n{}", "$1\r\nx\r\n".repeat(count));
    assert_eq!(words(&array(WORDS_MAX)).len(), WORDS_MAX);
    refused(array(WORDS_MAX + 1), ProtocolError::ArrayLength);

    for end in ["\n", "\r\n"] {
        let line = |bytes: usize| format!("{}{end}", "x".repeat(bytes));
        assert_eq!(words(&line(LINE_BYTES_MAX))[0].len(), LINE_BYTES_MAX);
        refused(line(LINE_BYTES_MAX + 1), ProtocolError::LineLength);
    }
    refused("x".repeat(LINE_BYTES_MAX + 2), ProtocolError::LineLength);
    assert_eq!(words(&format!("{}\n", "x ".repeat(WORDS_MAX))).len(), WORDS_MAX);
    refused(format!("{}\n", "x ".repeat(WORDS_MAX + 1)), ProtocolError::LineWords);

    let part = format!("$65536\r\n{}\r\n", "x".repeat(BULK_BYTES_MAX));
    refused(format!("*32\r\n{}", part.repeat(32)), ProtocolError::CommandLength);
    assert_eq!(words(&format!("*31\r\n{}", part.repeat(31))).len(), 31);
}

/// An oversized length is an error before any of the bytes arrive, and reserves nothing.
#[test]
fn a_claim_that_is_too_large_is_refused_at_once() {
    let mut parser = Parser::default();
    assert_eq!(parser.next(b"*3\r\n$4\r\nECHO\r\n$65537\r"), Ok(None));
    assert_eq!(parser.next(b"*3\r\n$4\r\nECHO\r\n$65537\r\n"), Err(ProtocolError::BulkLength));
}

const CONVERSATION: &[u8] = b"PING\r\n*1\r\n$4\r\nPING\r\n\n*2\r\n$4\r\nECHO\r\n$5\r\n\xff\r\n\0*\r\n\
    ECHO \"a \\\"b\" 'c'\r\n*0\r\n*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n";

#[test]
fn a_cut_at_any_two_places_changes_nothing() {
    let whole = all(CONVERSATION);
    assert_eq!((whole.0.len(), whole.1), (7, None));
    for first in 0..=CONVERSATION.len() {
        for second in first..=CONVERSATION.len() {
            let parts = [&CONVERSATION[..first], &CONVERSATION[first..second], &CONVERSATION[second..]];
            assert_eq!(pieces(&parts), whole, "cut at {first} and {second}");
        }
    }
    let bytes: Vec<&[u8]> = CONVERSATION.chunks(1).collect();
    assert_eq!(pieces(&bytes), whole);
}

/// Bytes that resemble commands.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::sample::select(vec![
            &b"*1\r\n"[..],
            b"*2\r\n",
            b"*-1\r\n",
            b"$0\r\n\r\n",
            b"$3\r\nabc\r\n",
            b"$1\r\n",
            b"\r\n",
            b"\n",
            b"\"",
            b"'",
            b"\\",
            b"\\x4",
            b" ",
            b"*",
            b"$",
            b"-",
            b"PING",
            b"65536",
            b"$65537\r\n",
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_in_any_pieces_are_the_same(input in nearly(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        places.extend([0, input.len()]);
        places.sort_unstable();
        let parts: Vec<&[u8]> = places.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        prop_assert_eq!(pieces(&parts), all(&input));
    }
}
