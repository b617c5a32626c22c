//! Upstreams with fully scripted bytes. A thread of this process serves each connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::server::PATIENCE;

/// A running upstream.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

/// One connection of the gateway to an upstream.
pub(crate) struct Caller {
    stream: BufReader<TcpStream>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Runs `serve` on every connection with its index, counted from 0.
    pub(crate) fn start(serve: impl Fn(&mut Caller, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (serve, all) = (Arc::new(serve), Arc::clone(&heads));
        // The thread ends with the process of the test.
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let stream = stream.expect("a connection");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                stream.set_nodelay(true).expect("a socket");
                let mut caller = Caller { stream: BufReader::new(stream), heads: Arc::clone(&all) };
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(&mut caller, count));
            }
        });
        Self { address, heads }
    }

    /// An upstream that responds to every request with its head, and with these header lines, such as `"a: b\r\n"`.
    pub(crate) fn echo(lines: &'static str) -> Self {
        Self::start(move |caller, _| {
            while let Some(head) = caller.read_head() {
                let length = length_of(&head);
                let sent = caller.read(length);
                let body = format!("{head}{}", String::from_utf8(sent).expect("text"));
                caller.answer(lines, &body);
            }
        })
    }

    /// The heads of all requests so far, in lower case up to the values.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

impl Caller {
    /// The head of the next request; `None` if the gateway has closed.
    pub(crate) fn read_head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).unwrap_or(0) == 0 {
                return None;
            }
        }
        self.heads.lock().expect("no panic").push(head.clone());
        Some(head)
    }

    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("as many bytes");
        bytes
    }

    /// One chunk of a chunked body; empty at its end.
    pub(crate) fn read_chunk(&mut self) -> Vec<u8> {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a size");
        let size = usize::from_str_radix(line.trim_end(), 16).expect("a size in hexadecimal");
        let mut chunk = self.read(size + 2);
        chunk.truncate(size);
        chunk
    }

    /// Everything until the gateway closes.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset counts as a close.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("the gateway reads");
    }

    /// A complete response with these header lines.
    pub(crate) fn answer(&mut self, lines: &str, body: &str) {
        self.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{lines}\r\n{body}", body.len()));
    }
}

/// The value of a header in a head.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut values = headers(head, name);
    let value = values.next();
    assert!(values.next().is_none(), "several lines of {name} in {head}");
    value
}

/// All values of a header in a head.
pub(crate) fn headers<'h>(head: &'h str, name: &str) -> impl Iterator<Item = &'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(move |(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn length_of(head: &str) -> usize {
    header(head, "content-length").map_or(0, |length| length.parse().expect("a number"))
}
