//! Certificate files: valid, invalid and replaced.

use sluicegate_testkit::redis_server::Certificates;
use std::fs;

use super::*;

fn files(certificates: &Certificates) -> TlsFiles {
    TlsFiles { certificate: certificates.server(), key: certificates.server_key(), clients: None }
}

fn refused(files: &TlsFiles) -> String {
    match Loaded::read(files, Alpn::Http) {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_certificate_with_its_key_is_accepted() {
    let certificates = Certificates::new();
    let loaded = Loaded::read(&files(&certificates), Alpn::Http).expect("good");
    assert_eq!(loaded.config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    let other = Loaded::read(&files(&certificates), Alpn::Off).expect("good");
    assert!(other.config.alpn_protocols.is_empty());
}

#[test]
fn errors_name_the_file_and_contain_no_key() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let good = files(&ours);
    let path = |path: &Path| path.display().to_string();

    let missing = TlsFiles { certificate: "no/such.pem".into(), ..good.clone() };
    let said = refused(&missing);
    assert!(said.starts_with("certificate_file no/such.pem: No such file"), "{said}");

    let swapped = TlsFiles { certificate: good.key.clone(), key: good.certificate.clone(), clients: None };
    let said = refused(&swapped);
    assert!(said.starts_with(&format!("certificate_file {}: no certificate in it;", path(&good.key))), "{said}");

    let no_key = TlsFiles { key: good.certificate.clone(), ..good.clone() };
    let said = refused(&no_key);
    assert!(said.starts_with(&format!("key_file {}: no private key in it;", path(&good.certificate))), "{said}");

    let mixed = TlsFiles { key: others.server_key(), ..good.clone() };
    let said = refused(&mixed);
    assert!(said.contains(&path(&mixed.key)) && said.ends_with("write a certificate and its own key"), "{said}");

    let secret = fs::read_to_string(others.server_key()).expect("a key");
    let line = secret.lines().nth(1).expect("a line of it");
    assert!(!said.contains(line), "{said}");
}

#[tokio::test(start_paused = true)]
async fn new_valid_files_take_effect_and_invalid_ones_do_not() {
    let (ours, next) = (Certificates::new(), Certificates::new());
    let tls = ListenerTls::open(files(&ours), Alpn::Http).expect("good");
    let before = tls.current();
    let mut seen = tls.0.clone();

    // Only one of the two is new, so they do not match and nothing changes.
    fs::copy(next.server(), ours.server()).expect("copied");
    // The files are real; the time between two looks is paused.
    for _ in 0..3 {
        sleep(LOOK_EVERY).await;
    }
    assert!(Arc::ptr_eq(&before, &tls.current()));
    fs::copy(next.server_key(), ours.server_key()).expect("copied");
    seen.changed().await.expect("still looked at");
    assert!(!Arc::ptr_eq(&before, &tls.current()));
}
