//! The RESP listener over real sockets, and with real clients in [`clients`]; on a shared store in [`shared`].

mod clients;
mod shared;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::post;

use crate::server::{ConfigFile, PATIENCE, Server};

/// A server with the RESP listener and the given arguments.
fn start(arguments: &[&str]) -> Server {
    Server::start(&[&["--resp", "127.0.0.1:0"], arguments].concat())
}

/// A client that sends exactly the given bytes.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address("resp")).expect("the listener accepts");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    #[track_caller]
    fn expect(&mut self, answer: impl AsRef<[u8]>) {
        let answer = answer.as_ref();
        let mut bytes = vec![0; answer.len()];
        self.0.read_exact(&mut bytes).expect("an answer");
        assert_eq!(bytes.escape_ascii().to_string(), answer.escape_ascii().to_string());
    }

    #[track_caller]
    fn exchange(&mut self, command: &str, answer: &str) {
        self.send(format!("{command}\r\n"));
        self.expect(answer);
    }

    /// The values of a reply that is an array of numbers, texts and nulls.
    pub(crate) fn read_values(&mut self) -> Vec<Value> {
        let line = self.read_line();
        let count: usize =
            line.strip_prefix('*').and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        let mut value = || {
            let line = self.read_line();
            match line.split_at(1) {
                (":", number) => json!(number.parse::<i64>().expect("a number")),
                ("$", "-1") => Value::Null,
                ("$", _) => json!(self.read_line()),
                _ => panic!("{line}"),
            }
        };
        (0..count).map(|_| value()).collect()
    }

    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        let mut byte = [0];
        while !line.ends_with("\r\n") {
            self.0.read_exact(&mut byte).expect("an answer");
            line.push(char::from(byte[0]));
        }
        line.trim_end().to_owned()
    }

    /// Everything up to `end`.
    fn read_until(&mut self, end: &str) -> String {
        let mut text = String::new();
        let mut bytes = [0; 4_096];
        while !text.ends_with(end) {
            let read = self.0.read(&mut bytes).expect("an answer");
            assert_ne!(read, 0, "closed after {text}");
            text += std::str::from_utf8(&bytes[..read]).expect("text");
        }
        text
    }

    /// Everything until the server closes.
    fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).expect("a clean end");
        String::from_utf8(bytes).expect("text")
    }
}

const CONVERSATION: &[u8] =
    b"*6\r\n$11\r\nCL.THROTTLE\r\n$3\r\na\r\n\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n0\r\n\
    echo \"\\xff b\"\r\n\r\n*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\nSG.CHECK demo alice PEEK\r\n*1\r\n$4\r\nNOPE\r\n";
const ANSWERS: &[u8] = b"*5\r\n:0\r\n:16\r\n:16\r\n:-1\r\n:0\r\n$3\r\n\xff b\r\n$2\r\n\r\n\r\n\
    *6\r\n:1\r\n:10\r\n:10\r\n:0\r\n:0\r\n$4\r\ndemo\r\n-ERR unknown command 'NOPE'\r\n";

#[test]
fn a_conversation_may_be_cut_at_any_byte_and_glued_together() {
    let server = start(&[]);
    for cut in 0..=CONVERSATION.len() {
        let (first, second) = CONVERSATION.split_at(cut);
        let mut client = Client::connect(&server);
        client.send([b"PING\r\n", first].concat());
        // The reply proves that the server parsed the first part without the second.
        client.expect("+PONG\r\n");
        client.send(second);
        client.expect(ANSWERS);
    }
    let mut client = Client::connect(&server);
    client.send(CONVERSATION.repeat(50));
    client.expect(ANSWERS.repeat(50));
}

#[test]
fn a_pipeline_of_thousands_is_decided_in_order() {
    let server = start(&[]);
    let mut client = Client::connect(&server);
    let mut reading = Client(client.0.try_clone().expect("a second handle"));
    let reader = std::thread::spawn(move || {
        for taken in 1..=10_000 {
            reading.expect(format!("*5\r\n:0\r\n:10000\r\n:{}\r\n:-1\r\n:{}\r\n", 10_000 - taken, taken * 3_600));
        }
        reading.expect("*5\r\n:1\r\n:10000\r\n:0\r\n:3600\r\n:36000000\r\n");
    });
    // The test takes less than a second. The bucket gains one unit per hour, and times round up, so a full second
    // would change the numbers.
    client.send("CL.THROTTLE pipeline 9999 1 3600\r\n".repeat(10_001));
    reader.join().expect("every answer is right");
}

#[test]
fn oversized_input_is_a_protocol_error_and_closes() {
    let server = start(&[]);
    for (sent, error) in [
        ("*1025\r\n".to_owned(), "invalid multibulk length, the most is 1024"),
        ("*2147483648\r\n".to_owned(), "invalid multibulk length, the most is 1024"),
        ("*2\r\n$4\r\nECHO\r\n$65537\r\n".to_owned(), "invalid bulk length, the most is 65536"),
        ("*1\r\n$-5\r\n".to_owned(), "invalid bulk length, the most is 65536"),
        ("x".repeat(70_000), "too big inline request, the most is 65536 bytes"),
        ("*1\r\n+PING\r\n".to_owned(), "expected '$', got '+'"),
        ("ECHO 'x\r\n".to_owned(), "unbalanced quotes in request"),
    ] {
        let mut client = Client::connect(&server);
        client.send("PING\r\n");
        client.send(&sent);
        let expected = format!("+PONG\r\n-ERR Protocol error: {error}\r\n");
        assert_eq!(client.read_to_end(), expected, "{:.40}", sent);
    }
    // The largest allowed sizes pass.
    let mut client = Client::connect(&server);
    let bulk = "b".repeat(65_536);
    client.send(format!("*2\r\n$4\r\nECHO\r\n$65536\r\n{bulk}\r\n"));
    client.expect(format!("$65536\r\n{bulk}\r\n"));
    let keys = "$1\r\nk\r\n".repeat(1_023);
    client.send(format!("*1024\r\n$3\r\nDEL\r\n{keys}"));
    client.expect(":0\r\n");
}

#[test]
fn a_bad_command_is_an_error_and_the_connection_goes_on() {
    let server = start(&[]);
    let mut client = Client::connect(&server);
    client.exchange("CL.THROTTLE k", "-ERR wrong number of arguments for 'cl.throttle' command\r\n");
    client.exchange("FLUSHALL", "-ERR unknown command 'FLUSHALL'\r\n");
    for numbers in ["-1 1 1", "1 0 1", "1 1 0", "1 1 1 -1", "9223372036854775807 1 1", "1 1 99999999999999999999"]
    {
        let start = "-ERR value is not an integer or out of range: ";
        client.exchange(&format!("CL.THROTTLE k {numbers}"), start);
        while {
            let mut byte = [0];
            client.0.read_exact(&mut byte).expect("the rest of the error");
            byte != *b"\n"
        } {}
    }
    client.send(b"SG.CHECK r \xff\xfe\r\n");
    client.expect("-ERR identifier is not valid UTF-8\r\n");
    client.exchange("PING", "+PONG\r\n");
}

#[test]
fn a_password_comes_from_the_file_and_the_environment() {
    let file = ConfigFile::new("resp-password", "resp: { password: \"${PASSWORD_OF_RESP}\" }\nrules: []");
    let mut command = crate::server::sluicegate(&["--config", file.path(), "--resp", "127.0.0.1:0"]);
    command.args(["--gateway", "off", "--api", "off", "--admin", "off"]).env("PASSWORD_OF_RESP", "canary-s3cret");
    let server = Server::start_command(command);
    assert_eq!(server.listeners(), ["resp"]);
    let mut client = Client::connect(&server);
    client.exchange("CL.THROTTLE k 1 1 1", "-NOAUTH Authentication required.\r\n");
    client.exchange("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.exchange("AUTH canary-s3cret", "+OK\r\n");
    client.exchange("CL.THROTTLE k 1 1 1", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:1\r\n");
    server.signal("TERM");
    let ended = server.wait();
    assert!(!ended.lines.iter().any(|line| line.contains("canary")), "{:#?}", ended.lines);
}

#[test]
fn both_protocols_charge_the_same_state() {
    let server = start(&[]);
    let mut client = Client::connect(&server);
    client.exchange("SG.CHECK demo alice COST 4", "*6\r\n:1\r\n:10\r\n:6\r\n:0\r\n:4000\r\n$4\r\ndemo\r\n");
    let body = json!({ "resource": "demo", "identifier": "alice", "cost": 10 }).to_string();
    assert_eq!(post(server.address("api"), "/v1/check", body).status, 429);
}

#[test]
fn commands_that_were_received_are_answered_before_the_server_stops() {
    let server = start(&[]);
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.exchange("PING", "+PONG\r\n");
    }
    for client in &mut clients[..3] {
        client.send("CL.THROTTLE drain 0 1 3600 0\r\n".repeat(2_000));
    }
    let signalled = Instant::now();
    server.signal("TERM");
    for client in &mut clients[..3] {
        assert_eq!(client.read_to_end().matches("*5\r\n:0\r\n:1\r\n:1\r\n:-1\r\n:0\r\n").count(), 2_000);
    }
    // An idle connection is closed too.
    assert_eq!(clients[3].read_to_end(), "");
    drop(clients);
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.lines);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
}

/// Clients that do not read, do not send or never finish must not block other clients or the stop.
#[test]
fn bad_clients_do_not_affect_others() {
    let server = start(&[]);
    let mut deaf = Client::connect(&server);
    deaf.0.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let echo = format!("ECHO {}\r\n", "x".repeat(60_000));
    // The server stops reading from a client that does not read its replies.
    while deaf.0.write_all(echo.as_bytes()).is_ok() {}
    let mut silent: Vec<_> = (0..50).map(|_| Client::connect(&server)).collect();
    silent[0].send("*3\r\n$3\r\nDE");
    Client::connect(&server).exchange("PING", "+PONG\r\n");
    let signalled = Instant::now();
    server.signal("TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.lines);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
}
