//! Messages to and from a browser: JSON values, each terminated by a NUL byte.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// The time limit of a reply, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both directions of the connection.
#[derive(Debug)]
pub(super) struct Pipe {
    to: File,
    messages: Receiver<Value>,
    /// Events that the browser sent without a request.
    events: Vec<Value>,
    calls: u64,
    log: Box<Path>,
}

impl Pipe {
    /// Waits until the browser has opened its ends of the pipes.
    pub(super) fn open(to: &Path, from: &Path, log: &Path) -> Self {
        let (sender, messages) = mpsc::channel();
        let from = from.to_owned();
        thread::spawn(move || {
            let mut lines = BufReader::new(File::open(from).expect("a pipe")).split(0);
            // The loop ends when the browser exits or the receiver is dropped.
            while let Some(Ok(line)) = lines.next() {
                let message = serde_json::from_slice(&line).expect("the browser speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        // Open for reading and writing, so that the call does not block if the browser failed to start.
        let to = File::options().read(true).write(true).open(to).expect("a pipe");
        Self { to, messages, events: Vec::new(), calls: 0, log: log.into() }
    }

    /// Sends a command and waits for its reply.
    pub(super) fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let mut answer = self.next(method);
            if answer["id"] == json!(self.calls) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    /// All events of this tab so far.
    pub(super) fn events(&mut self, session: &str) -> Vec<&Value> {
        self.events.extend(self.messages.try_iter());
        self.events.iter().filter(|event| event["sessionId"] == json!(session)).collect()
    }

    fn next(&self, method: &str) -> Value {
        self.messages.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            panic!("no answer to {method}: {error}; the browser's log:\n{log}")
        })
    }
}
