//! The section `redis`: what the URL of the store does not say.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use sluicegate::rules::file::{Reader, Wrong};
use sluicegate::store::redis::{KeyEncoder, RedisOptions};

use crate::secret::Secret;

/// The keys of `redis`.
pub(crate) const REDIS_KEYS: &[&str] = &[
    "prefix",
    "keys",
    "key_secret",
    "max_connections",
    "connect_timeout",
    "read_timeout",
    "ca_file",
    "certificate_file",
    "key_file",
    "sentinel_user",
    "sentinel_password",
    "min_instances",
];
/// What keys may show of their subject.
pub(crate) const KEY_FORMS: &[(&str, KeyForm)] = &[("plain", KeyForm::Plain), ("hashed", KeyForm::Hashed)];
/// The most connections to one server. Calls share connections, so one is nearly always enough.
pub(crate) const CONNECTIONS_MAX: u64 = 64;
/// The most servers that anybody shares a limit among.
pub(crate) const INSTANCES_MAX: u64 = 100_000;
/// Timeouts, in milliseconds.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(1);
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// What keys show of their subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// The identifier.
    Plain,
    /// A hash of it.
    Hashed,
}

/// What the section says.
#[derive(Clone, Debug)]
pub(crate) struct RedisSettings {
    /// Names keys.
    pub(crate) encoder: KeyEncoder,
    /// Connections per server.
    max_connections: Option<NonZeroUsize>,
    connect_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
    /// The authorities to trust.
    pub(crate) ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub(crate) client_files: Option<(PathBuf, PathBuf)>,
    sentinel: Option<(Option<String>, Secret)>,
    /// How many servers there are at least, whatever their heartbeats say.
    pub(crate) min_instances: NonZeroU32,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            encoder: KeyEncoder::default(),
            max_connections: None,
            connect_timeout: None,
            read_timeout: None,
            ca_file: None,
            client_files: None,
            sentinel: None,
            min_instances: NonZeroU32::MIN,
        }
    }
}

impl RedisSettings {
    /// The options, with what the section says.
    pub(crate) fn refine(&self, mut options: RedisOptions) -> RedisOptions {
        if let Some(count) = self.max_connections {
            options = options.connections(count);
        }
        if let Some(timeout) = self.connect_timeout {
            options = options.connect_timeout(timeout);
        }
        if let Some(timeout) = self.read_timeout {
            options = options.read_timeout(timeout);
        }
        if let Some((user, password)) = &self.sentinel {
            options = options.sentinel_credentials(user.clone(), password.reveal().to_owned());
        }
        options
    }
}

/// Reads the section.
pub(crate) fn read(reader: &Reader<'_>) -> Option<RedisSettings> {
    let section = reader.section(REDIS_KEYS)?;
    let text = |key| section.optional(key, None, |value| value.text().map(Some));
    let path = |key| text(key).map(|path| path.map(PathBuf::from));
    let time = |key| section.optional(key, None, |value| timeout(value).map(Some));
    let encoder = section.optional("prefix", KeyEncoder::default(), |prefix| prefix.text_as(encoder));
    let form = section.optional("keys", KeyForm::Plain, |form| form.choice(KEY_FORMS));
    let secret_text = |key| section.optional(key, None, |value| value.secret().map(Some));
    let secret = secret_text("key_secret");
    let connections = section.optional("max_connections", None, |count| {
        Some(NonZeroUsize::new(usize::try_from(count.integer(1..=CONNECTIONS_MAX)?).ok()?))
    });
    let (connect_timeout, read_timeout) = (time("connect_timeout"), time("read_timeout"));
    let (ca_file, certificate, key) = (path("ca_file"), path("certificate_file"), path("key_file"));
    let (user, password) = (text("sentinel_user"), secret_text("sentinel_password"));
    let instances = section.optional("min_instances", NonZeroU32::MIN, |count| {
        NonZeroU32::new(u32::try_from(count.integer(1..=INSTANCES_MAX)?).ok()?)
    });
    let client_files = certificate
        .zip(key)
        .and_then(|(certificate, key)| both(reader, ("certificate_file", certificate), ("key_file", key)));
    let sentinel = user.zip(password).and_then(|(user, password)| sentinel(reader, user, password));
    let named =
        form.zip(secret).and_then(|(form, secret)| named(reader, encoder.unwrap_or_default(), form, secret));
    Some(RedisSettings {
        encoder: named?,
        max_connections: connections?,
        connect_timeout: connect_timeout?,
        read_timeout: read_timeout?,
        ca_file: ca_file?,
        client_files: client_files?,
        sentinel: sentinel?,
        min_instances: instances?,
    })
}

fn encoder(prefix: &str) -> Result<KeyEncoder, Wrong> {
    let remedy = "use 1 to 32 letters, digits, or -._: for example sg";
    KeyEncoder::new(prefix).map_err(|_| Wrong::new("this cannot begin a key", remedy))
}

fn timeout(reader: &Reader<'_>) -> Option<Duration> {
    let timeout = Duration::from_micros(reader.duration()?.as_micros());
    if (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout) {
        return Some(timeout);
    }
    reader.refuse(Wrong::new("out of range", "use 1ms to 60s, for example 1s"))
}

/// Keys are named as `form` says; a secret only makes sense where there is something to hash.
fn named(reader: &Reader<'_>, encoder: KeyEncoder, form: KeyForm, secret: Option<String>) -> Option<KeyEncoder> {
    match (form, secret) {
        (KeyForm::Plain, None) => Some(encoder),
        (KeyForm::Hashed, secret) => Some(encoder.hashed(secret.as_deref().map(str::as_bytes))),
        (KeyForm::Plain, Some(_)) => {
            let remedy = "write `keys: hashed` too, or leave `key_secret` out";
            reader.report_as(Wrong::new("`key_secret` without hashed keys", remedy), None);
            None
        }
    }
}

fn both<T>(reader: &Reader<'_>, one: (&str, Option<T>), other: (&str, Option<T>)) -> Option<Option<(T, T)>> {
    match (one, other) {
        ((_, Some(one)), (_, Some(other))) => Some(Some((one, other))),
        ((_, None), (_, None)) => Some(None),
        ((given, Some(_)), (missing, None)) | ((missing, None), (given, Some(_))) => {
            let remedy = format!("write `{missing}` too: a certificate is nothing without its key");
            reader.report_as(Wrong::new(format!("`{given}` stands alone"), remedy), None);
            None
        }
    }
}

fn sentinel(
    reader: &Reader<'_>,
    user: Option<String>,
    password: Option<String>,
) -> Option<Option<(Option<String>, Secret)>> {
    match (user, password) {
        (user, Some(password)) => Some(Some((user, Secret::new(password)))),
        (None, None) => Some(None),
        (Some(_), None) => {
            let remedy = "write `sentinel_password` too, for example \"${SENTINEL_PASSWORD}\"";
            reader.report_as(Wrong::new("`sentinel_user` stands alone", remedy), None);
            None
        }
    }
}
