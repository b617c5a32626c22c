//! The section `listen`: address, TLS, PROXY protocol and connection cap of each listener.
//!
//! A listener is an address, or a mapping with the address as one of its keys. The address stays text, because flags
//! and environment variables can override it.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use sluicegate::authority::is_host_name;
use sluicegate::identify::address::TrustedProxies;
use sluicegate::rules::file::field::{Absent, Custom, Field, Form, Integer, Mapping, Nested, Text};
use sluicegate::rules::file::tree::Kind;
use sluicegate::rules::file::{Reader, Section, ValueError};

use super::networks::NETWORKS;
use super::{PATH, absent};
use crate::settings::{Listen, SettingValues, declared};

/// The section.
pub(super) static LISTEN: Mapping = Mapping {
    doc: "Addresses of the listeners. Flags and environment variables take precedence over them.",
    fields: &[&GATEWAY, &API, &ADMIN, &RESP],
    constraints: &[],
};

static GATEWAY: Field<Custom<(Option<String>, ListenerSettings)>> = Field {
    key: declared::GATEWAY.name,
    doc: declared::GATEWAY.doc,
    kind: LISTENER_OR_ADDRESS,
    absent: absent(&declared::GATEWAY),
    examples: &[declared::GATEWAY.example, "off"],
};

static API: Field<Custom<(Option<String>, ListenerSettings)>> = Field {
    key: declared::API.name,
    doc: declared::API.doc,
    kind: LISTENER_OR_ADDRESS,
    absent: absent(&declared::API),
    examples: &[declared::API.example, "off"],
};

static ADMIN: Field<Custom<(Option<String>, ListenerSettings)>> = Field {
    key: declared::ADMIN.name,
    doc: declared::ADMIN.doc,
    kind: LISTENER_OR_ADDRESS,
    absent: absent(&declared::ADMIN),
    examples: &[declared::ADMIN.example, "off"],
};

static RESP: Field<Custom<(Option<String>, ListenerSettings)>> = Field {
    key: declared::RESP.name,
    doc: declared::RESP.doc,
    kind: LISTENER_OR_ADDRESS,
    absent: absent(&declared::RESP),
    examples: &[declared::RESP.example, "off"],
};

const LISTENER_OR_ADDRESS: Custom<(Option<String>, ListenerSettings)> =
    Custom { read: read_listener, form: || Form::Any(vec![Form::Named("address"), Form::Named("listener")]) };

/// One listener in its long form.
pub(super) static LISTENER: Mapping = Mapping {
    doc: "A listener: its address, and the connections that it accepts.",
    fields: &[&ADDRESS, &TLS, &PROXY_PROTOCOL, &MAX_CONNECTIONS_PER_ADDRESS],
    constraints: &[],
};

static ADDRESS: Field<Text<String>> = Field {
    key: "address",
    doc: "The address that it listens on.",
    kind: Text { parse: listen_address, form: || Form::Named("address") },
    absent: Absent::Nothing("as above"),
    examples: &["0.0.0.0:8443", "off"],
};

static TLS: Field<Nested<TlsFiles>> = Field {
    key: "tls",
    doc: "The certificate. With one the listener requires TLS 1.2 or 1.3, and negotiates HTTP/2 and HTTP/1.1.",
    kind: Nested { mapping: &LISTENER_TLS, read: read_tls },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static PROXY_PROTOCOL: Field<Custom<TrustedProxies>> = Field {
    key: "proxy_protocol",
    doc: "Load balancers that begin every connection with a PROXY header of version 2.",
    kind: NETWORKS,
    absent: Absent::Default("[]"),
    examples: &["[10.0.0.0/8, \"2001:db8::/32\"]"],
};

static MAX_CONNECTIONS_PER_ADDRESS: Field<Integer<NonZeroU32>> = Field {
    key: "max_connections_per_address",
    doc: "The most connections of one client address, or of one /64 of IPv6. Loopback and trusted proxies have no such bound.",
    kind: Integer { min: 1, max: PER_ADDRESS_MAX, convert: |count| NonZeroU32::new(u32::try_from(count).ok()?) },
    absent: Absent::Nothing("1024, and at most half of the listener's"),
    examples: &["1024"],
};

/// The certificate of a listener.
pub(super) static LISTENER_TLS: Mapping =
    Mapping { doc: "The certificate, for TLS.", fields: &[&CERTIFICATE_FILE, &KEY_FILE], constraints: &[] };

static CERTIFICATE_FILE: Field<Custom<PathBuf>> = Field {
    key: "certificate_file",
    doc: "The certificate chain in PEM, beginning with the certificate of the server.",
    kind: PATH,
    absent: Absent::Required("name a file in PEM, for example certificate_file: server.pem"),
    examples: &["server.pem"],
};

static KEY_FILE: Field<Custom<PathBuf>> = Field {
    key: "key_file",
    doc: "The private key of the certificate, in PEM.",
    kind: PATH,
    absent: Absent::Required("name a file in PEM, for example key_file: server-key.pem"),
    examples: &["server-key.pem"],
};

/// The most connections of one address: more than any listener serves in all.
const PER_ADDRESS_MAX: u64 = 1_000_000;

/// The options of all listeners.
#[derive(Debug, Default)]
pub(crate) struct ListenSettings {
    /// Addresses, which flags and environment variables can override.
    pub(crate) addresses: SettingValues,
    /// The other options.
    pub(crate) listeners: Listeners,
}

/// TLS, PROXY protocol and connection caps of all listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) gateway: ListenerSettings,
    pub(crate) api: ListenerSettings,
    pub(crate) admin: ListenerSettings,
    pub(crate) resp: ListenerSettings,
    /// The listener for metrics alone, which only variables of `envoyproxy/ratelimit` enable.
    pub(crate) prometheus: Option<PrometheusListener>,
}

/// A listener for metrics alone, without a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrometheusListener {
    pub(crate) address: Listen,
    /// The path of the metrics.
    pub(crate) path: String,
}

/// TLS, PROXY protocol and connection cap of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerSettings {
    /// The certificate; `None` means no TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// Load balancers that must begin each connection with a PROXY header.
    pub(crate) proxy_protocol: TrustedProxies,
    /// The most connections of one address; `None` is the default.
    pub(crate) connections_per_address: Option<NonZeroU32>,
}

/// The files with the certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The chain in PEM, the listener's own certificate first.
    pub(crate) certificate: PathBuf,
    /// Its private key in PEM.
    pub(crate) key: PathBuf,
    /// The authorities of client certificates; `None` asks clients for none.
    pub(crate) clients: Option<ClientAuthorities>,
}

/// The certificate authorities that sign the certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientAuthorities {
    /// Their certificates in PEM.
    pub(crate) file: PathBuf,
    /// Whether a client without a certificate is refused. One that is presented is always verified.
    pub(crate) is_required: bool,
}

/// Reads the section.
pub(super) fn read(section: &Section<'_>) -> Option<ListenSettings> {
    let listener = |field| Some(section.read_optional(field)?.unwrap_or_default());
    let (gateway, api, admin, resp) = (listener(&GATEWAY), listener(&API), listener(&ADMIN), listener(&RESP));
    let (gateway, api, admin, resp) = (gateway?, api?, admin?, resp?);
    Some(ListenSettings {
        addresses: SettingValues::default()
            .with(&declared::GATEWAY, gateway.0)
            .with(&declared::API, api.0)
            .with(&declared::ADMIN, admin.0)
            .with(&declared::RESP, resp.0),
        listeners: Listeners { gateway: gateway.1, api: api.1, admin: admin.1, resp: resp.1, prometheus: None },
    })
}

fn read_listener(reader: &Reader<'_>) -> Option<(Option<String>, ListenerSettings)> {
    if !matches!(reader.node().kind, Kind::Mapping(_)) {
        return Some((Some(reader.text_as(listen_address)?), ListenerSettings::default()));
    }
    let section = reader.mapping(&LISTENER)?;
    let address = section.read_optional(&ADDRESS);
    let tls = section.read_optional(&TLS);
    let proxy_protocol = section.read(&PROXY_PROTOCOL);
    let connections_per_address = section.read_optional(&MAX_CONNECTIONS_PER_ADDRESS);
    let (tls, proxy_protocol) = (tls?, proxy_protocol?);
    let connections_per_address = connections_per_address?;
    Some((address?, ListenerSettings { tls, proxy_protocol, connections_per_address }))
}

fn read_tls(section: &Section<'_>) -> Option<TlsFiles> {
    let (certificate, key) = (section.read(&CERTIFICATE_FILE), section.read(&KEY_FILE));
    Some(TlsFiles { certificate: certificate?, key: key?, clients: None })
}

/// Checks the form of `HOST:PORT` or `off`. Name resolution and binding happen at the start of the server.
fn listen_address(text: &str) -> Result<String, ValueError> {
    if text == "off" || text.parse::<SocketAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    let is_digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let message = match text.rsplit_once(':') {
        Some((host, port)) if is_host_name(host) && is_digits(port) => match port.parse::<u16>() {
            Ok(_) => return Ok(text.to_owned()),
            Err(_) => "the port is out of range",
        },
        _ => "not an address",
    };
    if let Ok(port) = text.parse::<u16>() {
        let remedy =
            format!("write the host, too: 127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} for all");
        return Err(ValueError::new(message, remedy));
    }
    let remedy = "write HOST:PORT with a port from 0 to 65535, for example 127.0.0.1:8080 or [::1]:8080, or off";
    Err(ValueError::new(message, remedy))
}
