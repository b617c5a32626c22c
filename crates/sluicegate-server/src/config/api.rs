//! `api`: the token, web origins and host names that the decision API accepts.

use std::net::IpAddr;

use axum::http::uri::Authority;
use sluicegate::rules::file::field::{Absent, Custom, Field, Form, Mapping, Shape};
use sluicegate::rules::file::{Reader, Section, ValueError};

use crate::brute_force::SECRET_BYTES_MIN;
use crate::secret::Secret;

/// The section.
pub(super) static API: Mapping =
    Mapping { doc: "Access to the decision API.", fields: &[&TOKEN, &ORIGINS, &HOSTS], constraints: &[] };

static TOKEN: Field<Custom<Secret>> = Field {
    key: "token",
    doc: "The bearer token that every request to the api listener must carry (`Authorization: Bearer …`), except health checks and forward-auth. Tokens that may [refund and reset](admin-api.md#roles) are accepted, too. Without a token the server logs a warning at start if other machines can reach the listener.",
    kind: Custom {
        read: read_token,
        form: || {
            let pattern = format!("^[!-~]{{{SECRET_BYTES_MIN},}}$");
            Form::Text(Shape::matching("text of at least 16 characters", pattern))
        },
    },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static ORIGINS: Field<Custom<Vec<Box<str>>>> = Field {
    key: "origins",
    doc: "Web origins with pages that may use the API. A request with another `Origin` gets 403, except for `/docs`, `/openapi.json` and forward-auth, where the proxy passes on the header of its client. The page at `/docs` may use the API if the server is addressed by an IP address or a name without a dot.",
    kind: Custom {
        read: |list| read_names(list, origin),
        form: || names("origins", "^[hH][tT][tT][pP][sS]?://[^/@]+$"),
    },
    absent: Absent::Default("[]"),
    examples: &["[https://app.example]"],
};

static HOSTS: Field<Custom<Vec<Box<str>>>> = Field {
    key: "hosts",
    doc: "The names by which clients may address the server, without ports. Another `Host` gets 421. Set it where browsers can reach the listener: it stops DNS rebinding.",
    kind: Custom { read: |list| read_names(list, host), form: || names("names and addresses", "^[^/@]+$") },
    absent: Absent::Nothing("any"),
    examples: &["[limits.example]"],
};

/// The most origins, and the most hosts.
const NAMES_MAX: usize = 100;

fn names(noun: &'static str, pattern: &str) -> Form {
    let item = Box::new(Form::Text(Shape::matching(noun, pattern)));
    Form::List { noun, item, min: 0, max: Some(NAMES_MAX), is_unique: false }
}

/// Access to the decision API.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiSettings {
    /// The bearer token that every request must carry; `None` requires none.
    pub(crate) token: Option<Secret>,
    /// Web origins with pages that may use the API, in lower case.
    pub(crate) origins: Vec<Box<str>>,
    /// Accepted values of `Host` without a port, in lower case; empty accepts all.
    pub(crate) hosts: Vec<Box<str>>,
}

/// Reads `api`.
pub(super) fn read(section: &Section<'_>) -> Option<ApiSettings> {
    let token = section.read_optional(&TOKEN);
    let origins = section.read(&ORIGINS);
    let hosts = section.read_optional(&HOSTS);
    Some(ApiSettings { token: token?, origins: origins?, hosts: hosts?.unwrap_or_default() })
}

fn read_token(reader: &Reader<'_>) -> Option<Secret> {
    let token = reader.secret()?;
    if token.len() >= SECRET_BYTES_MIN && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(Secret::new(token));
    }
    let remedy = format!(
        "use at least {SECRET_BYTES_MIN} characters of visible ASCII without spaces, such as the output of \
         `openssl rand -hex 32`, in a variable: ${{API_TOKEN}}"
    );
    reader.report_as(ValueError::new("a token that is too short, or that no header can carry", remedy), None);
    None
}

fn read_names(reader: &Reader<'_>, name: fn(&str) -> Result<Box<str>, ValueError>) -> Option<Vec<Box<str>>> {
    let items = reader.list("write a list")?;
    if items.len() > NAMES_MAX {
        return reader
            .refuse(ValueError::new(format!("{} entries", items.len()), format!("use at most {NAMES_MAX}")));
    }
    let names: Vec<Option<Box<str>>> = items.iter().map(|item| item.text_as(name)).collect();
    names.into_iter().collect()
}

/// An origin as browsers write it: scheme, host, and the port unless it is the scheme's own.
fn origin(text: &str) -> Result<Box<str>, ValueError> {
    let lower = text.to_ascii_lowercase();
    let authority = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
    let is_origin = authority.is_some_and(|authority| {
        !authority.contains(['@', '/']) && authority.parse::<Authority>().is_ok_and(|read| !read.host().is_empty())
    });
    if is_origin {
        return Ok(lower.into());
    }
    Err(ValueError::new(
        "not an origin",
        "write scheme, host and port as browsers do, without a path: https://app.example",
    ))
}

/// A host name or an address, without a port.
fn host(text: &str) -> Result<Box<str>, ValueError> {
    let lower = text.to_ascii_lowercase();
    let is_address = lower.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let is_name = lower.parse::<Authority>().is_ok_and(|read| read.host() == lower && !lower.contains('@'));
    if is_address || (is_name && !lower.is_empty()) {
        return Ok(lower.trim_start_matches('[').trim_end_matches(']').into());
    }
    Err(ValueError::new(
        "not a host",
        "write the name or the address that clients use, without a port: limits.example",
    ))
}
