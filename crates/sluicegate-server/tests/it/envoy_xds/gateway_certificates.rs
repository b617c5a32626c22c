//! Certificates as Envoy Gateway makes them: one authority, a wildcard certificate for the rate limit service without an
//! extended key usage, and its RSA key in PKCS#1.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, SanType};
use tempfile::TempDir;

/// The files of one authority.
pub(crate) struct GatewayCertificates {
    folder: TempDir,
}

/// The host name of the certificate that stands for Envoy Gateway's own.
pub(crate) const GATEWAY_NAME: &str = "envoy-gateway";

impl GatewayCertificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(parameters, key()).expect("an authority");
        fs::write(folder.path().join("ca.crt"), authority.pem()).expect("written");
        for (name, host) in [("tls", "*.envoy-gateway-system"), ("gateway", GATEWAY_NAME)] {
            let mut parameters = CertificateParams::default();
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
            // The second name is for the clients of the tests: the first has too few parts for a wildcard, and Envoy does
            // not look at it.
            let names = [host, "localhost"].map(|name| SanType::DnsName(name.try_into().expect("a name")));
            parameters.subject_alt_names = names.into();
            let key = key();
            let certificate = parameters.signed_by(&key, &authority).expect("a certificate");
            fs::write(folder.path().join(name).with_extension("crt"), certificate.pem()).expect("written");
            fs::write(folder.path().join(name).with_extension("key"), pkcs1(&key)).expect("written");
        }
        Self { folder }
    }

    /// Lets every user read the files, as the mount of a Secret does.
    pub(crate) fn open_to_all(&self) {
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// A file of the folder as Envoy Gateway mounts it, with `ca.crt`, `tls.crt` and `tls.key`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a key")
}

/// The key in the form that begins with `BEGIN RSA PRIVATE KEY`.
fn pkcs1(key: &KeyPair) -> String {
    let wrapped = key.serialize_der();
    // PKCS#8 is a sequence of a version, an algorithm, and the key of PKCS#1 as the octets at its end. That key is a
    // sequence of more than 255 bytes, so that it begins with 30 82.
    let start = wrapped.windows(2).enumerate().skip(4).find(|(_, bytes)| *bytes == [0x30, 0x82]);
    let (start, _) = start.expect("the key within");
    let text = BASE64_STANDARD.encode(&wrapped[start..]);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n", lines.join("\n"))
}
