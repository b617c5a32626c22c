//! `traces`: the OpenTelemetry collector, and the requests that are traced.

use std::path::PathBuf;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::rules::file::field::{
    Absent, Choice, Custom, Field, Form, Mapping, NO_CONTROL_CHARACTERS, Shape, Text,
};
use sluicegate::rules::file::{Reader, Section, ValueError};

use super::PATH;
use super::gateway::url::UpstreamUrl;
use super::log::SHARE_EXAMPLES;
use super::share::{SHARE, Share};

/// The section.
pub(super) static TRACES: Mapping = Mapping {
    doc: "Sends spans to an OpenTelemetry collector.",
    fields: &[&ENDPOINT, &HEADERS, &SAMPLE, &PARENTS, &SERVICE_NAME, &CA_FILE],
    constraints: &[],
};

static ENDPOINT: Field<Custom<String>> = Field {
    key: "endpoint",
    doc: "The address of the collector, which accepts OTLP over gRPC.",
    kind: Custom {
        read: read_endpoint,
        form: || Form::Text(Shape::matching("`http://HOST:PORT` or `https://HOST:PORT`", "^https?://[^/@?#]+$")),
    },
    absent: Absent::Nothing("`http://127.0.0.1:4317`"),
    examples: &["http://127.0.0.1:4317"],
};

static HEADERS: Field<Custom<HeaderMap>> = Field {
    key: "headers",
    doc: "Header fields for the collector, such as a token. No log shows the values.",
    kind: Custom {
        read: read_headers,
        form: || Form::Map {
            about: "mapping of names to texts",
            name: Box::new(Form::Text(Shape::matching("name", "^[A-Za-z0-9_.-]+$").literally())),
            value: Box::new(Form::Named("secret")),
            min: 0,
            max: Some(HEADERS_MAX),
        },
    },
    absent: Absent::Default("{}"),
    examples: &["{ authorization: \"Bearer ${OTLP_TOKEN}\" }"],
};

static SAMPLE: Field<Text<Share>> = Field {
    key: "sample",
    doc: "The share of requests without a trace context that are traced. Requests with one follow their parent.",
    kind: SHARE,
    absent: Absent::Nothing("`100%`"),
    examples: SHARE_EXAMPLES,
};

static PARENTS: Field<Choice<Parents>> = Field {
    key: "parents",
    doc: "The clients from which the server accepts a trace context. With `trusted_proxies` other clients cannot choose \
          what is traced.",
    kind: Choice(&[("anyone", Parents::Anyone), ("trusted_proxies", Parents::TrustedProxies)]),
    absent: Absent::Default("anyone"),
    examples: &[],
};

static SERVICE_NAME: Field<Text<String>> = Field {
    key: "service_name",
    doc: "The name of this service in traces.",
    kind: Text {
        parse: service_name,
        form: || {
            let shape = Shape::matching("1 to 128 characters", NO_CONTROL_CHARACTERS);
            Form::Text(shape.bounded(1, SERVICE_NAME_MAX))
        },
    },
    absent: Absent::Nothing("`sluicegate`"),
    examples: &[],
};

static CA_FILE: Field<Custom<PathBuf>> = Field {
    key: "ca_file",
    doc: "Certificate authorities that the server trusts instead of the system's, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("the system's"),
    examples: &["ca.pem"],
};

/// The most header fields for the collector: a token and a tenant, and some to spare.
const HEADERS_MAX: usize = 16;
/// The longest name of this service, in characters.
const SERVICE_NAME_MAX: usize = 128;

/// The clients from which the server accepts a trace context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Parents {
    /// Every client; a client then decides the sampling of its requests.
    #[default]
    Anyone,
    /// Only trusted proxies.
    TrustedProxies,
}

/// The options of the trace exporter.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceSettings {
    /// The URL of the collector: scheme, host and port.
    pub(crate) endpoint: Option<String>,
    /// Header fields for the collector; the values are marked sensitive.
    pub(crate) headers: HeaderMap,
    /// The share of requests without a trace context that are traced.
    pub(crate) sample: Option<Share>,
    /// The clients from which the server accepts a trace context.
    pub(crate) parents: Parents,
    /// The name of this service in traces.
    pub(crate) service_name: Option<String>,
    /// The certificate authorities; `None` means those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    /// True if a variable of `envoyproxy/ratelimit` turns traces off, whatever the standard variables say.
    pub(crate) is_off: bool,
    /// Further attributes of this service in traces, which only variables of `envoyproxy/ratelimit` set.
    pub(crate) attributes: Vec<(&'static str, String)>,
}

/// Reads `traces`.
pub(super) fn read(section: &Section<'_>) -> Option<TraceSettings> {
    let endpoint = section.read_optional(&ENDPOINT);
    let headers = section.read(&HEADERS);
    let sample = section.read_optional(&SAMPLE);
    let parents = section.read(&PARENTS);
    let service_name = section.read_optional(&SERVICE_NAME);
    let ca_file = section.read_optional(&CA_FILE);
    Some(TraceSettings {
        endpoint: endpoint?,
        headers: headers?,
        sample: sample?,
        parents: parents?,
        service_name: service_name?,
        ca_file: ca_file?,
        is_off: false,
        attributes: Vec::new(),
    })
}

/// Checks the URL of a collector.
pub(crate) fn check_endpoint(text: &str) -> Result<(), ValueError> {
    UpstreamUrl::parse(text).map(drop)
}

fn read_endpoint(reader: &Reader<'_>) -> Option<String> {
    let text = reader.text()?;
    match check_endpoint(&text) {
        Ok(()) => Some(text),
        // A URL with a user is invalid, but it may contain a password, so the message does not show it.
        Err(wrong) => {
            if text.contains('@') {
                reader.report_as(wrong, None);
            } else {
                reader.report(wrong);
            }
            None
        }
    }
}

fn read_headers(reader: &Reader<'_>) -> Option<HeaderMap> {
    let pairs = reader.pairs()?;
    if pairs.len() > HEADERS_MAX {
        let remedy = format!("use at most {HEADERS_MAX}");
        return reader.refuse(ValueError::new(format!("{} header fields", pairs.len()), remedy));
    }
    let mut headers = HeaderMap::new();
    let mut is_good = true;
    for pair in pairs {
        let (name, value) = (name_of(pair.name), read_value(&pair.value));
        if name.is_none() {
            let remedy = "use letters, digits, `-`, `_` and `.`, and no name of gRPC's own";
            pair.value
                .report_as(ValueError::new("a header field that cannot be sent to a collector", remedy), None);
        }
        match name.zip(value) {
            Some((name, value)) => _ = headers.insert(name, value),
            None => is_good = false,
        }
    }
    is_good.then_some(headers)
}

/// Rejects names that gRPC reserves, and `-bin` fields, which are not text.
fn name_of(text: &str) -> Option<HeaderName> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let name: HeaderName = text.bytes().all(is_plain).then(|| text.parse().ok())??;
    let is_reserved = name.as_str().starts_with("grpc-") || name.as_str().ends_with("-bin");
    let is_of_connection = matches!(name.as_str(), "content-type" | "te" | "host" | "user-agent" | "connection");
    (!is_reserved && !is_of_connection).then_some(name)
}

fn read_value(reader: &Reader<'_>) -> Option<HeaderValue> {
    let text = reader.secret()?;
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let Some(mut value) = HeaderValue::from_str(&text).ok().filter(|_| is_visible) else {
        reader.report_as(ValueError::new("a value that cannot be sent to a collector", "use visible ASCII"), None);
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

fn service_name(text: &str) -> Result<String, ValueError> {
    let is_name = !text.is_empty() && text.chars().count() <= SERVICE_NAME_MAX && !text.contains(char::is_control);
    match is_name {
        true => Ok(text.to_owned()),
        false => {
            let remedy = format!("use 1 to {SERVICE_NAME_MAX} characters, none of them a control character");
            Err(ValueError::new("not a name of a service", remedy))
        }
    }
}
