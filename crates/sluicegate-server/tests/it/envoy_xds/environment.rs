//! The environment of Envoy Gateway's rate limit deployment, literally: its variables, the name of the binary, arguments that
//! are unknown, a user without rights and a read-only root. Only ports are free ones, through their own variables.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sluicegate_testkit::control_plane::ControlPlane;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::{Certificates, RedisServer};
use tempfile::TempDir;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::daily;
use super::gateway_certificates::GatewayCertificates;
use crate::client::{post, send};
use crate::server::{PATIENCE, Server};

/// What Envoy Gateway always sets, in its order. Names of hosts, ports and files are those of the test.
fn variables(plane: &ControlPlane, certificates: &GatewayCertificates, redis: &str) -> Vec<(String, String)> {
    let file = |name: &str| certificates.path(name).to_str().expect("text").to_owned();
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let server = plane.address().to_string().replace("127.0.0.1", "localhost");
    vec![
        set("RUNTIME_ROOT", "/data"),
        set("RUNTIME_SUBDIRECTORY", "ratelimit"),
        set("RUNTIME_IGNOREDOTFILES", "true"),
        set("RUNTIME_WATCH_ROOT", "false"),
        set("LOG_LEVEL", "info"),
        set("USE_STATSD", "false"),
        set("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        set("CONFIG_GRPC_XDS_SERVER_URL", &server),
        set("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        set("GRPC_SERVER_USE_TLS", "true"),
        set("GRPC_SERVER_TLS_CERT", &file("tls.crt")),
        set("GRPC_SERVER_TLS_KEY", &file("tls.key")),
        set("GRPC_SERVER_TLS_CA_CERT", &file("ca.crt")),
        set("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        set("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &file("tls.crt")),
        set("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &file("tls.key")),
        set("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &file("ca.crt")),
        set("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        set("REDIS_SOCKET_TYPE", "tcp"),
        set("REDIS_URL", redis),
        set("USE_PROMETHEUS", "true"),
        set("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
        set("TRACING_ENABLED", "true"),
        set("TRACING_SERVICE_NAME", "envoy-ratelimit"),
        set("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
        set("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-5d8"),
        set("TRACING_SAMPLING_RATE", "1.0"),
        set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        // The ports of the test, and another wait.
        set("GRPC_PORT", "0"),
        set("PORT", "0"),
        set("DEBUG_PORT", "0"),
        set("PROMETHEUS_ADDR", ":0"),
        set("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "20ms"),
    ]
}

/// The binary under the name of the original, in a folder of its own.
fn binary() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ratelimit");
    fs::hard_link(env!("CARGO_BIN_EXE_sluicegate"), &path)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_sluicegate"), &path).map(drop))
        .expect("a copy");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    (folder, path)
}

/// The user of Envoy Gateway, as far as the rights of the test allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confinement {
    /// Another user, without any right, with everything mounted read-only.
    ReadOnly,
    /// Another user, without any right.
    User,
    /// None: the test has no right to change the user.
    None,
}

const AS_USER: &str = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all \
                       --inh-caps=-all -- \"$@\"";

impl Confinement {
    /// The shell that starts a program under this confinement.
    fn shell(self, program: &Path) -> Command {
        let mut command = match self {
            Self::ReadOnly => Command::new("unshare"),
            Self::User | Self::None => Command::new("sh"),
        };
        match self {
            Self::ReadOnly => {
                let script = format!("mount -o remount,bind,ro / && {AS_USER}");
                command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"])
            }
            Self::User => command.args(["-c", AS_USER, "sh"]),
            Self::None => command.args(["-c", "exec \"$@\"", "sh"]),
        };
        command.arg(program);
        command
    }

    /// The strictest one that works here.
    fn strictest(program: &Path) -> Self {
        let works = |confinement: &Self| {
            let mut command = confinement.shell(program);
            command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        [Self::ReadOnly, Self::User].into_iter().find(works).unwrap_or(Self::None)
    }
}

/// A request over TLS 1.3 and HTTP/1.1 with the certificate of a client, if it has one. The first line of the response.
fn over_tls(address: SocketAddr, authority: &Path, client: Option<(PathBuf, PathBuf)>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(vec![certificate], key).expect("a pair")
        }
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"tls"}]}]}"#;
    let length = body.len();
    let head = "POST /json HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes())?;
    let mut response = String::new();
    // The peer closes the connection after the response, with or without a goodbye of TLS.
    let read = stream.read_to_string(&mut response);
    match response.lines().next() {
        Some(line) => Ok(line.to_owned()),
        None => Err(read.err().unwrap_or_else(|| std::io::Error::other("no response"))),
    }
}

#[test]
fn the_deployment_of_envoy_gateway_starts_and_works_as_it_is() {
    let (certificates, redis) = (GatewayCertificates::new(), RedisServer::start());
    certificates.open_to_all();
    let pem = |name: &str| fs::read(certificates.path(name)).expect("a file");
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(pem("gateway.crt"), pem("gateway.key")))
        .client_ca_root(Certificate::from_pem(pem("ca.crt")));
    let plane = ControlPlane::start_with(None, Some(tls));
    plane.push("1", &[daily("edge", 2)]);

    let (_folder, program) = binary();
    let confinement = Confinement::strictest(&program);
    // The output of the test tells how far the sandbox could go.
    println!("confinement: {confinement:?}");
    let mut command = confinement.shell(&program);
    command.args(["--quotaRateLimitServiceAddr=canary:1", "-config", "/etc/none.yaml"]).stdin(Stdio::null());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let redis_at = redis.url().replace("redis://", "");
    command.envs(variables(&plane, &certificates, &redis_at));
    let server = Server::start_command(command);
    plane.wait_for_ack("1");

    assert_eq!(server.listeners(), ["admin", "api", "gateway", "metrics"]);
    let lines = server.lines_to_ready().join("\n");
    assert!(lines.contains("--quotaRateLimitServiceAddr, -config, /etc/none.yaml") && !lines.contains("canary"));
    assert!(lines.contains("PROMETHEUS_MAPPER_YAML, TRACING_ENABLED"), "{lines}");
    assert!(server.address("api").ip().is_unspecified() && server.address("gateway").ip().is_unspecified());
    assert!(server.address("metrics").ip().is_unspecified() && server.address("admin").ip().is_loopback());
    let local = |name: &str| SocketAddr::from(([127, 0, 0, 1], server.address(name).port()));

    // The gRPC port has TLS. A client certificate is optional, and verified if there is one.
    let authority = certificates.path("ca.crt");
    let pair = (certificates.path("tls.crt"), certificates.path("tls.key"));
    let strange = Certificates::new();
    let status = |client| over_tls(local("api"), &authority, client);
    assert_eq!(status(Some(pair)).expect("a response"), "HTTP/1.1 200 OK");
    assert_eq!(status(None).expect("a response"), "HTTP/1.1 200 OK");
    assert_eq!(status(None).expect("a response"), "HTTP/1.1 429 Too Many Requests");
    let refused = status(Some((strange.client(), strange.client_key()))).expect_err("an unknown authority");
    assert!(refused.to_string().contains("UnknownCA") || refused.to_string().contains("reset"), "{refused}");
    let plain = TcpStream::connect(local("api")).and_then(|mut stream| {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    assert!(!plain.is_ok_and(|bytes| bytes.starts_with(b"HTTP")), "plain HTTP is not served");

    // Health, limits and metrics on the other ports.
    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let statuses = [0; 3].map(|_| post(local("gateway"), "/json", body).status);
    assert_eq!(statuses, [200, 200, 429]);
    let limits = send(server.address("admin"), "GET", "/rlconfig");
    let expected = "edge.user: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false\n";
    assert_eq!((limits.status, limits.body.as_str()), (200, expected));
    let metrics = send(local("metrics"), "GET", "/metrics");
    assert_eq!(metrics.status, 200);
    for line in [
        "ratelimit_service_rate_limit_over_limit{domain=\"edge\",key1=\"user\"} 2",
        "ratelimit_service_config_load_success 1",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 0",
        "sluicegate_envoy_xds_configured 1",
    ] {
        assert!(metrics.body.contains(&format!("\n{line}\n")), "{line} in {}", metrics.body);
    }
    assert!(metrics.body.contains("\nprocess_resident_memory_bytes "), "{}", metrics.body);
    assert_eq!(send(local("metrics"), "GET", "/readyz").status, 404, "metrics alone");
    // The probe does not fail with the store.
    assert_eq!(send(local("gateway"), "GET", "/healthcheck").status, 200);
    drop(redis);
    poll::until_true("the loss of the store", PATIENCE, || post(local("gateway"), "/json", body).status == 503);
    assert_eq!(send(local("gateway"), "GET", "/healthcheck").status, 200);

    server.signal("TERM");
    assert!(server.wait().status.success());
}
