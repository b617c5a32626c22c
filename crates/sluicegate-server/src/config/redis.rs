//! The section `redis`: options of the shared store that its URL does not contain.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use sluicegate::rules::file::field::{
    Absent, Choice, Constraint, Custom, Field, Form, Integer, Mapping, Shape, Text,
};
use sluicegate::rules::file::{self, Reader, Section, ValueError};
use sluicegate::store::redis::key::PREFIX_BYTES_MAX;
use sluicegate::store::redis::{KeyEncoder, RedisOptions};

use super::{PATH, PLAIN_TEXT, SECRET_TEXT};
use crate::secret::Secret;

/// The section.
pub(super) static REDIS: Mapping = Mapping {
    doc: "Settings of the shared store in Redis or Valkey that its URL does not contain.",
    fields: &[
        &PREFIX,
        &KEYS,
        &KEY_SECRET,
        &MAX_CONNECTIONS,
        &CONNECT_TIMEOUT,
        &READ_TIMEOUT,
        &CA_FILE,
        &CERTIFICATE_FILE,
        &KEY_FILE,
        &SENTINEL_USER,
        &SENTINEL_PASSWORD,
        &MIN_INSTANCES,
    ],
    constraints: &[
        Constraint::Needs("certificate_file", "key_file"),
        Constraint::Needs("key_file", "certificate_file"),
        Constraint::Needs("sentinel_user", "sentinel_password"),
        Constraint::Needs("key_secret", "keys"),
    ],
};

static PREFIX: Field<Text<KeyEncoder>> = Field {
    key: "prefix",
    doc: "The beginning of every key. Servers share limits only if they have the same prefix.",
    kind: Text {
        parse: encoder,
        form: || {
            let pattern = format!("^[A-Za-z0-9._:-]{{1,{PREFIX_BYTES_MAX}}}$");
            Form::Text(Shape::matching("1 to 32 of `A-Z a-z 0-9 . _ - :`", pattern))
        },
    },
    absent: Absent::Default("sg"),
    examples: &[],
};

static KEYS: Field<Choice<KeyForm>> = Field {
    key: "keys",
    doc: "Whether keys contain identifiers, or only a hash of them.",
    kind: Choice(&[("plain", KeyForm::Plain), ("hashed", KeyForm::Hashed)]),
    absent: Absent::Default("plain"),
    examples: &[],
};

static KEY_SECRET: Field<Custom<String>> = Field {
    key: "key_secret",
    doc: "The key of these hashes, the same on every server. Without it the hash of a guessed identifier reveals it.",
    kind: SECRET_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["\"${KEY_SECRET}\""],
};

static MAX_CONNECTIONS: Field<Integer<NonZeroUsize>> = Field {
    key: "max_connections",
    doc: "Connections to each server. Calls are pipelined, so one is nearly always enough.",
    kind: Integer { min: 1, max: 64, convert: |count| NonZeroUsize::new(usize::try_from(count).ok()?) },
    absent: Absent::Nothing("1"),
    examples: &["1"],
};

static CONNECT_TIMEOUT: Field<file::field::Duration> = Field {
    key: "connect_timeout",
    doc: "The longest time for a connection attempt, including TLS and authentication.",
    kind: TIMEOUT,
    absent: Absent::Nothing("1s"),
    examples: &["1s"],
};

static READ_TIMEOUT: Field<file::field::Duration> = Field {
    key: "read_timeout",
    doc: "The longest time for replies that no request waits for. The `deadline` of the rules bounds the others.",
    kind: TIMEOUT,
    absent: Absent::Nothing("1s"),
    examples: &["1s"],
};

static CA_FILE: Field<Custom<PathBuf>> = Field {
    key: "ca_file",
    doc: "Certificate authorities that the server trusts instead of the system's, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("the system's"),
    examples: &["ca.pem"],
};

static CERTIFICATE_FILE: Field<Custom<PathBuf>> = Field {
    key: "certificate_file",
    doc: "The client certificate chain, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("none"),
    examples: &["client.pem"],
};

static KEY_FILE: Field<Custom<PathBuf>> = Field {
    key: "key_file",
    doc: "The private key of the client certificate, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("none"),
    examples: &["client-key.pem"],
};

static SENTINEL_USER: Field<Custom<String>> = Field {
    key: "sentinel_user",
    doc: "The user name for the sentinels. The one in the URL is for the servers.",
    kind: PLAIN_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["sluicegate"],
};

static SENTINEL_PASSWORD: Field<Custom<String>> = Field {
    key: "sentinel_password",
    doc: "The password for the sentinels. The one in the URL is for the servers.",
    kind: SECRET_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["\"${SENTINEL_PASSWORD}\""],
};

static MIN_INSTANCES: Field<Integer<NonZeroU32>> = Field {
    key: "min_instances",
    doc: "The least number of servers that share the limits. While the store is unreachable, a rule with \
          `on_store_failure: local` gives each server its share. Heartbeats in Redis may show more servers.",
    kind: Integer { min: 1, max: INSTANCES_MAX, convert: |count| NonZeroU32::new(u32::try_from(count).ok()?) },
    absent: Absent::Default("1"),
    examples: &["1"],
};

const TIMEOUT: file::field::Duration = file::field::Duration {
    min: "1ms",
    max: "60s",
    remedy: |min, max| format!("use {min} to {max}, for example 1s"),
};

/// The most servers that share a limit.
pub(crate) const INSTANCES_MAX: u64 = 100_000;

/// How keys in Redis contain identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// As they are.
    Plain,
    /// As a hash.
    Hashed,
}

/// The options of the shared store.
#[derive(Clone, Debug)]
pub(crate) struct RedisSettings {
    /// Encodes keys.
    pub(crate) encoder: KeyEncoder,
    /// Connections per server.
    max_connections: Option<NonZeroUsize>,
    connect_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
    /// The certificate authorities; `None` means those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    /// The client certificate and its key.
    pub(crate) client_files: Option<(PathBuf, PathBuf)>,
    sentinel: Option<(Option<String>, Secret)>,
    /// The least number of servers for shares; heartbeats may raise it.
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
    /// Adds the options of this section to those of the URL.
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
pub(super) fn read(section: &Section<'_>) -> Option<RedisSettings> {
    let reader = section.reader();
    let encoder = section.read(&PREFIX);
    let form = section.read(&KEYS);
    let secret = section.read_optional(&KEY_SECRET);
    let connections = section.read_optional(&MAX_CONNECTIONS);
    let (connect_timeout, read_timeout) =
        (section.read_optional(&CONNECT_TIMEOUT), section.read_optional(&READ_TIMEOUT));
    let ca_file = section.read_optional(&CA_FILE);
    let (certificate, key) = (section.read_optional(&CERTIFICATE_FILE), section.read_optional(&KEY_FILE));
    let (user, password) = (section.read_optional(&SENTINEL_USER), section.read_optional(&SENTINEL_PASSWORD));
    let instances = section.read(&MIN_INSTANCES);
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

fn encoder(prefix: &str) -> Result<KeyEncoder, ValueError> {
    let remedy = "use 1 to 32 letters, digits, or -._: for example sg";
    KeyEncoder::new(prefix).map_err(|_| ValueError::new("this cannot begin a key", remedy))
}

/// Combines prefix, form and secret. A secret requires hashed keys.
fn named(reader: &Reader<'_>, encoder: KeyEncoder, form: KeyForm, secret: Option<String>) -> Option<KeyEncoder> {
    match (form, secret) {
        (KeyForm::Plain, None) => Some(encoder),
        (KeyForm::Hashed, secret) => Some(encoder.hashed(secret.as_deref().map(str::as_bytes))),
        (KeyForm::Plain, Some(_)) => {
            let remedy = "write `keys: hashed` too, or leave `key_secret` out";
            reader.report_as(ValueError::new("`key_secret` without hashed keys", remedy), None);
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
            reader.report_as(ValueError::new(format!("`{given}` stands alone"), remedy), None);
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
            reader.report_as(ValueError::new("`sentinel_user` stands alone", remedy), None);
            None
        }
    }
}
