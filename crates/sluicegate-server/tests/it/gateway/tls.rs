//! Upstreams behind TLS: who is trusted, and which protocol is agreed on.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sluicegate_testkit::redis_server::Certificates;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{AMPLE, Gateway, http2};

fn acceptor(certificates: &Certificates, protocols: &[&str]) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificates.server()).expect("a file").collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_file(certificates.server_key()).expect("a key");
    let mut configuration = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("certificates"), key)
        .expect("a certificate");
    configuration.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(configuration))
}

/// An upstream that prefers the first of these protocols. On HTTP/1.1 it answers one request and closes.
async fn upstream(certificates: &Certificates, protocols: &[&str]) -> SocketAddr {
    let acceptor = acceptor(certificates, protocols);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    return http2::serve(stream).await;
                }
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a head"));
                }
                let answer =
                    "HTTP/1.1 200 OK\r\nx-version: 1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                stream.write_all(answer.as_bytes()).await.expect("the gateway reads");
                stream.shutdown().await.expect("the gateway is there");
            });
        }
    });
    address
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
