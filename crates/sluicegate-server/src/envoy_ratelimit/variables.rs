//! The environment variables of `envoyproxy/ratelimit`: supported ones, unsupported ones that are errors because users would miss
//! their effect, and ones without effect that are only reported.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use sluicegate::rules::envoy::EnvoyOptions;
use sluicegate::rules::file::Environment;

use super::headers;
use super::store;
use super::tracing_variables;
use crate::config::envoy_headers::EnvoyHeaders;
use crate::config::listeners::{ClientAuthorities, PrometheusListener, TlsFiles};
use crate::config::traces::TraceSettings;
use crate::settings::Listen;

/// The default subdirectory of `RUNTIME_ROOT`, instead of `RUNTIME_APPDIRECTORY`.
const APP_DIRECTORY: &str = "config";

/// Variables with an unsupported effect that users would miss.
const REFUSED: &[(&str, Wanted, &str)] = &[
    ("GRPC_UDS", Wanted::Anything, "a Unix socket is not supported; unset it, and set GRPC_PORT"),
    (
        "GRPC_CLIENT_TLS_SAN",
        Wanted::Anything,
        "the names in client certificates are not checked; unset it, and give the clients an authority of their own",
    ),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Wanted::Yes, "certificates are always verified; unset it"),
];

/// When such a variable has its effect.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Anything,
    Yes,
}

/// Variables without effect, because Sluicegate works differently. The documentation explains each.
const UNUSED: &[&str] = &[
    "CACHE_KEY_PREFIX",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "GRPC_MAX_CONNECTION_AGE",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "NEAR_LIMIT_RATIO",
    "PROMETHEUS_MAPPER_YAML",
    "PROTO",
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    "REDIS_PIPELINE_LIMIT",
    "REDIS_PIPELINE_WINDOW",
    "REDIS_POOL_SIZE",
    "RESPONSE_DYNAMIC_METADATA",
    "STATSD_HOST",
    "STATSD_PORT",
    "STATS_FLUSH_INTERVAL",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "USE_DOG_STATSD",
    "USE_DOG_STATSD_MOGRIFIERS",
];

/// Variables that ask for something else than the server does if they are true, or false.
const UNUSED_IF: &[(&str, bool)] =
    &[("RUNTIME_IGNOREDOTFILES", false), ("RUNTIME_WATCH_ROOT", false), ("USE_STATSD", true)];

/// The prefixes of variables that only a control plane gives a meaning.
const OF_XDS: &[&str] =
    &["CONFIG_GRPC_XDS_", "XDS_CLIENT_", "FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG"];

/// The prefix of variables that only a directory gives a meaning.
const OF_DIRECTORY: &str = "RUNTIME_";

/// The prefixes of whole families of such variables.
const UNUSED_STARTS: &[&str] = &["MEMCACHE_", "REDIS_PERSECOND"];

/// The source of the limits, which gives other variables their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceKind {
    /// A directory of files.
    Directory,
    /// A control plane that Sluicegate's own flag or variable names.
    Xds,
    /// A control plane that their variables name: the environment is one of `envoyproxy/ratelimit`, so its defaults apply.
    TheirXds,
}

/// The spellings of booleans in Go.
const YES: &[&str] = &["1", "t", "T", "true", "TRUE", "True"];
const NO: &[&str] = &["0", "f", "F", "false", "FALSE", "False"];

/// The settings of the variables.
#[derive(Clone)]
pub(super) struct Variables {
    pub(super) api: Option<String>,
    pub(super) gateway: Option<String>,
    pub(super) admin: Option<String>,
    /// May contain a password.
    pub(super) store: Option<String>,
    pub(super) redis_files: RedisFiles,
    pub(super) options: EnvoyOptions,
    pub(super) headers: EnvoyHeaders,
    /// The certificate of the api listener.
    pub(super) api_tls: Option<TlsFiles>,
    pub(super) prometheus: Option<PrometheusListener>,
    pub(super) traces: Option<TraceSettings>,
    /// Variables that are set and have no effect.
    pub(super) unused: Vec<String>,
}

/// The TLS settings of connections to Redis.
#[derive(Clone, Debug, Default)]
pub(super) struct RedisFiles {
    pub(super) authorities: Option<PathBuf>,
    /// The client certificate and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Variables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api, gateway, admin, options, .. } = self;
        write!(formatter, "variables of envoyproxy/ratelimit ({api:?}, {gateway:?}, {admin:?}, {options:?})")
    }
}

/// An unsupported variable; the error has a remedy and no value, which may be a secret.
#[derive(Debug, thiserror::Error)]
#[error("{name} of envoyproxy/ratelimit: {problem}")]
pub(crate) struct VariableError {
    name: &'static str,
    problem: String,
}

impl VariableError {
    pub(super) fn new(name: &'static str, problem: impl Into<String>) -> Self {
        Self { name, problem: problem.into() }
    }
}

impl Variables {
    /// Reads them.
    pub(super) fn read(environment: &Environment, kind: SourceKind) -> Result<Self, VariableError> {
        refuse(environment)?;
        check_config_type(environment, kind)?;
        let is_theirs = kind == SourceKind::TheirXds;
        let flag = |name| flag(environment, name);
        let options = EnvoyOptions {
            merge_domains: flag("MERGE_DOMAIN_CONFIG")?,
            is_shadow: flag("SHADOW_MODE")?,
            is_quota: flag("QUOTA_MODE")?,
        };
        let (traces, untraced) = tracing_variables::read(environment)?;
        let is_unused = |name: &&String| is_unused(environment, name, kind) || untraced == Some(name.as_str());
        let address = |host, port| address(environment, host, port, is_theirs);
        Ok(Self {
            api: address(("GRPC_HOST", "0.0.0.0"), ("GRPC_PORT", "8081"))?,
            gateway: address(("HOST", "0.0.0.0"), ("PORT", "8080"))?,
            // The admin listener can change settings.
            admin: address(("DEBUG_HOST", "127.0.0.1"), ("DEBUG_PORT", "6070"))?,
            store: store::url(environment)?,
            redis_files: redis_files(environment)?,
            options,
            headers: headers::read(environment)?,
            api_tls: api_tls(environment)?,
            prometheus: prometheus(environment)?,
            traces,
            unused: environment.keys().filter(is_unused).cloned().collect(),
        })
    }
}

/// The directory from `RUNTIME_ROOT` and the related variables.
pub(super) fn directory(environment: &Environment) -> Option<PathBuf> {
    let root = PathBuf::from(text(environment, "RUNTIME_ROOT")?);
    let below = text(environment, "RUNTIME_SUBDIRECTORY").map_or(root.clone(), |below| root.join(below));
    Some(below.join(text(environment, "RUNTIME_APPDIRECTORY").unwrap_or(APP_DIRECTORY)))
}

/// The value of a variable; an empty one counts as unset.
pub(super) fn text<'e>(environment: &'e Environment, name: &str) -> Option<&'e str> {
    environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// Whether a variable is true.
pub(super) fn flag(environment: &Environment, name: &'static str) -> Result<bool, VariableError> {
    flag_or(environment, name, false)
}

/// Whether a variable is true; `usual` if it is unset.
pub(super) fn flag_or(environment: &Environment, name: &'static str, usual: bool) -> Result<bool, VariableError> {
    match text(environment, name) {
        None => Ok(usual),
        Some(value) if YES.contains(&value) => Ok(true),
        Some(value) if NO.contains(&value) => Ok(false),
        Some(_) => Err(VariableError::new(name, "use true or false")),
    }
}

/// Whether their variables name a control plane.
pub(super) fn chooses_xds(environment: &Environment) -> bool {
    text(environment, CONFIG_TYPE).is_some_and(|kind| kind.eq_ignore_ascii_case(XDS_TYPE))
}

/// The source of the limits in their variables, and its value for a control plane.
const CONFIG_TYPE: &str = "CONFIG_TYPE";
const XDS_TYPE: &str = "GRPC_XDS_SOTW";

/// An unknown source is an error, and so is a control plane beside a directory that Sluicegate's own settings name.
fn check_config_type(environment: &Environment, kind: SourceKind) -> Result<(), VariableError> {
    let problem = match text(environment, CONFIG_TYPE) {
        Some(written) if written.eq_ignore_ascii_case(XDS_TYPE) && kind == SourceKind::Directory => {
            "a control plane and a directory are both set; unset this one or the directory"
        }
        Some(written) if !written.eq_ignore_ascii_case(XDS_TYPE) && !written.eq_ignore_ascii_case("FILE") => {
            "use FILE or GRPC_XDS_SOTW"
        }
        _ => return Ok(()),
    };
    Err(VariableError::new(CONFIG_TYPE, problem))
}

/// Whether a variable is set and has no effect with limits from this source.
fn is_unused(environment: &Environment, name: &str, kind: SourceKind) -> bool {
    let Some(value) = text(environment, name) else { return false };
    let starts = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    let is_directory = kind == SourceKind::Directory;
    let differs = |(known, asks): &(&str, bool)| *known == name && if *asks { YES } else { NO }.contains(&value);
    UNUSED.contains(&name)
        || starts(UNUSED_STARTS)
        || (is_directory && starts(OF_XDS))
        || (UNUSED_IF.iter().any(differs) && (is_directory || !name.starts_with(OF_DIRECTORY)))
}

fn refuse(environment: &Environment) -> Result<(), VariableError> {
    for (name, wanted, problem) in REFUSED {
        if text(environment, name).is_none() {
            continue;
        }
        let is_wanted = match wanted {
            Wanted::Anything => true,
            Wanted::Yes => flag(environment, name)?,
        };
        if is_wanted {
            return Err(VariableError::new(name, *problem));
        }
    }
    Ok(())
}

type Named = (&'static str, &'static str);

/// The address of a listener, if one of the two variables is set, or always with `is_on`; each has a default.
fn address(
    environment: &Environment,
    host: Named,
    port: Named,
    is_on: bool,
) -> Result<Option<String>, VariableError> {
    let (given_host, given_port) = (text(environment, host.0), text(environment, port.0));
    if given_host.is_none() && given_port.is_none() && !is_on {
        return Ok(None);
    }
    let number = given_port.unwrap_or(port.1);
    if number.parse::<u16>().is_err() {
        return Err(VariableError::new(port.0, format!("use a port from 0 to 65535, for example {}", port.1)));
    }
    let name = given_host.unwrap_or(host.1);
    let address = if name.contains(':') { format!("[{name}]:{number}") } else { format!("{name}:{number}") };
    match Listen::parse(&address, &format!("{}:{}", host.1, port.1)) {
        Ok(_) => Ok(Some(address)),
        Err(error) => Err(VariableError::new(host.0, error.to_string())),
    }
}

fn redis_files(environment: &Environment) -> Result<RedisFiles, VariableError> {
    let client = certificate_and_key(environment, ("REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY"))?;
    Ok(RedisFiles { authorities: path(environment, "REDIS_TLS_CACERT"), client })
}

fn path(environment: &Environment, name: &str) -> Option<PathBuf> {
    text(environment, name).map(PathBuf::from)
}

/// The files of two variables, which need each other.
pub(super) fn certificate_and_key(
    environment: &Environment,
    (certificate, key): (&'static str, &'static str),
) -> Result<Option<(PathBuf, PathBuf)>, VariableError> {
    match (path(environment, certificate), path(environment, key)) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(VariableError::new(key, "set it too: the certificate needs it")),
        (None, Some(_)) => Err(VariableError::new(certificate, "set it too: the key needs it")),
    }
}

/// The certificate of the api listener, and the authorities of client certificates.
///
/// `envoyproxy/ratelimit` requires a client certificate with `GRPC_CLIENT_TLS_CACERT` and ignores
/// `GRPC_SERVER_TLS_CA_CERT`, which Envoy Gateway sets. The latter may not require certificates here either, because a fleet
/// that has worked without them would be cut off; those that clients present are verified.
fn api_tls(environment: &Environment) -> Result<Option<TlsFiles>, VariableError> {
    const NAMES: (&str, &str) = ("GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY");
    if !flag(environment, "GRPC_SERVER_USE_TLS")? {
        return Ok(None);
    }
    let files = certificate_and_key(environment, NAMES)?;
    let missing =
        || VariableError::new(NAMES.0, "set it, and GRPC_SERVER_TLS_KEY: GRPC_SERVER_USE_TLS needs both");
    let (certificate, key) = files.ok_or_else(missing)?;
    let required = path(environment, "GRPC_CLIENT_TLS_CACERT").map(|file| (file, true));
    let optional = || path(environment, "GRPC_SERVER_TLS_CA_CERT").map(|file| (file, false));
    let clients = required.or_else(optional).map(|(file, is_required)| ClientAuthorities { file, is_required });
    Ok(Some(TlsFiles { certificate, key, clients }))
}

/// The listener for metrics alone. As in Go, an address without a host means all of them.
fn prometheus(environment: &Environment) -> Result<Option<PrometheusListener>, VariableError> {
    const ADDRESS: &str = "PROMETHEUS_ADDR";
    const PATH: &str = "PROMETHEUS_PATH";
    if !flag(environment, "USE_PROMETHEUS")? {
        return Ok(None);
    }
    let written = text(environment, ADDRESS).unwrap_or(":9090");
    let address = match written.strip_prefix(':').map(str::parse) {
        Some(Ok(port)) => Ok(Listen::At(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))),
        Some(Err(_)) => {
            Err(format!("`{}` has no port from 0 to 65535; give for example :9090", written.escape_debug()))
        }
        None => Listen::parse(written, "0.0.0.0:9090").map_err(|error| error.to_string()),
    };
    let address = address.map_err(|problem| VariableError::new(ADDRESS, problem))?;
    let path = text(environment, PATH).unwrap_or("/metrics");
    let is_path =
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte));
    if !is_path {
        return Err(VariableError::new(PATH, "use a path such as /metrics: letters, digits, / - _ and ."));
    }
    Ok(Some(PrometheusListener { address, path: path.to_owned() }))
}
