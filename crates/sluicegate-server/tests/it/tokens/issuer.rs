//! An issuer of tokens: it signs them, and publishes its keys over HTTP until it is dropped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::{Value, json};

/// The `iss` of its tokens.
pub(super) const NAME: &str = "https://id.example";

/// In the year 2112.
const FAR_SECONDS: u64 = 4_481_136_000;

/// A key of the issuer.
pub(super) struct Signer {
    key: EncodingKey,
    jwk: Value,
    kid: &'static str,
}

impl Signer {
    pub(super) fn new(kid: &'static str) -> Self {
        let pair = KeyPair::generate().expect("a key");
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key for ES256");
        let jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).expect("a key to publish");
        let mut jwk = serde_json::to_value(jwk).expect("JSON");
        jwk["kid"] = kid.into();
        Self { key, jwk, kid }
    }

    /// A token with a long validity.
    pub(super) fn token(&self, subject: &str) -> String {
        self.token_until(subject, FAR_SECONDS)
    }

    /// A token valid until then.
    pub(super) fn token_until(&self, subject: &str, expires_at_seconds: u64) -> String {
        self.token_of(NAME, subject, expires_at_seconds)
    }

    /// A token of another issuer.
    pub(super) fn token_from(&self, issuer: &str, subject: &str) -> String {
        self.token_of(issuer, subject, FAR_SECONDS)
    }

    fn token_of(&self, issuer: &str, subject: &str, expires_at_seconds: u64) -> String {
        let header = Header { kid: Some(self.kid.to_owned()), ..Header::new(Algorithm::ES256) };
        let claims = json!({ "iss": issuer, "aud": "api", "sub": subject, "exp": expires_at_seconds });
        encode(&header, &claims, &self.key).expect("a token")
    }
}

#[derive(Default)]
struct State {
    /// The key set. Without one, requests get status 500.
    published: Option<String>,
    requests: usize,
    is_over: bool,
}

/// A server that publishes keys.
pub(super) struct Issuer {
    pub(super) url: String,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Issuer {
    /// An issuer that responds to every request with 500.
    pub(super) fn failing() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                if shared.lock().expect("not poisoned").is_over {
                    return;
                }
                answer(stream, &shared);
            }
        });
        Self { url: format!("http://{address}/keys"), address, state, thread: Some(thread) }
    }

    /// An issuer that publishes these keys.
    pub(super) fn publishing(signers: &[&Signer]) -> Self {
        let issuer = Self::failing();
        issuer.publish(signers);
        issuer
    }

    /// Publishes these keys from now on.
    pub(super) fn publish(&self, signers: &[&Signer]) {
        let keys: Vec<_> = signers.iter().map(|signer| &signer.jwk).collect();
        self.state.lock().expect("not poisoned").published = Some(json!({ "keys": keys }).to_string());
    }

    /// The number of requests so far.
    pub(super) fn requests(&self) -> usize {
        self.state.lock().expect("not poisoned").requests
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.state.lock().expect("not poisoned").is_over = true;
        // Wakes the thread, which waits for a connection.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) {
    let reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let has_ended = |line: &std::io::Result<String>| line.as_ref().map_or(true, String::is_empty);
    let _ = reader.lines().find(has_ended);
    let mut state = state.lock().expect("not poisoned");
    state.requests += 1;
    let (status, body) = match &state.published {
        Some(keys) => ("200 OK", keys.as_str()),
        None => ("500 Internal Server Error", ""),
    };
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    // The client, if stopped in the meantime, does not read the response.
    let _ = stream.write_all(text.as_bytes());
}
