//! The options of a call: gRPC metadata, or header fields of `POST /json`.

use axum::http::{HeaderMap, HeaderName};

use super::parsed_request::{Charging, InvalidRequest};

/// The header field, or gRPC metadata, that says which hits of a call report usage.
const CHARGING: HeaderName = HeaderName::from_static("x-sluicegate-charge");
/// The same for the signals about exceeded limits that deny nothing.
const SIGNALS: HeaderName = HeaderName::from_static("x-sluicegate-signals");

/// The options of a call. Envoy sends them with `grpc_service.initial_metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallOptions {
    /// Which hits report usage.
    pub(crate) charging: Charging,
    /// Whether the request to the upstream gets header fields about exceeded limits that deny nothing.
    pub(crate) has_request_headers: bool,
}

impl CallOptions {
    /// The options of a call with these header fields.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, InvalidRequest> {
        let charging =
            choice(headers, &CHARGING, &[("always", Charging::Always), ("if_allowed", Charging::IfAllowed)]);
        let has_request_headers = choice(headers, &SIGNALS, &[("request_headers", true)]);
        Ok(Self {
            charging: charging?.unwrap_or_default(),
            has_request_headers: has_request_headers?.unwrap_or_default(),
        })
    }
}

/// The choice in a header field; `None` without the field.
fn choice<T: Copy>(
    headers: &HeaderMap,
    name: &HeaderName,
    all: &[(&str, T)],
) -> Result<Option<T>, InvalidRequest> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(InvalidRequest(format!("`{name}` is there more than once: send it once")));
    }
    let chosen = all.iter().find(|(known, _)| known.as_bytes() == value.as_bytes());
    chosen.map(|(_, choice)| Some(*choice)).ok_or_else(|| {
        let text = String::from_utf8_lossy(value.as_bytes());
        let shown = crate::problem::echo(&text).escape_debug();
        let known: Vec<String> = all.iter().map(|(known, _)| format!("`{known}`")).collect();
        InvalidRequest(format!("`{name}` is {shown}: use {}, or leave it out", known.join(" or ")))
    })
}
