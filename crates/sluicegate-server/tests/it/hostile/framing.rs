//! Requests with an end that two servers could place differently, over raw sockets.
//!
//! One more request follows each case on the same connection: the one that an attacker would smuggle. The server
//! rejects ambiguous requests with 400 and closes the connection. If RFC 9112 allows only one framing, the server uses
//! it. The decision count on the admin listener shows the number of executed requests.

use std::net::SocketAddr;

use super::decisions;
use crate::client::Connection;
use crate::server::{ConfigFile, Server};

const CONFIG: &str = "
rules:
  - name: all
    per: global
    limits: [{ algorithm: fixed_window, limit: 1000000, window: 1d }]
";

/// The expected result of a case on the API listener.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    /// Status 400, and no later request is executed.
    Refused,
    /// The same with another status.
    RefusedWith(u16),
    /// The head is valid and the body is not: status 400 if the server reads the body. Otherwise the response is the
    /// last one.
    BadBody,
    /// These statuses, with this number of decisions.
    Framed(&'static [u16], u64),
}
use Fate::{BadBody, Framed, Refused, RefusedWith};

/// The request for one listener.
struct Target {
    line: &'static str,
    body: &'static str,
}

const API: Target = Target { line: "POST /v1/check", body: r#"{"resource":"demo","identifier":"alice"}"# };
const GATEWAY: Target = Target { line: "GET /api/ping", body: "{\"a\":\"0123456789012345678901234567890\"}" };

impl Target {
    /// A head with these field lines in addition to the usual ones.
    fn head(&self, fields: &str) -> String {
        format!("{} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n{fields}\r\n", self.line)
    }

    /// A valid request.
    fn next(&self) -> String {
        let length = self.body.len();
        format!("{}{}", self.head(&format!("connection: close\r\ncontent-length: {length}\r\n")), self.body)
    }

    fn chunked(&self) -> String {
        format!("{:x}\r\n{}\r\n0\r\n\r\n", self.body.len(), self.body)
    }

    /// A request with `fields` and a body of the target, then the smuggled request.
    fn sized(&self, fields: &str) -> Vec<u8> {
        let fields = fields.replace("LENGTH", &self.body.len().to_string());
        [self.head(&fields), self.body.to_owned(), self.next()].concat().into_bytes()
    }

    /// A request with `fields` and a chunked body, then the smuggled request.
    fn in_chunks(&self, fields: &str) -> Vec<u8> {
        let fields = fields.replace("LENGTH", &self.body.len().to_string());
        [self.head(&fields), self.chunked(), self.next()].concat().into_bytes()
    }

    /// A request with this chunked body, then the smuggled request.
    fn raw_chunks(&self, body: &str) -> Vec<u8> {
        let body = body.replace("SIZE", &format!("{:x}", self.body.len())).replace("DATA", self.body);
        [&self.head("transfer-encoding: chunked\r\n"), &body, &self.next()]
            .map(String::as_str)
            .concat()
            .into_bytes()
    }

    /// A request with this head instead of a valid one, with `LINE` and `LENGTH` replaced, then the smuggled request.
    fn raw_head(&self, head: &str) -> Vec<u8> {
        let head = head.replace("LINE", self.line).replace("LENGTH", &self.body.len().to_string());
        [&head, self.body, &self.next()].map(|part: &str| part.to_owned()).concat().into_bytes()
    }
}

type Case = (String, Vec<u8>, Fate);

fn lengths(to: &Target) -> Vec<Case> {
    let bad = [
        "",
        " ",
        "+LENGTH",
        "-1",
        "-LENGTH",
        "0xLENGTH",
        "LENGTH, LENGTH",
        "LENGTH,LENGTH",
        "LENGTH;",
        "LENGTH LENGTH",
        "LENGTH.0",
        "1e1",
        "\"LENGTH\"",
        "LENGTH!",
        "xLENGTH",
        "18446744073709551616",
        "99999999999999999999999999",
        "\u{b}LENGTH",
        "LENGTH\u{b}",
        "\u{c}LENGTH",
        "\u{660}",
        "LENGTH\0",
        "true",
        "LENGTH\r",
        "ff",
        "1_0",
        "NaN",
        "18446744073709551615",
    ];
    let mut cases: Vec<Case> = bad
        .iter()
        .map(|value| (format!("length {value:?}"), to.sized(&format!("content-length: {value}\r\n")), Refused))
        .collect();
    // This length is a number, but exceeds the parser's limit.
    cases.last_mut().expect("not empty").2 = RefusedWith(431);
    let good = ["LENGTH", " LENGTH", "LENGTH ", "\tLENGTH\t", "000LENGTH"];
    cases.extend(good.iter().map(|value| {
        let fields = format!("content-length:{value}\r\n");
        (format!("length {value:?}"), to.sized(&fields), Framed(&[200, 200], 2))
    }));
    let twice = [
        "content-length: LENGTH\r\ncontent-length: LENGTH\r\n",
        "content-length: LENGTH\r\ncontent-length: 0\r\n",
        "content-length: 0\r\ncontent-length: LENGTH\r\n",
        "content-length: LENGTH\r\nx: y\r\nContent-Length: 1\r\n",
        "content-length: 5\r\ncontent-length: -5\r\n",
    ];
    cases.extend(twice.map(|fields| (format!("twice {fields:?}"), to.sized(fields), Refused)));
    cases
}

fn names(to: &Target) -> Vec<Case> {
    let bad = [
        "content-length : LENGTH\r\n",
        "content-length\t: LENGTH\r\n",
        "content-length\u{b}: LENGTH\r\n",
        "content-length\0: LENGTH\r\n",
        " content-length: LENGTH\r\n",
        "\tcontent-length: LENGTH\r\n",
        "content length: LENGTH\r\n",
        "content-length LENGTH\r\n",
        ": LENGTH\r\n",
        "content-length\r\n: LENGTH\r\n",
        "x: y\r\n content-length: LENGTH\r\n",
        "x: y\r\n\tz\r\n",
        "x: y\r\n \r\n",
        "x(y): z\r\n",
        "x@y: z\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding\u{b}: chunked\r\n",
        "transfer-encoding\r\n : chunked\r\n",
        "transfer-encoding:\r\n chunked\r\n",
        "x: a\0b\r\n",
        "x: a\u{b}b\r\n",
        "x: a\rb\r\n",
        "x: a\u{7f}b\r\n",
        "x: a\rcontent-length: LENGTH\r\n",
        "x: a\ncontent-length: LENGTH\r\n",
        "x: a\n\r\n",
        "x: a\n",
        "\n",
        "\r\r\n",
        "\u{e9}: y\r\n",
    ];
    bad.iter().map(|fields| (format!("field {fields:?}"), to.sized(fields), Refused)).collect()
}

fn codings(to: &Target) -> Vec<Case> {
    let bad = [
        "",
        "xchunked",
        "chunkedx",
        "chunked, identity",
        "identity",
        "chunked, chunked",
        "gzip, chunked",
        "gzip",
        "identity, chunked",
        ", chunked",
        "chunked,",
        ",",
        "\"chunked\"",
        "'chunked'",
        "chunked;q=1",
        "chunked ;",
        "\u{b}chunked",
        "chunked\u{b}",
        "\u{c}chunked",
        "chunked\0",
        "chun\u{212a}ed",
        "chunk ed",
        "[chunked]",
        "x",
        "chunked\rx",
        "trailers, chunked",
        "chunked, gzip, chunked",
    ];
    let mut cases: Vec<Case> = bad
        .iter()
        .map(|value| {
            (format!("coding {value:?}"), to.in_chunks(&format!("transfer-encoding: {value}\r\n")), Refused)
        })
        .collect();
    let both = [
        "content-length: LENGTH\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: LENGTH\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 0\r\n",
        "transfer-encoding: chunked\r\nx: y\r\nCoNtEnT-LeNgTh:4\r\n",
        "content-length: 4\r\ntransfer-encoding: identity\r\n",
        "content-length: LENGTH\r\ntransfer-encoding: xchunked\r\n",
        "content-length: x\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: x\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\nupgrade: websocket\r\nconnection: upgrade\r\n",
    ];
    cases.extend(both.map(|fields| (format!("both {fields:?}"), to.in_chunks(fields), Refused)));
    cases.extend(both[..4].iter().map(|fields| (format!("both, sized {fields:?}"), to.sized(fields), Refused)));
    for value in ["chunked", "Chunked", "CHUNKED", "  chunked\t"] {
        let fields = format!("transfer-encoding: {value}\r\n");
        cases.push((format!("coding {value:?}"), to.in_chunks(&fields), Framed(&[200, 200], 2)));
    }
    let old = format!("{} HTTP/1.0\r\nhost: t\r\nconnection: keep-alive\r\n", to.line);
    for fields in ["transfer-encoding: chunked\r\n\r\n", "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"]
    {
        let bytes = [&old, fields, &to.chunked(), &to.next()].map(|part: &str| part.to_owned()).concat();
        cases.push((format!("1.0 {fields:?}"), bytes.into_bytes(), Refused));
    }
    cases
}

fn chunks(to: &Target) -> Vec<Case> {
    let bad = [
        "0xSIZE\r\nDATA\r\n0\r\n\r\n",
        "-SIZE\r\nDATA\r\n0\r\n\r\n",
        "+SIZE\r\nDATA\r\n0\r\n\r\n",
        " SIZE\r\nDATA\r\n0\r\n\r\n",
        "SIZE \r\nDATA\r\n0\r\n\r\n",
        "\tSIZE\r\nDATA\r\n0\r\n\r\n",
        "SIZE\u{b}\r\nDATA\r\n0\r\n\r\n",
        "\r\nSIZE\r\nDATA\r\n0\r\n\r\n",
        "SIZE;\r\nDATA\r\n0\r\n\r\n",
        "SIZE;a=b\r\nDATA\r\n0\r\n\r\n",
        "SIZE;a=\"\r\n\"\r\nDATA\r\n0\r\n\r\n",
        "SIZE;a\nDATA\r\n0\r\n\r\n",
        "SIZE;a\nx\r\nDATA\r\n0\r\n\r\n",
        "SIZE \nx\r\nDATA\r\n0\r\n\r\n",
        "SIZE\r\nDATA\r\n0;\n\r\n\r\n",
        "SIZE\r\nDATA\r\n0;\"\n\"\r\n\r\n",
        "SIZE;a\rb\r\nDATA\r\n0\r\n\r\n",
        "SIZE\nDATA\r\n0\r\n\r\n",
        "SIZE\rDATA\r\n0\r\n\r\n",
        "SIZE\r\nDATA0\r\n\r\n",
        "SIZE\r\nDATA\n0\r\n\r\n",
        "SIZE\r\nDATA\r0\r\n\r\n",
        "SIZE\r\nDATAx\r\n0\r\n\r\n",
        "SIZE\r\nDATA\r\n\r\n0\r\n\r\n",
        "SIZE\r\nDATA\r\n0\n\r\n",
        "SIZE\r\nDATA\r\n0;x\r\n\r\n",
        "SIZE\r\nDATA\r\n0 \r\n\r\n",
        "10000000000000000\r\nDATA\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nDATA\r\n0\r\n\r\n",
        "g\r\nDATA\r\n0\r\n\r\n",
        "SIZE.0\r\nDATA\r\n0\r\n\r\n",
        "SIZE,1\r\nDATA\r\n0\r\n\r\n",
        "SIZE SIZE\r\nDATA\r\n0\r\n\r\n",
        ";SIZE\r\nDATA\r\n0\r\n\r\n",
        "SIZE\r\nDATA\r\n0\r\nx: y\n\r\n",
        "SIZE\r\nDATA\r\n0\r\nx y\r\n\r\n",
        "SIZE\r\nDATA\r\n0\r\nx : y\r\n\r\n",
        "SIZE\r\nDATA\r\n0\r\n x: y\r\n\r\n",
        "SIZE\r\nDATA\r\n0\r\nx: \0\r\n\r\n",
        "SIZE\r\nDATA\r\n0\r\n\n",
        "SIZE\r\nDATA\r\n00000000000000000000g\r\n\r\n",
    ];
    let mut cases: Vec<Case> =
        bad.iter().map(|body| (format!("chunks {body:?}"), to.raw_chunks(body), BadBody)).collect();
    let good = [
        "SIZE\r\nDATA\r\n0\r\n\r\n",
        "00000SIZE\r\nDATA\r\n000\r\n\r\n",
        "SIZE\r\nDATA\r\n0\r\nx-trailer: y\r\n\r\n",
        // A trailer is never a header, under any name.
        "SIZE\r\nDATA\r\n0\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nhost: u\r\nconnection: close\r\n\r\n",
    ];
    cases.extend(good.map(|body| (format!("chunks {body:?}"), to.raw_chunks(body), Framed(&[200, 200], 2))));
    cases
}

fn lines(to: &Target) -> Vec<Case> {
    let rest = "host: t\r\ncontent-type: application/json\r\ncontent-length: LENGTH\r\n\r\n";
    let bad = [
        "LINE\r\n",
        "LINE HTTP/0.9\r\n",
        "LINE HTTP/1.2\r\n",
        "LINE HTTP/2.0\r\n",
        "LINE HTTP/1.10\r\n",
        "LINE http/1.1\r\n",
        "LINE HTTP/1.1 \r\n",
        "LINE HTTP/1.1\n",
        "LINE HTTP/1.1\r",
        "LINE  HTTP/1.1\r\n",
        "LINE\tHTTP/1.1\r\n",
        " LINE HTTP/1.1\r\n",
        "\nLINE HTTP/1.1\r\n",
        "\0LINE HTTP/1.1\r\n",
        "LINE x HTTP/1.1\r\n",
        "LINE\0 HTTP/1.1\r\n",
        "LINE\u{b} HTTP/1.1\r\n",
        "LINE HTTP/1.1\u{b}\r\n",
        "(LINE HTTP/1.1\r\n",
        "LINE HTTP/1,1\r\n",
        "LINE HTTP/11\r\n",
        "LINE  /x HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        "LINE HTTP/\r\n",
        "LINE ICY/1.1\r\n",
    ];
    let mut cases: Vec<Case> = bad
        .iter()
        .map(|line| (format!("line {line:?}"), to.raw_head(&format!("{line}{rest}")), Refused))
        .collect();
    let long = format!("{}LINE HTTP/1.1\r\n{rest}", "A".repeat(10_000));
    cases.push(("a method of 10 kB".to_owned(), to.raw_head(&long), Framed(&[405], 0)));
    let lower = format!("{} HTTP/1.1\r\n{rest}", to.line.to_lowercase());
    // Methods are case-sensitive, so this one is unknown.
    cases.push(("a method in lower case".to_owned(), to.raw_head(&lower), Framed(&[405], 0)));
    cases.push((
        "empty lines first".to_owned(),
        to.raw_head(&format!("\r\n\r\nLINE HTTP/1.1\r\n{rest}")),
        Framed(&[200, 200], 2),
    ));
    cases
}

fn hosts(to: &Target) -> Vec<Case> {
    let with = |hosts: &str| {
        to.raw_head(&format!(
            "LINE HTTP/1.1\r\n{hosts}content-type: application/json\r\ncontent-length: LENGTH\r\n\r\n"
        ))
    };
    let bad = [
        "",
        "host:\r\n",
        "host: t\r\nhost: t\r\n",
        "host: t\r\nHOST: u\r\n",
        "host: t, u\r\n",
        "host: t u\r\n",
        "host: u@t\r\n",
        "host: t/x\r\n",
        "host: t:x\r\n",
        "host: t:-1\r\n",
        "host: [::1\r\n",
        "host: t?x\r\n",
        "host: t#x\r\n",
        "host: t\\x\r\n",
        "host: \u{e9}\r\n",
        "host: t:99999999\r\n",
        "host : t\r\n",
    ];
    let mut cases: Vec<Case> = bad.iter().map(|host| (format!("host {host:?}"), with(host), Refused)).collect();
    for host in ["host: t:80\r\n", "host: [::1]:80\r\n", "host: a.example\r\n"] {
        cases.push((format!("host {host:?}"), with(host), Framed(&[200, 200], 2)));
    }
    let (method, path) = to.line.split_once(' ').expect("two words");
    let targets: [(String, Fate); 10] = [
        (format!("{method} http://t{path}"), Framed(&[200, 200], 2)),
        (format!("{method} http://u{path}"), Refused),
        (format!("{method} http://u@t{path}"), Refused),
        (format!("{method} {}", &path[1..]), Refused),
        (format!("{method} *"), Refused),
        (format!("{method} t:80"), Refused),
        (format!("CONNECT {path}"), Refused),
        ("CONNECT t:80".to_owned(), Refused),
        // Servers do not receive fragments. The gateway does not forward this one either.
        (format!("{method} {path}#x"), Framed(&[200, 200], 2)),
        (format!("{method} {path}\u{e9}"), Refused),
    ];
    cases.extend(targets.into_iter().map(|(line, fate)| {
        let head = format!(
            "{line} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: LENGTH\r\n\r\n"
        );
        (format!("target {line:?}"), to.raw_head(&head), fate)
    }));
    cases
}

fn others(to: &Target) -> Vec<Case> {
    let sized = "content-length: LENGTH\r\n";
    let old = "LINE HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: LENGTH\r\n\r\n";
    vec![
        ("no body where one is due".to_owned(), to.sized(""), Framed(&[400, 400], 0)),
        ("1.0 without a host".to_owned(), to.raw_head(old), Framed(&[200], 1)),
        (
            "100-continue".to_owned(),
            to.sized(&format!("{sized}expect: 100-continue\r\n")),
            Framed(&[100, 200, 200], 2),
        ),
        (
            "another expectation".to_owned(),
            to.sized(&format!("{sized}expect: 200-ok\r\n")),
            Framed(&[200, 200], 2),
        ),
        (
            "upgrade to h2c, then early bytes".to_owned(),
            to.sized(&format!("{sized}upgrade: h2c\r\nconnection: upgrade\r\n")),
            Framed(&[200, 400], 1),
        ),
        (
            "upgrade to websocket, then early bytes".to_owned(),
            to.sized(&format!("{sized}upgrade: websocket\r\nconnection: upgrade\r\n")),
            Framed(&[200, 400], 1),
        ),
        (
            "connection: content-length".to_owned(),
            to.sized(&format!("{sized}connection: content-length\r\n")),
            Framed(&[200, 200], 2),
        ),
        (
            "connection: close, then more".to_owned(),
            to.sized(&format!("{sized}connection: close\r\n")),
            Framed(&[200], 1),
        ),
        (
            "close and keep-alive".to_owned(),
            to.sized(&format!("{sized}connection: close\r\nconnection: keep-alive\r\n")),
            Framed(&[200], 1),
        ),
        (
            "the sixty-fifth header".to_owned(),
            to.sized(&format!("{sized}{}", "x: y\r\n".repeat(64))),
            RefusedWith(431),
        ),
        (
            "33 kB of headers".to_owned(),
            to.sized(&format!("{sized}x: {}\r\n", "y".repeat(33_000))),
            RefusedWith(431),
        ),
    ]
}

fn cases(to: &Target) -> Vec<Case> {
    [lengths(to), names(to), codings(to), chunks(to), lines(to), hosts(to), others(to)].concat()
}

/// Sends the bytes and returns the statuses of all responses until the server closes.
fn statuses(address: SocketAddr, bytes: &[u8]) -> Vec<u16> {
    let mut connection = Connection::open(address);
    connection.send(bytes);
    let answers = connection.read_to_end();
    answers.split("HTTP/1.").skip(1).map(|answer| answer[2..5].parse().expect("a status")).collect()
}

#[test]
fn nothing_ambiguous_gets_through_and_the_rest_is_framed_by_the_standard() {
    let config = ConfigFile::new("framing", CONFIG);
    let server = Server::start(&["--config", config.path()]);
    let (api, admin) = (server.address("api"), server.address("admin"));
    let cases = cases(&API);
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for (name, bytes, fate) in &cases {
        let (expected, count) = match fate {
            Refused | BadBody => (vec![400], 0),
            RefusedWith(status) => (vec![*status], 0),
            Framed(statuses, count) => (statuses.to_vec(), *count),
        };
        let before = decisions(admin);
        let found = (statuses(api, bytes), decisions(admin) - before);
        if found != (expected.clone(), count) {
            wrong.push(format!("{name}: {found:?}, not {expected:?} and {count}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), cases.len());
}

#[test]
fn the_gateway_executes_nothing_that_is_smuggled() {
    let config = ConfigFile::new("framing-gateway", CONFIG);
    let server = Server::start(&["--config", config.path()]);
    let (gateway, admin) = (server.address("gateway"), server.address("admin"));
    let mut wrong = Vec::new();
    for (name, bytes, fate) in cases(&GATEWAY) {
        let before = decisions(admin);
        let answers = statuses(gateway, &bytes);
        let count = decisions(admin) - before;
        let is_right = match fate {
            Refused => answers == [400] && count == 0,
            RefusedWith(status) => answers == [status] && count == 0,
            // The demo application reads no body. It responds and closes before any request after the body.
            BadBody => answers.len() == 1 && count <= 1,
            Framed(statuses, most) => answers.len() <= statuses.len() && count <= most.max(1),
        };
        if !is_right {
            wrong.push(format!("{name}: {answers:?} and {count} decisions, but {fate:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The bytes arrive in small pieces, so every line is split.
#[test]
fn a_request_in_pieces_is_framed_as_a_whole_one() {
    let config = ConfigFile::new("framing-pieces", CONFIG);
    let server = Server::start(&["--config", config.path()]);
    let (api, admin) = (server.address("api"), server.address("admin"));
    let smuggling = API.in_chunks("transfer-encoding: chunked\r\ncontent-length: 4\r\n");
    let plain = API.in_chunks("transfer-encoding: chunked\r\n");
    for (bytes, expected, count) in [(smuggling, &[400][..], 0), (plain, &[200, 200], 2)] {
        for size in [1, 5, 30] {
            let before = decisions(admin);
            let mut connection = Connection::open(api);
            // The server may close the connection early. It has parsed the bytes sent until then.
            let _ = bytes.chunks(size).try_for_each(|piece| connection.try_send(piece));
            let answers = connection.read_to_end();
            let answers: Vec<u16> =
                answers.split("HTTP/1.").skip(1).map(|answer| answer[2..5].parse().expect("a status")).collect();
            assert_eq!((answers.as_slice(), decisions(admin) - before), (expected, count), "pieces of {size}");
        }
    }
}

/// The client sends only this head, then waits for the response.
#[test]
fn an_ambiguous_head_alone_is_answered() {
    let config = ConfigFile::new("framing-alone", CONFIG);
    let server = Server::start(&["--config", config.path()]);
    for fields in [
        "content-length: 5\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "content-length: 5x\r\n",
        "content-length:\r\n",
        "x: y\n",
        "transfer-encoding: chunked\r\nupgrade: websocket\r\n",
    ] {
        let mut connection = Connection::open(server.address("api"));
        connection.send(API.head(fields));
        let head = connection.read_whole_head();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{fields:?}: {head}");
    }
}
