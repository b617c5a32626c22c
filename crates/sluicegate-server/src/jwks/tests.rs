//! Key sets over real connections, from a server of the test, with and without TLS, valid and invalid.

mod issuer;

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::identify::token::{IssuerOptions, Keys, TokenErrorKind, Tokens};
use sluicegate_testkit::redis_server::Certificates;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use issuer::{Answer, Issuer, Signer};

const REFRESH: Duration = Duration::from_secs(300);
const KEEP: Duration = Duration::from_secs(86_400);

fn source(issuer: &Issuer) -> HttpKeySource {
    HttpKeySource::new(JwksUrl::parse(&issuer.url).expect("good"), None).expect("a source")
}

/// The error of a fetch.
async fn failure(source: &HttpKeySource) -> String {
    source.fetch().await.expect_err("was fetched").to_string()
}

/// Tokens of an issuer whose keys a task renews until the test ends.
struct World {
    tokens: Arc<Tokens>,
    clock: Arc<SystemClock>,
    keeper: tokio::task::JoinHandle<()>,
}

impl World {
    async fn new(source: HttpKeySource) -> Self {
        let keys = Keys::remote(Arc::new(source), REFRESH, KEEP);
        let tokens = Tokens::new(vec![IssuerOptions::new(issuer::NAME, ["api"], keys)]).expect("good options");
        let (tokens, clock) = (Arc::new(tokens), Arc::new(SystemClock::new()));
        let keeper = tokio::spawn({
            let (tokens, clock) = (Arc::clone(&tokens), Arc::clone(&clock));
            async move { tokens.keep_keys_fresh(&*clock).await }
        });
        // The task has begun once it has been polled; from then on tokens wait for it.
        tokio::task::yield_now().await;
        Self { tokens, clock, keeper }
    }

    async fn verify(&self, token: &str) -> Result<String, TokenErrorKind> {
        let verified = self.tokens.verify(token, self.clock.now()).await;
        verified.map(|claims| claims.identifier.to_string()).map_err(|error| error.kind())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[tokio::test]
async fn keys_come_over_tls_from_a_server_that_the_given_authority_vouches_for() {
    let certificates = Certificates::new();
    let signer = Signer::new("one");
    let issuer = Issuer::with_tls(&certificates, Answer::keys(&[&signer])).await;
    let authority = fs::read(certificates.authority()).expect("the authority");
    let url = JwksUrl::parse(&issuer.url).expect("good");
    let world = World::new(HttpKeySource::new(url.clone(), Some(&authority)).expect("a source")).await;
    assert_eq!(world.verify(&signer.token("alice")).await.as_deref(), Ok("alice"));
    assert_eq!(issuer.requests(), 1);

    // Neither the system's authorities nor another one have signed its certificate.
    let other = fs::read(Certificates::new().authority()).expect("another authority");
    for authorities in [None, Some(&other[..])] {
        let source = HttpKeySource::new(url.clone(), authorities).expect("a source");
        assert!(failure(&source).await.contains("invalid peer certificate"), "{authorities:?}");
    }
    assert_eq!(issuer.requests(), 1, "no request was sent to an untrusted server");
}

#[tokio::test]
async fn a_certificate_that_ran_out_is_none() {
    let certificates = Certificates::expired();
    let issuer = Issuer::with_tls(&certificates, Answer::keys(&[&Signer::new("one")])).await;
    let authority = fs::read(certificates.authority()).expect("the authority");
    let url = JwksUrl::parse(&issuer.url).expect("good");
    let message = failure(&HttpKeySource::new(url, Some(&authority)).expect("a source")).await;
    assert!(message.contains("certificate expired"), "{message}");
}

#[tokio::test]
async fn a_server_without_tls_behind_https_gets_nothing() {
    let issuer = Issuer::plain(Answer::keys(&[&Signer::new("one")])).await;
    let url = JwksUrl::parse(&issuer.url.replace("http://", "https://")).expect("good");
    let authority = fs::read(Certificates::new().authority()).expect("an authority");
    failure(&HttpKeySource::new(url, Some(&authority)).expect("a source")).await;
    assert_eq!(issuer.requests(), 0);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Issuer::plain(Answer::keys(&[&Signer::new("one")])).await;
    for status in [301, 302, 303, 307, 308] {
        let status = StatusCode::from_u16(status).expect("a status");
        let issuer = Issuer::plain(Answer::redirect(status, &target.url)).await;
        let message = failure(&source(&issuer)).await;
        assert!(message.contains(status.as_str()) && message.contains("redirects are not followed"), "{message}");
    }
    assert_eq!(target.requests(), 0);
}

#[tokio::test]
async fn other_responses_are_failures_that_name_the_status() {
    for (answer, expected) in [
        (Answer::text(StatusCode::NOT_FOUND, "{\"keys\":[]}"), "the answer is 404"),
        (Answer::text(StatusCode::INTERNAL_SERVER_ERROR, ""), "the answer is 500"),
        (Answer::text(StatusCode::NO_CONTENT, ""), "the answer is 204"),
        (Answer::text(StatusCode::OK, vec![0xff, 0xfe]), "the answer is not UTF-8"),
        (Answer::text(StatusCode::OK, vec![b' '; JWKS_BYTES_MAX + 1]), "the answer has more than 262144 bytes"),
        (Answer::endless(), "the answer has more than 262144 bytes"),
    ] {
        let issuer = Issuer::plain(answer).await;
        let message = failure(&source(&issuer)).await;
        assert!(message.starts_with(expected), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let source = HttpKeySource::new(JwksUrl::parse(&url).expect("good"), None).expect("a source");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        // The server reads some of the request first: closing with unread bytes could discard the response.
        stream.read_u8().await.expect("a request");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"keys\"").await.expect("written");
        stream.shutdown().await.expect("closed");
        stream
    };
    let (message, _stream) = tokio::join!(failure(&source), serve);
    assert!(message.starts_with("the answer broke off"), "{message}");
}

#[tokio::test]
async fn the_largest_set_is_read_completely() {
    let text = " ".repeat(JWKS_BYTES_MAX);
    let issuer = Issuer::plain(Answer::text(StatusCode::OK, text.clone())).await;
    assert_eq!(source(&issuer).fetch().await, Ok(text));
}

#[tokio::test]
async fn a_refused_connection_is_reported_with_its_reason() {
    let url = {
        let issuer = Issuer::plain(Answer::keys(&[])).await;
        issuer.stop().await
    };
    let source = HttpKeySource::new(JwksUrl::parse(&url).expect("good"), None).expect("a source");
    let message = failure(&source).await;
    assert!(message.contains("Connection refused"), "{message}");

    let world = World::new(source).await;
    let verified = world.verify(&Signer::new("one").token("alice")).await;
    assert_eq!(verified, Err(TokenErrorKind::KeysUnavailable));
}

#[tokio::test]
async fn a_rotation_causes_one_fetch_for_any_number_of_requests() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let issuer = Issuer::plain(Answer::keys(&[&old])).await;
    let world = World::new(source(&issuer)).await;
    assert!(world.verify(&old.token("alice")).await.is_ok());

    issuer.answer(Answer::keys(&[&new]));
    let tokens: Vec<_> = (0..100).map(|number| new.token(&format!("user {number}"))).collect();
    let verified = futures_util::future::join_all(tokens.iter().map(|token| world.verify(token))).await;
    assert!(verified.iter().all(Result::is_ok), "{verified:?}");
    assert_eq!(issuer.requests(), 2);
    // The old key is gone, and its tokens with it; their unknown key causes no further request so soon.
    assert!(world.tokens.known(&old.token("alice"), world.clock.now()).is_none());
    for number in 0..100 {
        let verified = world.verify(&old.token(&format!("user {number}"))).await;
        assert_eq!(verified, Err(TokenErrorKind::UnknownKey));
    }
    assert_eq!(issuer.requests(), 2);
}

#[tokio::test]
async fn a_fetch_names_the_server_and_contains_nothing_of_a_token() {
    let issuer = Issuer::plain(Answer::keys(&[&Signer::new("one")])).await;
    let mut url = issuer.url.clone();
    url.push_str("?tenant=7");
    let source = HttpKeySource::new(JwksUrl::parse(&url).expect("good"), None).expect("a source");
    source.fetch().await.expect("a set");
    let head = issuer.last_head();
    assert!(head.starts_with("GET /keys?tenant=7\n"), "{head}");
    assert!(head.contains("\nuser-agent: sluicegate/") && head.contains("\nhost: 127.0.0.1:"), "{head}");
    assert!(!head.contains("authorization") && !head.contains("cookie"), "{head}");
}
