//! TLS on the listeners: both versions of HTTP, RESP, replaced certificates, invalid files.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluicegate_testkit::redis_server::Certificates;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::server::{ConfigFile, PATIENCE, Server, sluicegate};

/// The gateway, the API and RESP under TLS, with these files.
fn config(certificate: &Path, key: &Path) -> String {
    let tls = format!("tls: {{ certificate_file: {}, key_file: {} }}", certificate.display(), key.display());
    format!(
        "listen:\n  gateway: {{ address: '127.0.0.1:0', {tls} }}\n  api: {{ {tls} }}\n  resp: {{ address: \
         '127.0.0.1:0', {tls} }}\ndemo: true\nrules: []\n"
    )
}

fn start(name: &str, certificates: &Certificates) -> (Server, ConfigFile) {
    let file = ConfigFile::new(name, config(&certificates.server(), &certificates.server_key()));
    (Server::start(&["--config", file.path()]), file)
}

/// Connects as a client that trusts only these authorities and offers these protocols.
pub(crate) async fn connect(
    address: SocketAddr,
    authorities: &[&Certificates],
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let pem = CertificateDer::from_pem_file(authority.authority()).expect("a certificate");
        roots.add(pem).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn ping() -> Request<Empty<Bytes>> {
    Request::get("https://localhost/api/ping").header("host", "localhost").body(Empty::new()).expect("valid")
}

/// The server's certificate.
fn shown(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().expect("shown")[0].to_vec()
}

#[tokio::test]
async fn http1_and_http2_are_negotiated_and_answered() {
    let certificates = Certificates::new();
    let (server, _file) = start("tls-versions", &certificates);
    let gateway = server.address("gateway");

    let stream = connect(gateway, &[&certificates], &[b"http/1.1"]).await.expect("a handshake");
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    for _ in 0..3 {
        let answer = requests.send_request(ping()).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), answer.version()), (200, hyper::Version::HTTP_11));
        let body = answer.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(body, r#"{"message":"pong"}"#);
    }

    let stream = connect(gateway, &[&certificates], &[b"h2", b"http/1.1"]).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut requests, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    let answer = requests.send_request(ping()).await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.version()), (200, hyper::Version::HTTP_2));
}

#[tokio::test]
async fn the_protocol_of_redis_is_spoken_under_tls_too() {
    let certificates = Certificates::new();
    let (server, _file) = start("tls-resp", &certificates);
    let mut stream = connect(server.address("resp"), &[&certificates], &[]).await.expect("a handshake");
    stream.write_all(b"PING\r\nQUIT\r\n").await.expect("sent");
    let mut answers = String::new();
    // The server closes the connection in the way that Redis clients expect.
    let _ = stream.read_to_string(&mut answers).await;
    assert_eq!(answers, "+PONG\r\n+OK\r\n");
}

#[tokio::test]
async fn plain_text_to_a_listener_with_tls_is_not_answered_as_http() {
    let certificates = Certificates::new();
    let (server, _file) = start("tls-plain", &certificates);
    let mut stream = TcpStream::connect(server.address("api")).await.expect("connects");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let strangers = Certificates::new();
    assert!(connect(server.address("api"), &[&strangers], &[]).await.is_err(), "not its authority");
}

#[tokio::test]
async fn a_handshake_that_does_not_begin_is_not_waited_for() {
    let certificates = Certificates::new();
    let (server, _file) = start("tls-slow", &certificates);
    let mut silent = TcpStream::connect(server.address("gateway")).await.expect("connects");
    let mut half = TcpStream::connect(server.address("gateway")).await.expect("connects");
    half.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.expect("sent");
    for stream in [&mut silent, &mut half] {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "not closed");
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_old_ones_live_on() {
    let (ours, next) = (Certificates::new(), Certificates::new());
    let (mut server, _file) = start("tls-reload", &ours);
    let gateway = server.address("gateway");
    let old = connect(gateway, &[&ours], &[b"http/1.1"]).await.expect("a handshake");
    let old_certificate = shown(&old);
    let (mut requests, connection) = http1::handshake(TokioIo::new(old)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    assert_eq!(requests.send_request(ping()).await.expect("an answer").status(), 200);

    // A certificate without its matching key changes nothing, and the log gives the reason.
    fs::copy(next.server(), ours.server()).expect("copied");
    server.wait_for_line("the new certificate is unusable; the current one stays in use");
    let still = connect(gateway, &[&ours], &[]).await.expect("a handshake");
    assert_eq!(shown(&still), old_certificate);

    fs::copy(next.server_key(), ours.server_key()).expect("copied");
    let started = Instant::now();
    loop {
        let fresh = connect(gateway, &[&ours, &next], &[]).await.expect("a handshake");
        if shown(&fresh) != old_certificate {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "the new certificate is not shown");
    }
    connect(gateway, &[&next], &[]).await.expect("signed by the new authority");
    assert_eq!(requests.send_request(ping()).await.expect("an answer").status(), 200, "the old connection");
}

#[test]
fn bad_files_refuse_to_start_and_are_named() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let missing = ours.server().with_file_name("no-such.pem");
    for (name, certificate, key, expected) in [
        ("tls-missing", &missing, &ours.server_key(), "certificate_file"),
        ("tls-swapped", &ours.server_key(), &ours.server(), "no certificate in it"),
        ("tls-no-key", &ours.server(), &ours.authority(), "no private key in it"),
        ("tls-mixed", &ours.server(), &others.server_key(), "write a certificate and its own key"),
    ] {
        let file = ConfigFile::new(name, config(certificate, key));
        let arguments = ["--config", file.path(), "--api", "127.0.0.1:0", "--admin", "off"];
        let output = sluicegate(&arguments).output().expect("it ends");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("error: listen.gateway.tls: ") && said.contains(expected), "{name}: {said}");
        assert!(!said.contains("ready"), "{name}: {said}");
    }
}

/// The command trusts the authorities of the system, which a variable sets here.
#[test]
fn check_connects_to_a_listener_with_a_trusted_certificate() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let (server, _file) = start("tls-check", &certificates);
    let url = format!("https://localhost:{}", server.address("api").port());
    let check = |authority: &Path| {
        let mut command = sluicegate(&["check", "--resource", "any", "--identifier", "alice", "--api", &url]);
        command.env("SSL_CERT_FILE", authority).env_remove("SSL_CERT_DIR").output().expect("the binary starts")
    };
    let allowed = check(&certificates.authority());
    assert_eq!(allowed.status.code(), Some(0), "{allowed:?}");
    let refused = check(&strangers.authority());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && told.contains("certificate"), "{told}");
}
