//! Upstreams behind TLS: trusted authorities, client certificates, ALPN, and tunnels.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sluicegate_testkit::redis_server::Certificates;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::websocket::{AGREED, UPGRADE};
use super::{AMPLE, Gateway, http2};
use crate::tls::connect;

fn acceptor(certificates: &Certificates, protocols: &[&str], clients: Option<&Certificates>) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificates.server()).expect("a file").collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_file(certificates.server_key()).expect("a key");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(clients.authority()).expect("a file")).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let mut configuration = builder.with_single_cert(chain.expect("certificates"), key).expect("a certificate");
    configuration.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(configuration))
}

/// An upstream that prefers the first of these protocols.
async fn upstream(certificates: &Certificates, protocols: &[&str]) -> SocketAddr {
    serve(acceptor(certificates, protocols, None)).await
}

/// Over HTTP/1.1 it responds to one request and closes. After an upgrade it echoes the received bytes.
async fn serve(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    return http2::serve(stream).await;
                }
                answer(stream).await;
            });
        }
    });
    address
}

async fn answer(mut stream: TlsStream<TcpStream>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // A client without a certificate gets the error only after it has sent its request.
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    if head.to_ascii_lowercase().windows(9).any(|word| word == b"\nupgrade:") {
        stream.write_all(AGREED.as_bytes()).await.expect("the gateway reads");
        let (mut reads, mut writes) = tokio::io::split(stream);
        tokio::io::copy(&mut reads, &mut writes).await.expect("the gateway is there");
        return writes.shutdown().await.expect("the gateway is there");
    }
    let answer = "HTTP/1.1 200 OK\r\nx-version: 1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    stream.write_all(answer.as_bytes()).await.expect("the gateway reads");
    stream.shutdown().await.expect("the gateway is there");
}

fn gateway(test: &str, upstream: SocketAddr, more: &str, ca_file: &Path) -> Gateway {
    let port = upstream.port();
    let ca_file = ca_file.display();
    let route =
        format!("{{ path: /**, upstream: 'https://localhost:{port}', tls: {{ ca_file: '{ca_file}' }}{more} }}");
    Gateway::with_rules(test, &format!("routes: [{route}]"), AMPLE)
}

async fn get(gateway: &Gateway) -> (u16, Option<String>) {
    let answer = tokio::task::block_in_place(|| gateway.get("/a", &[]));
    (answer.status, answer.header("x-version").map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_is_the_one_that_both_agree_on() {
    let certificates = Certificates::new();
    for (test, protocols, more, version) in [
        ("alpn-two", &["h2", "http/1.1"][..], "", "2"),
        ("alpn-one", &["http/1.1"], "", "1.1"),
        ("alpn-none", &[], "", "1.1"),
        ("alpn-refused", &["h2", "http/1.1"], ", http2: false", "1.1"),
        ("alpn-wanted", &["http/1.1", "h2"], ", http2: true", "2"),
    ] {
        let upstream = upstream(&certificates, protocols).await;
        let gateway = gateway(test, upstream, more, &certificates.authority());
        for _ in 0..2 {
            assert_eq!(get(&gateway).await, (200, Some(version.to_owned())), "{test}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_cannot_be_verified_is_502() {
    let (certificates, strangers, expired) = (Certificates::new(), Certificates::new(), Certificates::expired());
    for (test, server, trusted) in [("stranger", &certificates, &strangers), ("expired", &expired, &expired)] {
        let upstream = upstream(server, &["http/1.1"]).await;
        let gateway = gateway(test, upstream, "", &trusted.authority());
        assert_eq!(get(&gateway).await.0, 502, "{test}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_may_let_in_only_those_with_a_certificate() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let upstream = serve(acceptor(&certificates, &["http/1.1"], Some(&certificates))).await;
    for (test, shown, status) in
        [("shown", Some(&certificates), 200), ("none-shown", None, 502), ("strange", Some(&strangers), 502)]
    {
        let files = shown.map(|shown| (shown.client(), shown.client_key()));
        let files = files.map_or_else(String::new, |(certificate, key)| {
            format!(", certificate_file: '{}', key_file: '{}'", certificate.display(), key.display())
        });
        let (port, ca_file) = (upstream.port(), certificates.authority());
        let tls = format!("{{ ca_file: '{}'{files} }}", ca_file.display());
        let route = format!("{{ path: /**, upstream: 'https://localhost:{port}', tls: {tls} }}");
        let gateway = Gateway::with_rules(test, &format!("routes: [{route}]"), AMPLE);
        assert_eq!(get(&gateway).await.0, status, "{test}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_goes_through_tls_on_both_sides() {
    let certificates = Certificates::new();
    // An upgrade needs HTTP/1.1, even if the upstream prefers another protocol.
    for (test, protocols) in [("tunnel", &["http/1.1"][..]), ("tunnel-two", &["h2", "http/1.1"])] {
        let upstream = upstream(&certificates, protocols).await;
        let (ca_file, port) = (certificates.authority(), upstream.port());
        let route = format!(
            "{{ path: /**, upstream: 'https://localhost:{port}', tls: {{ ca_file: '{}' }} }}",
            ca_file.display()
        );
        let (certificate, key) = (certificates.server(), certificates.server_key());
        let listen = format!(
            "listen: {{ gateway: {{ address: '127.0.0.1:0', tls: {{ certificate_file: '{}', key_file: '{}' }} }} }}",
            certificate.display(),
            key.display()
        );
        let gateway = Gateway::with_rules(test, &format!("routes: [{route}]"), &format!("{listen}\n{AMPLE}"));
        let client = connect(gateway.address(), &[&certificates], &[b"http/1.1"]).await;
        let mut client = client.expect("a connection");
        client.write_all(UPGRADE.as_bytes()).await.expect("the gateway reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.expect("a head"));
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 "), "{test}: {head}");
        let long = vec![7; 100_000];
        let (mut reads, mut writes) = tokio::io::split(client);
        let sending = tokio::spawn(async move {
            writes.write_all(&long).await.expect("the gateway reads");
            writes.shutdown().await.expect("the gateway is there");
            long
        });
        let mut back = Vec::new();
        reads.read_to_end(&mut back).await.expect("the gateway is there");
        assert!(back == sending.await.expect("sent"), "{test}: {} bytes", back.len());
    }
}
