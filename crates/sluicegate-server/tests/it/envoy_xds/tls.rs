//! TLS to the control plane: its certificate is verified, and it can verify that of the server.

use std::fs;
use std::path::Path;

use sluicegate_testkit::control_plane::ControlPlane;
use sluicegate_testkit::redis_server::Certificates;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::gateway_certificates::{GATEWAY_NAME, GatewayCertificates};
use super::{daily, start, status, wait_until};

fn pem(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a file")
}

fn identity(certificate: &Path, key: &Path) -> Identity {
    Identity::from_pem(pem(certificate), pem(key))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A control plane with the server's certificate of these.
fn plane(certificates: &Certificates) -> ControlPlane {
    let identity = identity(&certificates.server(), &certificates.server_key());
    let plane = ControlPlane::start_with(None, Some(ServerTlsConfig::new().identity(identity)));
    plane.push("1", &[daily("a", 1)]);
    plane
}

const TLS: (&str, &str) = ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true");
const AUTHORITIES: &str = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT";
const NAME: &str = "CONFIG_GRPC_XDS_SERVER_TLS_SAN";

#[test]
fn the_certificate_of_the_control_plane_is_verified() {
    let (good, other, expired) = (Certificates::new(), Certificates::new(), Certificates::expired());
    let plane_of = plane(&good);
    let authority = good.authority();
    let trusted = (AUTHORITIES, text(&authority));
    let server = start(&plane_of, &[TLS, trusted]);
    plane_of.wait_for_ack("1");
    assert_eq!((status(&server, "a", "ann"), status(&server, "a", "ann")), (200, 429));

    let refused = |plane: &ControlPlane, variables: &[(&str, &str)], reason: &str| {
        let before = plane.received().len();
        let server = start(plane, variables);
        let is_so =
            |shown: &serde_json::Value| shown["error"].as_str().is_some_and(|error| error.contains(reason));
        let shown = wait_until(&server, reason, is_so);
        assert_eq!((&shown["connected"], &shown["configured"]), (&false.into(), &false.into()), "{shown}");
        assert_eq!(plane.received().len(), before, "nothing is sent to it");
    };
    let another = other.authority();
    refused(&plane_of, &[TLS, (AUTHORITIES, text(&another))], "invalid peer certificate");
    refused(&plane_of, &[TLS, trusted, (NAME, "elsewhere.example")], "not valid for name");
    let (late, authority) = (plane(&expired), expired.authority());
    refused(&late, &[TLS, (AUTHORITIES, text(&authority))], "expired");
    // A control plane without TLS is refused, and so is one with TLS by a client without.
    let plain = ControlPlane::start();
    refused(&plain, &[TLS, trusted], "");
    refused(&plane_of, &[], "");
    refused(&plane_of, &[TLS, (AUTHORITIES, "/no/such/file")], "/no/such/file cannot be read");
}

/// As in Envoy Gateway: both sides show certificates of one authority, with keys in PKCS#1.
#[test]
fn the_control_plane_can_verify_the_server() {
    let certificates = GatewayCertificates::new();
    let authority = certificates.path("ca.crt");
    let tls = ServerTlsConfig::new()
        .identity(identity(&certificates.path("gateway.crt"), &certificates.path("gateway.key")))
        .client_ca_root(Certificate::from_pem(pem(&authority)));
    let plane = ControlPlane::start_with(None, Some(tls));
    plane.push("1", &[daily("a", 1)]);
    let (certificate, key) = (certificates.path("tls.crt"), certificates.path("tls.key"));
    let trusted = [TLS, (AUTHORITIES, text(&authority)), (NAME, GATEWAY_NAME)];

    let without = start(&plane, &trusted);
    wait_until(&without, "the refusal", |shown| shown["connected"] == false && !shown["error"].is_null());
    assert!(plane.received().is_empty(), "a client without a certificate is refused");
    drop(without);

    let client =
        [("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", text(&certificate)), ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", text(&key))];
    let server = start(&plane, &[&trusted[..], &client].concat());
    plane.wait_for_ack("1");
    assert_eq!((status(&server, "a", "ann"), status(&server, "a", "ann")), (200, 429));
}
