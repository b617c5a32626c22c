//! Connections over in-memory streams and paused time: the same replies for any fragmentation, and a deadline for every
//! silence.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::super::{Connections, Service};
use super::*;
use crate::net::DrainSignals;
use crate::net::drain::DrainSignal;
use crate::testing;

/// Capacity of the stream in each direction; small, so that unread replies fill it.
const PIPE_BYTES: usize = 8_192;

/// A connection under test, from the client's side.
struct Client {
    io: DuplexStream,
    drain: DrainSignal,
    served: JoinHandle<()>,
    opened: Instant,
}

impl Client {
    fn connect(password: Option<&str>) -> Self {
        let (io, server_io) = duplex(PIPE_BYTES);
        let signals = DrainSignals::default();
        let drain = signals.drain.clone();
        let service = Service::new(testing::engine(vec![testing::hourly("api", 2)]), testing::resp(password));
        let options = RespOptions::default().into();
        let connections = Connections { service, options, signals };
        let served = tokio::spawn(connections.serve_io(server_io, SocketAddr::from(([192, 0, 2, 1], 4242))));
        Self { io, drain, served, opened: Instant::now() }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    async fn expect(&mut self, answer: &str) {
        let mut bytes = vec![0; answer.len()];
        self.io.read_exact(&mut bytes).await.expect("an answer");
        assert_eq!(String::from_utf8_lossy(&bytes), answer);
    }

    /// All bytes up to the end of the connection, and the time since it was opened.
    async fn read_to_end(&mut self) -> (Vec<u8>, Duration) {
        let mut bytes = Vec::new();
        self.io.read_to_end(&mut bytes).await.expect("a clean end");
        (bytes, self.opened.elapsed())
    }
}

/// All replies to `pieces`, sent one after the other, up to the end of input.
async fn answers(pieces: &[&[u8]]) -> Vec<u8> {
    let client = Client::connect(None);
    let (mut reading, mut writing) = tokio::io::split(client.io);
    let send = async {
        for piece in pieces {
            // The server may have closed after an earlier piece.
            if writing.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = writing.shutdown().await;
    };
    let mut bytes = Vec::new();
    let (_, read) = tokio::join!(send, reading.read_to_end(&mut bytes));
    read.expect("a clean end");
    client.served.await.expect("no panic");
    bytes
}

const CONVERSATION: &[u8] = b"PING\r\n*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$1\r\n0\r\n$1\r\n1\r\n$9\r\n315360000\r\n$1\r\n0\r\n\
    HELLO 3\r\n*2\r\n$4\r\nECHO\r\n$4\r\n\xff\r\n\0\r\nCL.THROTTLE k 0 1 3600\r\n\r\nSG.CHECK r a\r\nCLIENT GETNAME\r\n*1\r\n$4\r\nNOPE\r\n";

#[tokio::test(start_paused = true)]
async fn a_cut_at_any_place_changes_nothing() {
    let whole = answers(&[CONVERSATION]).await;
    let text = String::from_utf8_lossy(&whole);
    assert!(text.starts_with("+PONG\r\n") && text.ends_with("-ERR unknown command 'NOPE'\r\n"), "{text}");
    for cut in 0..=CONVERSATION.len() {
        let (first, second) = CONVERSATION.split_at(cut);
        assert_eq!(answers(&[first, second]).await, whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = CONVERSATION.chunks(1).collect();
    assert_eq!(answers(&bytes).await, whole);
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_of_thousands_is_answered_in_order() {
    let commands: String = (0..20_000).map(|index| format!("ECHO {index}\r\n")).collect();
    let expected: String =
        (0..20_000).map(|index| format!("${}\r\n{index}\r\n", index.to_string().len())).collect();
    assert_eq!(String::from_utf8_lossy(&answers(&[commands.as_bytes()]).await), expected);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_error_closes_the_connection_after_earlier_replies() {
    let mut client = Client::connect(None);
    client.send("PING\r\n*1025\r\nPING\r\n").await;
    client.send(vec![b'x'; PIPE_BYTES * 4]).await;
    let (answers, _) = client.read_to_end().await;
    let error = "+PONG\r\n-ERR Protocol error: invalid multibulk length, the most is 1024\r\n";
    assert_eq!(String::from_utf8_lossy(&answers), error);
    drop(client.io);
    client.served.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn every_silence_ends() {
    let options = RespOptions::default();
    // No bytes, half a first command, and no password.
    let mut silent = Client::connect(None);
    assert_eq!(silent.read_to_end().await, (Vec::new(), options.first_command));
    let mut half = Client::connect(None);
    half.send("PIN").await;
    assert_eq!(half.read_to_end().await, (Vec::new(), options.first_command));
    let mut stranger = Client::connect(Some("s3cret"));
    stranger.send("PING\r\n").await;
    let (answer, elapsed) = stranger.read_to_end().await;
    assert_eq!((answer.starts_with(b"-NOAUTH"), elapsed), (true, options.first_command));

    // An authenticated client may be silent for long, but not in the middle of a command.
    let mut idle = Client::connect(None);
    idle.send("PING\r\n").await;
    assert_eq!(idle.read_to_end().await, (b"+PONG\r\n".to_vec(), options.idle));
    let mut half = Client::connect(None);
    half.send("PING\r\nPING").await;
    assert_eq!(half.read_to_end().await, (b"+PONG\r\n".to_vec(), options.command_read));
}

/// The deadline of a command also ends one that arrives byte by byte.
#[tokio::test(start_paused = true)]
async fn a_command_that_trickles_in_is_cut() {
    let mut client = Client::connect(None);
    client.send("PING\r\n").await;
    client.expect("+PONG\r\n").await;
    while client.opened.elapsed() < Duration::from_secs(29) {
        client.send("x").await;
        // The server runs before time advances.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.read_to_end().await, (Vec::new(), RespOptions::default().command_read));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_and_costs_bounded_memory() {
    let client = Client::connect(None);
    let opened = client.opened;
    let (_reading, mut writing) = tokio::io::split(client.io);
    // Far more than all buffers together: the server stops reading instead of buffering it.
    let sent = async {
        let echo = format!("*2\r\n$4\r\nECHO\r\n$60000\r\n{}\r\n", "x".repeat(60_000));
        let mut sent = 0;
        while writing.write_all(echo.as_bytes()).await.is_ok() {
            sent += echo.len();
        }
        sent
    };
    let (sent, served) = tokio::join!(sent, client.served);
    served.expect("no panic");
    assert!(sent < 1_000_000, "{sent} bytes were taken");
    assert_eq!(opened.elapsed(), RespOptions::default().write_stall);
}

#[tokio::test(start_paused = true)]
async fn a_drain_completes_commands_in_flight_and_closes() {
    let mut client = Client::connect(None);
    client.send("PING\r\nECHO ab").await;
    client.expect("+PONG\r\n").await;
    client.drain.raise();
    tokio::time::sleep(Duration::from_millis(400)).await;
    client.send("c\r\n").await;
    client.expect("$3\r\nabc\r\n").await;
    assert_eq!(client.read_to_end().await, (Vec::new(), RespOptions::default().drain_quiet));
}

#[tokio::test(start_paused = true)]
async fn quit_closes_after_the_answers() {
    let mut client = Client::connect(None);
    client.send("PING\r\nQUIT\r\nPING\r\n").await;
    let (answers, elapsed) = client.read_to_end().await;
    assert_eq!((answers, elapsed), (b"+PONG\r\n+OK\r\n".to_vec(), Duration::ZERO));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any input in any fragmentation: no panic, an end, and the same replies.
    #[test]
    fn any_bytes_in_any_pieces_are_answered_alike(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..16),
                prop::sample::select(vec![
                    &b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$4\r\nECHO\r\n", b"$3\r\n\xff\xfe\xfd\r\n", b"HELLO 3\r\n",
                    b"CL.THROTTLE k 0 1 315360000\r\n", b"*1\r\n$", b"\r\n", b"QUIT\r\n", b"*1025\r\n", b"$-1\r\n", b"\"", b"RESET\r\n",
                ]).prop_map(<[u8]>::to_vec),
            ],
            0..12,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let cut: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let (in_pieces, whole) = runtime.block_on(async { (answers(&cut).await, answers(&[&pieces.concat()]).await) });
        prop_assert_eq!(String::from_utf8_lossy(&in_pieces), String::from_utf8_lossy(&whole));
    }
}

/// Before authentication, a client has few and short words, in a small buffer.
#[tokio::test(start_paused = true)]
async fn little_is_waited_for_before_the_password() {
    let refusal = "-ERR Protocol error: unauthenticated";
    let long = |bytes: usize| format!("*2\r\n$4\r\nAUTH\r\n${bytes}\r\n{}", "x".repeat(bytes)).into_bytes();
    let cases: [&[u8]; 6] = [
        b"*11\r\n",
        b"a b c d e f g h i j k\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
        &[&long(16_384)[..], b"\r\n*3\r\n$5\r\nHELLO\r\n$16384\r\n", &[b'x'; 16_384], b"\r\n$16384\r\n"].concat(),
        &[b'x'; 16_386],
        &[&[b' '; 16_386][..], b"\r\n"].concat(),
    ];
    for case in cases {
        let mut client = Client::connect(Some("correct horse"));
        client.send(case).await;
        let (bytes, _) = client.read_to_end().await;
        let answer = String::from_utf8_lossy(&bytes);
        assert!(answer.contains(refusal), "{}: {answer}", case[..20.min(case.len())].escape_ascii());
    }
    // A normal handshake fits in any fragmentation, and so does all that follows the password in one piece.
    let mut client = Client::connect(Some("correct horse"));
    let wrong = long(16_384);
    for piece in wrong.chunks(1_000) {
        client.send(piece).await;
    }
    client.send("\r\n").await;
    client.expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n").await;
    let keys = "$60000\r\n".to_owned() + &"k".repeat(60_000) + "\r\n";
    client
        .send(format!(
            "HELLO 3 AUTH default \"correct horse\" SETNAME me\r\n*13\r\n$3\r\nDEL\r\n{}",
            keys.repeat(12)
        ))
        .await;
    let mut last = Vec::new();
    while !last.ends_with(b":0\r\n") {
        last.push(client.io.read_u8().await.expect("an answer"));
    }
    // Without a password there are no stricter bounds.
    let mut open = Client::connect(None);
    open.send(format!("*13\r\n$3\r\nDEL\r\n{}", keys.repeat(12))).await;
    open.expect(":0\r\n").await;
}
