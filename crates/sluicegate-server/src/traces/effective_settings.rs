//! The effective trace settings: the configuration, else the standard variables of OpenTelemetry.

use sluicegate::rules::file::Environment;

use super::TracesError;
use crate::config::share::Share;
use crate::config::traces::{self, TraceSettings};

/// The default address of a collector on this machine.
const ENDPOINT_DEFAULT: &str = "http://127.0.0.1:4317";

/// The default service name.
const SERVICE_NAME: &str = "sluicegate";

/// The variables with the collector's URL, the more specific one first.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variables with the protocol, the more specific one first.
const PROTOCOL_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// The settings after resolving all sources.
#[derive(Debug)]
pub(super) struct EffectiveSettings {
    pub(super) endpoint: String,
    pub(super) sample: Share,
    /// The service name; `None` if OpenTelemetry's own variables contain it.
    pub(super) service_name: Option<String>,
}

impl EffectiveSettings {
    /// Resolves the settings; `None` if neither source enables traces, or a variable disables them.
    pub(super) fn resolve(
        section: Option<&TraceSettings>,
        environment: &Environment,
    ) -> Result<Option<Self>, TracesError> {
        let set = |name: &str| environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let is_off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER") == Some("none")
            || section.is_some_and(|section| section.is_off);
        let named = ENDPOINT_VARIABLES.iter().find_map(|name| Some((*name, set(name)?)));
        if is_off || (section.is_none() && named.is_none()) {
            return Ok(None);
        }
        let protocol = PROTOCOL_VARIABLES.iter().find_map(|name| Some((*name, set(name)?)));
        if let Some((name, value)) = protocol.filter(|(_, value)| *value != "grpc") {
            return Err(TracesError::Protocol { name, value: value.to_owned() });
        }
        let endpoint = match (section.and_then(|section| section.endpoint.clone()), named) {
            (Some(endpoint), _) => endpoint,
            (None, Some((name, value))) => endpoint_of(name, value)?,
            (None, None) => ENDPOINT_DEFAULT.to_owned(),
        };
        let sample = match section.and_then(|section| section.sample) {
            Some(sample) => sample,
            None => sampler(set(SAMPLER), set(SAMPLER_ARGUMENT))?,
        };
        let is_named = set("OTEL_SERVICE_NAME").is_some()
            || set("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|value| value.contains("service.name="));
        let service_name = section.and_then(|section| section.service_name.clone());
        let service_name = service_name.or_else(|| (!is_named).then(|| SERVICE_NAME.to_owned()));
        Ok(Some(Self { endpoint, sample, service_name }))
    }
}

/// The URL in a variable. A trailing slash is allowed, as in other programs.
fn endpoint_of(name: &'static str, value: &str) -> Result<String, TracesError> {
    let url = value.strip_suffix('/').unwrap_or(value);
    match traces::check_endpoint(url) {
        Ok(()) => Ok(url.to_owned()),
        Err(wrong) => Err(TracesError::Endpoint { name, wrong }),
    }
}

/// The sampled share in the standard variables. A request with a parent follows the parent's sampling decision instead.
fn sampler(name: Option<&str>, argument: Option<&str>) -> Result<Share, TracesError> {
    let Some(name) = name else { return Ok(Share::ALL) };
    match name.strip_prefix("parentbased_").unwrap_or(name) {
        "always_on" => Ok(Share::ALL),
        "always_off" => Ok(Share::NONE),
        "traceidratio" => {
            let Some(argument) = argument else { return Ok(Share::ALL) };
            let ratio = argument.parse().ok().and_then(Share::of_ratio);
            ratio.ok_or_else(|| TracesError::Ratio(argument.to_owned()))
        }
        _ => Err(TracesError::Sampler(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(
        section: Option<&TraceSettings>,
        variables: &[(&str, &str)],
    ) -> Result<Option<EffectiveSettings>, String> {
        let environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        EffectiveSettings::resolve(section, &environment).map_err(|error| error.to_string())
    }

    fn chosen(section: Option<&TraceSettings>, variables: &[(&str, &str)]) -> EffectiveSettings {
        resolved(section, variables).expect("good").expect("traces")
    }

    #[test]
    fn traces_are_off_by_default_and_variables_can_disable_them() {
        assert!(resolved(None, &[]).expect("good").is_none());
        assert!(resolved(None, &[("OTEL_SERVICE_NAME", "x")]).expect("good").is_none());
        let section = TraceSettings::default();
        assert_eq!(chosen(Some(&section), &[]).endpoint, ENDPOINT_DEFAULT);
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(resolved(Some(&section), &[off]).expect("good").is_none(), "{off:?}");
        }
        let off = TraceSettings { is_off: true, ..TraceSettings::default() };
        let standard = [("OTEL_EXPORTER_OTLP_ENDPOINT", "h:1"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")];
        assert!(resolved(Some(&off), &standard).expect("not read").is_none());
    }

    #[test]
    fn the_section_overrides_variables_and_specific_variables_override_general_ones() {
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4317/");
        let specific = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://specific:4317");
        assert_eq!(chosen(None, &[general]).endpoint, "http://general:4317");
        assert_eq!(chosen(None, &[general, specific]).endpoint, "http://specific:4317");
        let section = TraceSettings { endpoint: Some("http://section:1".to_owned()), ..TraceSettings::default() };
        assert_eq!(chosen(Some(&section), &[general, specific]).endpoint, "http://section:1");
    }

    #[test]
    fn standard_samplers_become_shares() {
        let sample = |variables: &[(&str, &str)]| chosen(Some(&TraceSettings::default()), variables).sample;
        assert_eq!(sample(&[]), Share::ALL);
        assert_eq!(sample(&[(SAMPLER, "parentbased_always_off")]), Share::NONE);
        let ratio = sample(&[(SAMPLER, "traceidratio"), (SAMPLER_ARGUMENT, "0.25")]);
        assert_eq!(Some(ratio), Share::of_ratio(0.25));
    }

    #[test]
    fn unsupported_values_are_rejected_with_the_variable() {
        let of = |variable| resolved(Some(&TraceSettings::default()), &[variable]).expect_err("refused");
        assert!(of((SAMPLER, "jaeger_remote")).starts_with("OTEL_TRACES_SAMPLER: `jaeger_remote`"));
        assert!(of(("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")).starts_with("OTEL_EXPORTER_OTLP_PROTOCOL: "));
        let secret = of(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:canary@collector"));
        assert!(secret.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: ") && !secret.contains("canary"), "{secret}");
        let ratio =
            resolved(Some(&TraceSettings::default()), &[(SAMPLER, "traceidratio"), (SAMPLER_ARGUMENT, "2")]);
        assert!(ratio.expect_err("refused").starts_with("OTEL_TRACES_SAMPLER_ARG: `2`"));
    }

    #[test]
    fn the_service_name_has_a_default() {
        let section = TraceSettings::default();
        assert_eq!(chosen(Some(&section), &[]).service_name.as_deref(), Some("sluicegate"));
        assert_eq!(chosen(Some(&section), &[("OTEL_SERVICE_NAME", "edge")]).service_name, None);
        let named = TraceSettings { service_name: Some("limits".to_owned()), ..section };
        assert_eq!(chosen(Some(&named), &[("OTEL_SERVICE_NAME", "edge")]).service_name.as_deref(), Some("limits"));
    }
}
