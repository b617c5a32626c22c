//! Certificates for TLS servers: a private authority, a server certificate and a client certificate.
//!
//! The server's certificate is for `localhost` and 127.0.0.1. All files are generated anew for each test, in a folder
//! that is removed with it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use tempfile::TempDir;

/// Whether a TLS server requests a certificate from its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// A client without a certificate is rejected.
    Required,
    /// The server does not request one.
    NotAsked,
}

/// The PEM files of one authority and of the certificates that it signed.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Valid certificates.
    pub fn new() -> Self {
        Self::until(2112)
    }

    /// The same, except that the server's certificate expired long ago.
    pub fn expired() -> Self {
        Self::until(2001)
    }

    /// The certificate that a client must trust.
    pub fn authority(&self) -> PathBuf {
        self.path("authority.crt")
    }

    /// The server's certificate.
    pub fn server(&self) -> PathBuf {
        self.path("server.crt")
    }

    /// The key of the server's certificate.
    pub fn server_key(&self) -> PathBuf {
        self.path("server.key")
    }

    /// A certificate for client authentication.
    pub fn client(&self) -> PathBuf {
        self.path("client.crt")
    }

    /// The key of the client's certificate.
    pub fn client_key(&self) -> PathBuf {
        self.path("client.key")
    }

    fn until(last_year_of_server: i32) -> Self {
        let folder = TempDir::new().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        write_all(folder.path(), last_year_of_server)
            .unwrap_or_else(|error| panic!("cannot make certificates: {error}"));
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn write_all(folder: &Path, last_year_of_server: i32) -> Result<(), Box<dyn std::error::Error>> {
    let authority = authority()?;
    fs::write(folder.join("authority.crt"), authority.pem())?;

    let mut server = named("server", ExtendedKeyUsagePurpose::ServerAuth);
    // The nodes of a cluster are also clients of each other.
    server.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    server.not_after = date_time_ymd(last_year_of_server, 1, 1);
    server.subject_alt_names =
        vec![SanType::DnsName("localhost".try_into()?), SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    write_signed(folder, "server", &server, &authority)?;

    let client = named("client", ExtendedKeyUsagePurpose::ClientAuth);
    write_signed(folder, "client", &client, &authority)
}

fn authority() -> Result<Authority, rcgen::Error> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, "authority of one test");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)
}

fn named(name: &str, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = date_time_ymd(2000, 1, 1);
    parameters.not_after = date_time_ymd(2112, 1, 1);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![purpose];
    parameters
}

fn write_signed(
    folder: &Path,
    name: &str,
    parameters: &CertificateParams,
    authority: &Authority,
) -> Result<(), Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, authority)?;
    fs::write(folder.join(name).with_extension("crt"), certificate.pem())?;
    fs::write(folder.join(name).with_extension("key"), key.serialize_pem())?;
    Ok(())
}
