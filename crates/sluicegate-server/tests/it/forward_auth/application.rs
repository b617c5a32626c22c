//! The application behind a proxy. It responds to every request and records the head of each.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::server::PATIENCE;

/// The body of its responses.
pub(crate) const BODY: &str = "hello";
/// The value of its own rate limit header. A proxy that reports Sluicegate's limits replaces it.
pub(crate) const OWN_REMAINING: &str = "999";
/// The header field with the tokens that a response costs: as many as the field of the request asks for.
pub(crate) const TOKENS: &str = "x-tokens";

/// A running application.
pub(crate) struct Application {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    reached: Mutex<Vec<Reached>>,
    has_ended: AtomicBool,
}

/// The head of a request that reached the application.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    lines: Vec<String>,
}

impl Reached {
    /// The value of a field that may occur once, in any spelling that CGI cannot distinguish.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.lines.iter().filter_map(|line| line.split_once(':'));
        let is_it = |own: &str| own.replace('_', "-").eq_ignore_ascii_case(name);
        let mut values = fields.filter(|(own, _)| is_it(own)).map(|(_, value)| value.trim());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} more than once in {:#?}", self.lines);
        value
    }
}

impl Application {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.has_ended.load(Ordering::Acquire) {
                    return;
                }
                answer(stream.expect("a connection"), &of_thread);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of requests that reached it.
    pub(crate) fn count(&self) -> usize {
        self.shared.reached.lock().expect("no panic").len()
    }

    /// The last request that reached it.
    #[track_caller]
    pub(crate) fn last(&self) -> Reached {
        self.shared.reached.lock().expect("no panic").last().expect("a request").clone()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        // Wakes the thread. If the connection fails, the thread has already ended.
        let _ = TcpStream::connect(self.address);
    }
}

/// One request on each connection. The head is recorded before the response, so it is available to every client with a
/// response.
fn answer(stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut reader = BufReader::new(&stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        // A proxy may connect only to probe the port.
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let reached = Reached { lines };
    let length = reached.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    let tokens = reached.field(TOKENS).map_or_else(String::new, |tokens| format!("{TOKENS}: {tokens}\r\n"));
    let is_head = reached.lines.first().is_some_and(|line| line.starts_with("HEAD "));
    shared.reached.lock().expect("no panic").push(reached);
    let (length, body) = (BODY.len(), if is_head { "" } else { BODY });
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\
         x-ratelimit-remaining: {OWN_REMAINING}\r\n{tokens}\r\n{body}"
    );
    // The write fails if the client has closed the connection, which does not matter.
    let _ = (&stream).write_all(answer.as_bytes());
}
