//! Streams of requests, whole and in pieces of every size: which pass unchanged, and which byte is poisoned in the others.

mod agreement;

use proptest::prelude::*;

use super::*;

const NOTHING_ANSWERED: ResponseProgress = ResponseProgress { answers: 0, is_upgraded: false };

/// What of `text` is spoiled if it arrives in pieces of `size` bytes.
fn spoiled(text: &[u8], size: usize) -> Vec<usize> {
    let mut framing = FramingGuard::new();
    let mut bytes = text.to_vec();
    for piece in bytes.chunks_mut(size) {
        framing.pass(piece, NOTHING_ANSWERED);
    }
    (0..text.len()).filter(|index| bytes[*index] != text[*index]).collect()
}

/// In pieces of any size, `text` is spoiled right before `rest` or the line ends before that, or not at all.
#[track_caller]
fn check(text: &str, rest: Option<&str>) {
    let expected: Vec<usize> = rest.map(|rest| text.len() - rest.len() - 1).into_iter().collect();
    for size in [text.len(), 1, 2, 3, 7, 24, 100] {
        let found = spoiled(text.as_bytes(), size);
        assert!(is_same_place(text.as_bytes(), &found, &expected), "{text:?} in pieces of {size}: {found:?}");
    }
}

/// Whether both are nothing, or one byte each with nothing but line ends between them.
fn is_same_place(text: &[u8], one: &[usize], other: &[usize]) -> bool {
    match (one, other) {
        ([], []) => true,
        ([one], [other]) => {
            let (first, last) = (one.min(other), one.max(other));
            text[first + 1..=*last].iter().all(|byte| matches!(byte, b'\r' | b'\n'))
        }
        _ => false,
    }
}

const NEXT: &str = "GET /next HTTP/1.1\r\nhost: t\r\n\r\n";

#[test]
fn valid_requests_pass_the_guard() {
    for request in [
        "GET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\na\nb\nc",
        "POST / HTTP/1.1\r\nhost: t\r\nCONTENT-LENGTH:\t0005  \r\n\r\n\n\n\n\n\n",
        "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n5\r\na\nb\nc\r\n0A\r\n0123\n56\n89\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-trailer: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: t\r\ncontent-length-of-what: 5\r\nte: trailers\r\nc: 1\r\nt: 1\r\n\r\n",
    ] {
        check(&[request, NEXT].concat(), None);
        check(&[request, request, NEXT].concat(), None);
    }
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n{NEXT}", "y".repeat(1_000));
    check(&long, None);
}

#[test]
fn ambiguous_lines_are_poisoned_at_their_end() {
    for (start, rest) in [
        ("GET / HTTP/1.1\n", "host: t\r\n\r\n"),
        ("\n", NEXT),
        ("GET / HTTP/1.1\r\nhost: t\n", "\r\n"),
        ("GET / HTTP/1.1\r\nhost: t\r\n\n", NEXT),
        ("POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n", "\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nx: y\r\ncontent-length: 5\r\n", "\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding:x\r\ncontent-length:0\r\n", "\r\n"),
        ("POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 5\r\n", "\r\nhello"),
        ("POST / HTTP/1.1\r\ncontent-length: 5, 5\r\n", "\r\nhello"),
        ("POST / HTTP/1.1\r\ncontent-length: +5\r\n", "\r\nhello"),
        ("POST / HTTP/1.1\r\ncontent-length:\r\n", "\r\n"),
        ("POST / HTTP/1.1\r\ncontent-length: 18446744073709551616\r\n", "\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\n", "hello\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5 \r\n", "hello\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0x5\r\n", "hello\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n", "hello\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\r\n", "hello\r\n0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n10000000000000000\r\n", "hello"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\n", "0\r\n\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello0\r\n", "\r\n"),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\n", "\r\n"),
        ("POST / HTTP/1.1\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n\r\n", "0\r\n\r\n"),
    ] {
        check(&[start, rest].concat(), Some(rest));
        check(&[NEXT, start, rest].concat(), Some(rest));
    }
}

/// hyper reads over any byte of an extension but this one.
#[test]
fn a_bare_lf_after_the_length_of_a_chunk_stays_and_nothing_after_it_is_looked_at() {
    for line in ["5\n", "5;a\nX\r\n", "0;\n\r\n", "5 \n"] {
        let text = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{line}hello\r\n0\r\n\r\n\n\n");
        for size in [text.len(), 1, 2, 3] {
            let (mut framing, mut bytes) = (FramingGuard::new(), text.clone().into_bytes());
            let told =
                bytes.chunks_mut(size).filter_map(|piece| framing.pass(piece, NOTHING_ANSWERED).then_some(()));
            assert_eq!((told.count(), bytes == text.as_bytes()), (1, true), "{text:?} in pieces of {size}");
        }
    }
}

/// A line of nothing but CR is no request, and has no byte to spoil.
#[test]
fn nothing_of_an_earlier_request_is_spoiled() {
    let before = "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\nhello";
    for rest in ["\r\r\n\n", "\n", "\r\n\n", "\r\r\r\n"] {
        let text = format!("{before}{rest}");
        for size in [text.len(), 1, 2, 3, 7] {
            let found = spoiled(text.as_bytes(), size);
            assert!(matches!(&*found, [at] if *at >= before.len()), "{text:?} in pieces of {size}: {found:?}");
        }
    }
}

#[test]
fn a_length_behind_a_screen_of_spaces_is_spoiled_however_it_arrives() {
    let start =
        format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length:{}5\r\n", " ".repeat(10_000));
    check(&format!("{start}\r\n"), Some("\r\n"));
}

#[test]
fn a_client_must_wait_for_the_response_to_an_upgrade() {
    let upgrade = "GET / HTTP/1.1\r\nhost: t\r\nUpgrade: websocket\r\n\r\n";
    check(&[upgrade, NEXT].concat(), Some(&NEXT[1..]));
    check(&["POST / HTTP/1.1\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n\n\n", NEXT].concat(), Some(&NEXT[1..]));
    check("CONNECT t:1 HTTP/1.1\r\nhost: t\r\n\r\nxyz", Some("yz"));

    let frame = b"\x81\x05\n\n\n\n\n".to_vec();
    let answered = |progress| {
        let mut framing = FramingGuard::new();
        framing.pass(&mut upgrade.as_bytes().to_vec(), NOTHING_ANSWERED);
        let mut bytes = frame.clone();
        framing.pass(&mut bytes, progress);
        bytes == frame
    };
    assert!(answered(ResponseProgress { answers: 1, is_upgraded: true }), "no longer ours to look at");
    assert!(!answered(ResponseProgress { answers: 1, is_upgraded: false }), "a request again");
    assert!(!answered(NOTHING_ANSWERED));
}

proptest! {
    /// However a stream is cut into pieces, at most one byte is spoiled, and at the same place but for line ends.
    #[test]
    fn pieces_change_nothing(
        lines in prop::collection::vec(prop::sample::select(LINES), 0..12),
        sizes in prop::collection::vec(1_usize..40, 1..40),
    ) {
        let stream = lines.concat();
        let whole = spoiled(stream.as_bytes(), usize::MAX);
        prop_assert!(whole.len() <= 1);

        let mut framing = FramingGuard::new();
        let mut bytes = stream.clone().into_bytes();
        let (mut rest, mut sizes) = (&mut bytes[..], sizes.iter().cycle());
        while let Some(size) = sizes.next() && !rest.is_empty() {
            let (piece, after) = rest.split_at_mut((*size).min(rest.len()));
            framing.pass(piece, NOTHING_ANSWERED);
            rest = after;
        }
        let changed: Vec<usize> = (0..bytes.len()).filter(|index| bytes[*index] != stream.as_bytes()[*index]).collect();
        prop_assert!(is_same_place(stream.as_bytes(), &changed, &whole), "{changed:?}, not {whole:?}");
    }
}

const LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a HTTP/1.1\r\n",
    "host: t\r\n",
    "content-length: 5\r\n",
    "Content-Length: 0\r\n",
    "transfer-encoding: chunked\r\n",
    "upgrade: x\r\n",
    "x: y\n",
    "\r\n",
    "\r\n",
    "\n",
    "hello",
    "5\r\n",
    "0\r\n",
    "5;x\r\n",
];
