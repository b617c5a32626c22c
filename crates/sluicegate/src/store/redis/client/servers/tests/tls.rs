//! TLS connections: only to a server with a valid certificate.

use super::*;
use sluicegate_testkit::redis_server::{Certificates, ClientCertificates, Options};
use std::path::PathBuf;

fn read(path: PathBuf) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

async fn refused(options: &RedisOptions) -> String {
    let error = count(&start(options), "key", Duration::from_secs(1)).await.expect_err("not trusted");
    assert_eq!(error.class, ErrorClass::Connection, "{error}");
    error.message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_works() {
    let certificates = Arc::new(Certificates::new());
    let server = RedisServer::with(&Options::default().tls(&certificates, ClientCertificates::Required));
    let trusting = options(&server.url()).certificate_authorities(read(certificates.authority()));
    let known = trusting.clone().client_certificate(read(certificates.client()), read(certificates.client_key()));
    assert_eq!(count(&start(&known), "key", PATIENCE).await.expect("an answer"), 1);
    refused(&trusting).await;
    assert!(refused(&options(&server.url())).await.contains("TLS"));
    let other = Certificates::new();
    assert!(refused(&known.certificate_authorities(read(other.authority()))).await.contains("TLS"));
    assert_eq!(stored(&server, "key"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_certificates_are_rejected() {
    let certificates = Arc::new(Certificates::expired());
    let server = RedisServer::with(&Options::default().tls(&certificates, ClientCertificates::NotAsked));
    let trusting = options(&server.url()).certificate_authorities(read(certificates.authority()));
    assert!(refused(&trusting).await.contains("xpired"));
}

#[test]
fn a_mismatched_private_key_is_rejected_at_start() {
    let (one, other) = (Certificates::new(), Certificates::new());
    let options = options("rediss://host")
        .certificate_authorities(read(one.authority()))
        .client_certificate(read(one.client()), read(other.client_key()));
    let error = Servers::start(&options, &[], "ours:").expect_err("they do not match");
    assert!(error.message.contains("do not match"), "{error}");
}
