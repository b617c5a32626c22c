//! Traces in the variables of `envoyproxy/ratelimit`: `TRACING_ENABLED` and the settings of spans.

use sluicegate::rules::file::Environment;

use super::variables::{VariableError, flag, text};
use crate::config::share::Share;
use crate::config::traces::TraceSettings;

/// The name of the service in traces of `envoyproxy/ratelimit`.
const SERVICE_NAME: &str = "RateLimit";
const ENABLED: &str = "TRACING_ENABLED";
const PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";
const RATE: &str = "TRACING_SAMPLING_RATE";

/// The settings of traces, if they are on; and the variable that keeps them from being exported, if one does.
///
/// Spans are sent over gRPC alone, and the default of these variables is HTTP. A rate limiter must not refuse to start
/// for its traces, so they are off then, and the log says so.
pub(super) fn read(
    environment: &Environment,
) -> Result<(Option<TraceSettings>, Option<&'static str>), VariableError> {
    let off = || Some(TraceSettings { is_off: true, ..TraceSettings::default() });
    if !flag(environment, ENABLED)? {
        // Without the variable, the standard ones of OpenTelemetry decide.
        let is_set = text(environment, ENABLED).is_some();
        return Ok((off().filter(|_| is_set), None));
    }
    match text(environment, PROTOCOL) {
        Some("grpc") => {}
        None | Some("http") => return Ok((off(), Some(ENABLED))),
        Some(_) => return Err(VariableError::new(PROTOCOL, "use grpc")),
    }
    let sample = match text(environment, RATE) {
        None => Share::ALL,
        Some(rate) => {
            let share = rate.parse().ok().and_then(Share::of_ratio);
            share.ok_or_else(|| VariableError::new(RATE, "use a number from 0 to 1"))?
        }
    };
    let attributes = [
        ("service.namespace", "TRACING_SERVICE_NAMESPACE"),
        ("service.instance.id", "TRACING_SERVICE_INSTANCE_ID"),
    ];
    let attribute = |(key, name): (&'static str, &str)| Some((key, text(environment, name)?.to_owned()));
    let service_name = text(environment, "TRACING_SERVICE_NAME").unwrap_or(SERVICE_NAME).to_owned();
    let settings = TraceSettings {
        sample: Some(sample),
        service_name: Some(service_name),
        attributes: attributes.into_iter().filter_map(attribute).collect(),
        ..TraceSettings::default()
    };
    Ok((Some(settings), None))
}
