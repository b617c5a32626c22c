//! The section `listen`: where each listener listens, and who gets in how.
//!
//! A listener is an address, or a mapping in which the address is one key among others. The address is kept as it was
//! typed, because the command line and the environment may say it too.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use sluicegate::identify::address::TrustedProxies;
use sluicegate::rules::file::tree::Kind;
use sluicegate::rules::file::{Reader, Section, Wrong};

use super::identity::read_proxies;
use crate::net::tls::TlsFiles;
use crate::settings::FileSettings;

/// The keys of `listen`.
pub(crate) const LISTEN_KEYS: &[&str] = &["gateway", "api", "admin", "resp"];
/// The keys of one listener.
pub(crate) const LISTENER_KEYS: &[&str] = &["address", "tls", "proxy_protocol", "max_connections_per_address"];
/// The keys of `tls`.
pub(crate) const TLS_KEYS: &[&str] = &["certificate_file", "key_file"];
/// The most connections of one address: more than any listener serves in all.
pub(crate) const PER_ADDRESS_MAX: u64 = 1_000_000;

/// What the section says.
#[derive(Debug, Default)]
pub(crate) struct ListenSettings {
    /// What the command line and the environment may say too.
    pub(crate) addresses: FileSettings,
    /// The rest, listener by listener.
    pub(crate) listeners: Listeners,
}

/// How each listener lets connections in.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) gateway: ListenerSettings,
    pub(crate) api: ListenerSettings,
    pub(crate) admin: ListenerSettings,
    pub(crate) resp: ListenerSettings,
}

/// How one listener lets connections in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerSettings {
    /// The certificate, if it speaks TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// The load balancers that must say who their client is.
    pub(crate) proxy_protocol: TrustedProxies,
    /// Connections of one address, if not the default.
    pub(crate) connections_per_address: Option<NonZeroU32>,
}

/// Reads the section.
pub(super) fn read(reader: &Reader<'_>) -> Option<ListenSettings> {
    let section = reader.section(LISTEN_KEYS)?;
    let listener = |key| section.optional(key, (None, ListenerSettings::default()), read_listener);
    let (gateway, api, admin, resp) = (listener("gateway"), listener("api"), listener("admin"), listener("resp"));
    let (gateway, api, admin, resp) = (gateway?, api?, admin?, resp?);
    Some(ListenSettings {
        addresses: FileSettings {
            store: None,
            database: None,
            gateway: gateway.0,
            api: api.0,
            admin: admin.0,
            resp: resp.0,
            has_admin_tokens: false,
        },
        listeners: Listeners { gateway: gateway.1, api: api.1, admin: admin.1, resp: resp.1 },
    })
}

fn read_listener(reader: &Reader<'_>) -> Option<(Option<String>, ListenerSettings)> {
    if !matches!(reader.node().kind, Kind::Mapping(_)) {
        return Some((Some(reader.text_as(listen_address)?), ListenerSettings::default()));
    }
    let section = reader.section(LISTENER_KEYS)?;
    let address = section.optional("address", None, |address| address.text_as(listen_address).map(Some));
    let tls = section.optional("tls", None, |tls| read_tls(&tls.section(TLS_KEYS)?).map(Some));
    let proxy_protocol = section.optional("proxy_protocol", TrustedProxies::default(), read_proxies);
    let per_address = section.optional("max_connections_per_address", None, |count| {
        Some(NonZeroU32::new(u32::try_from(count.integer(1..=PER_ADDRESS_MAX)?).ok()?))
    });
    let (tls, proxy_protocol, connections_per_address) = (tls?, proxy_protocol?, per_address?);
    Some((address?, ListenerSettings { tls, proxy_protocol, connections_per_address }))
}

fn read_tls(section: &Section<'_>) -> Option<TlsFiles> {
    let path = |key, example: &str| {
        let remedy = format!("name a file in PEM, for example {key}: {example}");
        let path = section.required(key, &remedy)?.text()?;
        Some(PathBuf::from(path))
    };
    let (certificate, key) = (path("certificate_file", "server.pem"), path("key_file", "server-key.pem"));
    Some(TlsFiles { certificate: certificate?, key: key? })
}

/// Checks the form of `HOST:PORT` or `off`; whether the host can be resolved and the port be had shows at
/// the start.
fn listen_address(text: &str) -> Result<String, Wrong> {
    if text == "off" || text.parse::<SocketAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = |host: &str| !host.is_empty() && host.bytes().all(is_name_byte);
    let is_digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let message = match text.rsplit_once(':') {
        Some((host, port)) if is_name(host) && is_digits(port) => match port.parse::<u16>() {
            Ok(_) => return Ok(text.to_owned()),
            Err(_) => "the port is out of range",
        },
        _ => "not an address",
    };
    if let Ok(port) = text.parse::<u16>() {
        let remedy =
            format!("write the host, too: 127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} for all");
        return Err(Wrong::new(message, remedy));
    }
    let remedy = "write HOST:PORT with a port from 0 to 65535, for example 127.0.0.1:8080 or [::1]:8080, or off";
    Err(Wrong::new(message, remedy))
}
