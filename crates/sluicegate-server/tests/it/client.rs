//! A client that sends exactly the given bytes, so tests can also send requests that a correct client never sends.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net;
use serde_json::Value;

use crate::server::PATIENCE;

/// One parsed response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Name in lower case, and value.
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(header, _)| header == name);
        header.map(|(_, value)| value.as_str())
    }

    /// The values of all lines of a field.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The names of all fields, each once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.headers.iter().map(|(name, _)| name.as_str());
        names.collect::<std::collections::BTreeSet<_>>().into_iter()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// One connection.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the listener accepts"))
    }

    /// A connection from a chosen loopback address, such as 127.0.0.2.
    pub(crate) fn open_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).expect("a socket");
        net::bind(&socket, &SocketAddr::from((source, 0))).expect("an address of this machine");
        net::connect(&socket, &address).expect("the listener accepts");
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// For servers that may have closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// The status line of a response after which the connection stays open. The headers are skipped.
    pub(crate) fn read_head(&mut self) -> String {
        self.read_whole_head().lines().next().unwrap_or_default().to_owned()
    }

    /// The status line and the headers of a response after which the connection stays open.
    pub(crate) fn read_whole_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.read(1));
        }
        String::from_utf8(head).expect("text")
    }

    /// A response with a length after which the connection stays open.
    pub(crate) fn read_answer(&mut self) -> Answer {
        let head = self.read_whole_head();
        let length = parse(&head).header("content-length").and_then(|length| length.parse().ok());
        let body = String::from_utf8(self.read(length.unwrap_or(0))).expect("text");
        parse(&(head + &body))
    }

    /// Reads this number of bytes.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("as many bytes");
        bytes
    }

    /// The same; `None` if the server closes the connection instead.
    pub(crate) fn try_read_head(&mut self) -> Option<String> {
        let mut byte = [0];
        matches!(self.0.peek(&mut byte), Ok(1)).then(|| self.read_head())
    }

    /// Everything until the server closes. A reset counts as a close. The test fails if the server stays silent for
    /// too long.
    pub(crate) fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("not closed: {error}"),
        }
        String::from_utf8(bytes).expect("text")
    }

    /// The only response on a connection that the server closes after it.
    pub(crate) fn answer(&mut self) -> Answer {
        parse(&self.read_to_end())
    }
}

/// Sends many requests on one connection.
pub(crate) struct Session(TcpStream);

impl Session {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).expect("the listener accepts")
    }

    /// For servers that may have stopped.
    pub(crate) fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Posts `body` as JSON.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        self.try_post(path, "", body).expect("an answer")
    }

    /// Posts `body` as JSON, with `headers` such as `"authorization: Bearer x\r\n"`, to a server that may have
    /// stopped.
    pub(crate) fn try_post(&mut self, path: &str, headers: &str, body: &str) -> io::Result<Answer> {
        let length = body.len();
        self.0.write_all(
            format!(
                "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n{headers}content-length: \
                 {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )?;
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            self.read_into(&mut text, 1)?;
        }
        let head = parse(str::from_utf8(&text).expect("text"));
        let length = head.header("content-length").and_then(|length| length.parse().ok()).expect("a length");
        self.read_into(&mut text, length)?;
        Ok(parse(str::from_utf8(&text).expect("text")))
    }

    /// Reads exactly `count` more bytes.
    fn read_into(&mut self, bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
        let start = bytes.len();
        bytes.resize(start + count, 0);
        self.0.read_exact(&mut bytes[start..])
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut connection = Connection::open(address);
    connection.send(format!("{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"));
    connection.answer()
}

/// Posts `body` as JSON, with `headers` such as `"authorization: Bearer x\r\n"`, on a connection of its own.
pub(crate) fn post_with(address: SocketAddr, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let mut connection = Connection::open(address);
    connection.send(format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n",
        body.len()
    ));
    connection.send(body);
    connection.answer()
}

/// Posts `body` as JSON, on a connection of its own.
pub(crate) fn post(address: SocketAddr, path: &str, body: impl AsRef<[u8]>) -> Answer {
    post_with(address, path, "", body)
}

/// Sends one request with one more header, on a connection of its own.
pub(crate) fn send_with(address: SocketAddr, method: &str, path: &str, header: &str) -> Answer {
    let mut connection = Connection::open(address);
    connection.send(format!("{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{header}\r\n\r\n"));
    connection.answer()
}

#[track_caller]
fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.expect("a status line"),
        headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
        body: body.to_owned(),
    }
}
