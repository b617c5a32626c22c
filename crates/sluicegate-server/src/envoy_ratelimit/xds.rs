//! The control plane of `CONFIG_TYPE=GRPC_XDS_SOTW`: its address, this server's name there, TLS and retries, from the
//! variables of `envoyproxy/ratelimit`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use rustls::pki_types::ServerName;
use sluicegate::rules::envoy::EnvoyOptions;
use sluicegate::rules::file::Environment;

use super::duration;
use super::variables::{VariableError, flag, flag_or, text};
use crate::settings::declared::ENVOY_XDS;

/// The largest message that a control plane may send unless a variable says otherwise: the default of gRPC.
const MESSAGE_BYTES_DEFAULT: usize = 4 << 20;
/// The largest value of that variable.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The most entries of `CONFIG_GRPC_XDS_NODE_METADATA` and of the additional header fields.
const PAIRS_MAX: usize = 64;
/// The longest waits between two attempts.
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);
/// One in the unit of [`Backoff::random_thousandths`].
pub(crate) const WHOLE: u64 = 1_000;

/// The connection to a control plane.
#[derive(Clone)]
pub(crate) struct XdsSettings {
    /// `HOST:PORT`.
    pub(crate) server: String,
    /// The name of this server, by which the control plane selects a configuration.
    pub(crate) node_id: String,
    /// Further attributes of this server.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Header fields of the call. May contain secrets.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// TLS, unless the connection is plain.
    pub(crate) tls: Option<XdsTls>,
    /// The waits between attempts.
    pub(crate) backoff: Backoff,
    /// The largest accepted message.
    pub(crate) message_bytes_max: usize,
    /// Whether the server serves before it has received a configuration.
    pub(crate) serves_without_configuration: bool,
    /// Whether `/healthcheck` fails until a configuration has arrived.
    pub(crate) is_healthy_without_configuration: bool,
    /// The options for the configuration.
    pub(crate) options: EnvoyOptions,
}

/// Header fields may be secrets, so only their names are shown.
impl fmt::Debug for XdsSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, node_id, tls, headers, backoff, .. } = self;
        let names: Vec<&HeaderName> = headers.iter().map(|(name, _)| name).collect();
        write!(formatter, "control plane {server} for {node_id} ({tls:?}, {names:?}, {backoff:?})")
    }
}

/// TLS to a control plane. The files are read for each connection, because certificates are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdsTls {
    /// The trusted certificate authorities; `None` means those of the system.
    pub(crate) authorities: Option<PathBuf>,
    /// The client certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    /// The name that the certificate of the control plane must have; `None` means its host name.
    pub(crate) server_name: Option<String>,
}

/// The waits between attempts to reach the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// The wait after a connection that worked.
    pub(crate) after_success: Duration,
    /// The first wait after a failed attempt; each further one is twice as long.
    pub(crate) initial: Duration,
    /// The longest wait.
    pub(crate) max: Duration,
    /// The share by which each wait is longer or shorter at random, in thousandths; 0 is none.
    pub(crate) random_thousandths: u64,
}

impl XdsSettings {
    /// The settings of the variables. `own` is the address of the command line or of Sluicegate's own variable.
    pub(super) fn read(
        own: Option<&str>,
        environment: &Environment,
        options: EnvoyOptions,
    ) -> Result<Self, VariableError> {
        const SERVER: &str = "CONFIG_GRPC_XDS_SERVER_URL";
        let (name, server) = match own {
            Some(own) => (ENVOY_XDS.variable, own),
            None => (SERVER, text(environment, SERVER).unwrap_or("localhost:18000")),
        };
        let flag_or = |name, usual| flag_or(environment, name, usual);
        let is_healthy = !flag_or("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", false)?;
        Ok(Self {
            server: server_of(name, server)?,
            node_id: text(environment, "CONFIG_GRPC_XDS_NODE_ID").unwrap_or("default").to_owned(),
            metadata: metadata(environment)?,
            headers: headers(environment)?,
            tls: tls(environment)?,
            backoff: Backoff::read(environment)?,
            message_bytes_max: message_bytes_max(environment)?,
            serves_without_configuration: flag_or("FORCE_START_WITHOUT_INITIAL_CONFIG", true)?,
            is_healthy_without_configuration: is_healthy,
            options,
        })
    }
}

impl Backoff {
    fn read(environment: &Environment) -> Result<Self, VariableError> {
        let interval = |name, usual| match text(environment, name) {
            None => Ok(Duration::from_secs(usual)),
            Some(written) => match duration::parse(written) {
                Some(interval) if !interval.is_zero() && interval <= INTERVAL_MAX => Ok(interval),
                _ => Err(VariableError::new(name, "use a duration from 1ms to 1h, for example 10s")),
            },
        };
        let is_random = flag_or(environment, "XDS_CLIENT_BACKOFF_JITTER", true)?;
        let factor = random_thousandths(environment)?;
        let initial = interval("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", 10)?;
        Ok(Self {
            after_success: interval("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", 3)?,
            initial,
            max: interval("XDS_CLIENT_BACKOFF_MAX_INTERVAL", 60)?.max(initial),
            random_thousandths: if is_random { factor } else { 0 },
        })
    }
}

/// The random factor: a decimal fraction from 0 to 1.
fn random_thousandths(environment: &Environment) -> Result<u64, VariableError> {
    const NAME: &str = "XDS_CLIENT_BACKOFF_RANDOM_FACTOR";
    let Some(written) = text(environment, NAME) else { return Ok(WHOLE / 2) };
    duration::decimal(written, WHOLE)
        .filter(|factor| *factor <= WHOLE)
        .ok_or_else(|| VariableError::new(NAME, "use a number from 0 to 1, for example 0.5"))
}

/// `HOST:PORT`, with or without the scheme of Go's resolver.
fn server_of(name: &'static str, written: &str) -> Result<String, VariableError> {
    let server = written.strip_prefix("dns:///").unwrap_or(written);
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@?#".contains(&byte))
    };
    let parts = server.rsplit_once(':').filter(|(host, port)| is_host(host) && port.parse::<u16>().is_ok());
    match parts {
        Some(_) if format!("http://{server}").parse::<axum::http::Uri>().is_ok() => Ok(server.to_owned()),
        _ => Err(VariableError::new(name, "give the control plane as HOST:PORT, for example envoy-gateway:18001")),
    }
}

fn message_bytes_max(environment: &Environment) -> Result<usize, VariableError> {
    const NAME: &str = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";
    let Some(written) = text(environment, NAME) else { return Ok(MESSAGE_BYTES_DEFAULT) };
    let bytes = written.parse().ok().filter(|bytes| (1..=MESSAGE_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| VariableError::new(NAME, format!("use a number of bytes from 1 to {MESSAGE_BYTES_MAX}")))
}

/// `key=value,key2=value2`.
fn metadata(environment: &Environment) -> Result<BTreeMap<String, String>, VariableError> {
    const NAME: &str = "CONFIG_GRPC_XDS_NODE_METADATA";
    let pairs = pairs(text(environment, NAME).unwrap_or_default(), '=');
    let pairs = pairs.ok_or_else(|| VariableError::new(NAME, "write key=value pairs with commas between them"))?;
    Ok(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// `name:value,name2:value2`.
fn headers(environment: &Environment) -> Result<Vec<(HeaderName, HeaderValue)>, VariableError> {
    const NAME: &str = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";
    let invalid = || VariableError::new(NAME, "write name:value pairs with commas between them, in visible ASCII");
    let pairs = pairs(text(environment, NAME).unwrap_or_default(), ':').ok_or_else(invalid)?;
    let field = |(name, value): (&str, &str)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let is_reserved = name.as_str().starts_with("grpc-") || name.as_str().ends_with("-bin");
        let mut value = HeaderValue::from_str(value).ok().filter(|value| value.to_str().is_ok())?;
        value.set_sensitive(true);
        (!is_reserved).then_some((name, value))
    };
    pairs.into_iter().map(field).collect::<Option<_>>().ok_or_else(invalid)
}

/// At most [`PAIRS_MAX`] pairs.
fn pairs(written: &str, between: char) -> Option<Vec<(&str, &str)>> {
    let items = written.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pairs: Option<Vec<(&str, &str)>> = items
        .map(|item| item.split_once(between).map(|(key, value)| (key.trim(), value.trim())))
        .map(|pair| pair.filter(|(key, _)| !key.is_empty()))
        .collect();
    pairs.filter(|pairs| pairs.len() <= PAIRS_MAX)
}

fn tls(environment: &Environment) -> Result<Option<XdsTls>, VariableError> {
    const SAN: &str = "CONFIG_GRPC_XDS_SERVER_TLS_SAN";
    if !flag(environment, "CONFIG_GRPC_XDS_SERVER_USE_TLS")? {
        return Ok(None);
    }
    let server_name = text(environment, SAN);
    if server_name.is_some_and(|name| ServerName::try_from(name).is_err()) {
        return Err(VariableError::new(
            SAN,
            "use a host name that the certificate has, for example envoy-gateway",
        ));
    }
    let names = ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY");
    Ok(Some(XdsTls {
        authorities: text(environment, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT").map(PathBuf::from),
        client: super::variables::certificate_and_key(environment, names)?,
        server_name: server_name.map(str::to_owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<XdsSettings, String> {
        let environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        XdsSettings::read(None, &environment, EnvoyOptions::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let settings = read(&[]).expect("defaults");
        assert_eq!((&*settings.server, &*settings.node_id), ("localhost:18000", "default"));
        let seconds = Duration::from_secs;
        let usual =
            Backoff { after_success: seconds(3), initial: seconds(10), max: seconds(60), random_thousandths: 500 };
        assert_eq!(settings.backoff, usual);
        assert_eq!((settings.tls, settings.message_bytes_max), (None, 4 << 20));
        assert!(settings.headers.is_empty() && settings.metadata.is_empty());
        assert!(settings.serves_without_configuration && settings.is_healthy_without_configuration);
    }

    #[test]
    fn every_variable_is_read() {
        let settings = read(&[
            ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///envoy-gateway:18001"),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a, rack=b=c"),
            ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "X-Token: canary,b:2:3"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "c"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "k"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "ca"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "control.example"),
            ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "1m30s"),
            ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "500ms"),
            ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "2s"),
            ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.25"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "1000"),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "false"),
            ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
        ])
        .expect("good");
        assert_eq!((&*settings.server, &*settings.node_id), ("envoy-gateway:18001", "envoy-ratelimit"));
        assert_eq!(
            settings.metadata,
            [("zone".into(), "a".into()), ("rack".into(), "b=c".into())].into_iter().collect()
        );
        assert_eq!(settings.headers[0].1, "canary");
        assert_eq!(settings.headers[1].1, "2:3");
        assert!(!format!("{settings:?}").contains("canary"));
        let tls = settings.tls.expect("TLS");
        assert_eq!(tls.client, Some(("c".into(), "k".into())));
        assert_eq!((tls.authorities, tls.server_name.as_deref()), (Some("ca".into()), Some("control.example")));
        let (ms, backoff) = (Duration::from_millis, settings.backoff);
        assert_eq!((backoff.after_success, backoff.initial, backoff.max), (ms(90_000), ms(500), ms(2_000)));
        assert_eq!((backoff.random_thousandths, settings.message_bytes_max), (250, 1_000));
        assert!(!settings.serves_without_configuration && !settings.is_healthy_without_configuration);
        let plain = read(&[("XDS_CLIENT_BACKOFF_JITTER", "false")]).expect("good").backoff;
        assert_eq!(plain.random_thousandths, 0);
    }

    #[test]
    fn invalid_values_name_the_variable_and_a_remedy() {
        let tls = ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true");
        let cases: [(&[(&str, &str)], &str); 11] = [
            (&[("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway")], "HOST:PORT"),
            (&[("CONFIG_GRPC_XDS_SERVER_URL", "http://envoy-gateway:1")], "HOST:PORT"),
            (&[("CONFIG_GRPC_XDS_SERVER_URL", "canary@gateway:1")], "HOST:PORT"),
            (&[("CONFIG_GRPC_XDS_NODE_METADATA", "zone")], "key=value"),
            (&[("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "canary")], "name:value"),
            (&[("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "grpc-timeout:1S")], "name:value"),
            (&[("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3")], "for example 10s"),
            (&[("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "1.5")], "from 0 to 1"),
            (&[("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "67108865")], "from 1 to 67108864"),
            (&[tls, ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "c")], "set it too"),
            (&[tls, ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "spiffe://x")], "a host name"),
        ];
        for (variables, expected) in cases {
            let error = read(variables).expect_err(expected);
            assert!(error.contains(expected) && !error.contains("canary"), "{error}");
        }
    }
}
