//! A request of Envoy, parsed from its message and validated against every bound.
//!
//! Any error names the field, the value and the remedy, and then nothing is decided.

use sluicegate::Request;
use sluicegate::core::Cost;
use sluicegate::identity::{Entry, Identity, identifier_of, resource_of};

use super::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::messages::envoy::service::ratelimit::v3::RateLimitRequest;
use super::messages::envoy::r#type::v3::RateLimitUnit;

/// The most descriptors of one request. Envoy sends one for each rule of a route that matches, and Envoy Gateway allows this
/// many rules in a policy. Each costs as much as a separate request.
pub(crate) const DESCRIPTORS_MAX: usize = 256;

/// A parsed descriptor.
#[derive(Debug)]
pub(crate) struct ParsedDescriptor<'a> {
    /// Its entries.
    pub(crate) entries: Vec<Entry<'a>>,
    resource: String,
    identifier: String,
    /// The operation on its hits.
    pub(crate) hits: Hits,
    /// The limit in the descriptor itself.
    pub(crate) limit: Option<InlineLimit>,
}

/// The operation on the hits of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hits {
    /// Charge them if all descriptors of the request have room; the rules' own cost if the request has none.
    Charge(Option<Cost>),
    /// Charge them whether they fit or not: they report usage that has already happened.
    Report(Option<Cost>),
    /// Only check the limit.
    Check,
    /// Refund them.
    Refund(Cost),
}

/// Which hits of a call report usage, and are charged even where they do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Charging {
    /// Those that descriptors have of their own. Envoy sends such hits after a response, when the usage is known.
    #[default]
    ByDescriptor,
    /// All.
    Always,
    /// None.
    IfAllowed,
}

/// A limit in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlineLimit {
    /// The number of requests.
    pub(crate) requests_per_unit: u32,
    /// The unit of time.
    pub(crate) unit: RateLimitUnit,
}

/// The error of an invalid request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidRequest(pub(crate) String);

/// The operations of `message`, in the order of its descriptors.
pub(crate) fn parse(
    message: &RateLimitRequest,
    charging: Charging,
) -> Result<Vec<ParsedDescriptor<'_>>, InvalidRequest> {
    if message.domain.is_empty() {
        return Err(InvalidRequest("`domain` is empty: name the domain of the rate limits".to_owned()));
    }
    if message.descriptors.is_empty() {
        return Err(InvalidRequest("`descriptors` is empty: give it at least one descriptor".to_owned()));
    }
    if message.descriptors.len() > DESCRIPTORS_MAX {
        let count = message.descriptors.len();
        return Err(InvalidRequest(format!(
            "`descriptors` has {count} descriptors: use at most {DESCRIPTORS_MAX}"
        )));
    }
    message.descriptors.iter().enumerate().map(|(place, each)| parse_one(message, charging, place, each)).collect()
}

fn parse_one<'a>(
    message: &'a RateLimitRequest,
    charging: Charging,
    place: usize,
    descriptor: &'a RateLimitDescriptor,
) -> Result<ParsedDescriptor<'a>, InvalidRequest> {
    let within = |detail: &dyn std::fmt::Display| InvalidRequest(format!("in `descriptors[{place}]`, {detail}"));
    let entries: Vec<Entry<'a>> =
        descriptor.entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect();
    let hits = hits(message.hits_addend, charging, descriptor).map_err(|detail| within(&detail))?;
    let limit = given(descriptor).map_err(|detail| within(&detail))?;
    let (resource, identifier) = (resource_of(&entries), identifier_of(&entries));
    let asked = ParsedDescriptor { entries, resource, identifier, hits, limit };
    asked.request(&message.domain).validate().map_err(|error| match error.field {
        "tenant" => InvalidRequest(error.to_string().replace("`tenant`", "`domain`")),
        _ => within(&error),
    })?;
    Ok(asked)
}

impl ParsedDescriptor<'_> {
    /// Its values, as the identifier of a state.
    pub(crate) fn identifier(&self) -> &str {
        &self.identifier
    }

    /// The length of its texts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum()
    }

    /// The request for a decision, in `domain`.
    pub(crate) fn request<'r>(&'r self, domain: &'r str) -> Request<'r> {
        let cost = match self.hits {
            Hits::Charge(cost) | Hits::Report(cost) => cost,
            Hits::Check => Some(Cost::ONE),
            Hits::Refund(cost) => Some(cost),
        };
        let request = Request {
            cost,
            identity: Identity::Named(&self.identifier),
            descriptor: Some(&self.entries),
            ..Request::new(&self.resource, "").tenant(domain)
        };
        if matches!(self.hits, Hits::Report(_)) { request.charged_always() } else { request }
    }
}

fn hits(of_request: u32, charging: Charging, descriptor: &RateLimitDescriptor) -> Result<Hits, String> {
    let own = descriptor.hits_addend.map(|hits| {
        let max = u32::MAX;
        u32::try_from(hits).map_err(|_| format!("`hits_addend` is {hits}: use at most {max}"))
    });
    let own = own.transpose()?;
    let hits = own.or(Some(of_request).filter(|hits| *hits > 0));
    let is_report = match charging {
        Charging::ByDescriptor => own.is_some(),
        Charging::Always => true,
        Charging::IfAllowed => false,
    };
    Ok(match hits {
        hits if descriptor.is_negative_hits => Hits::Refund(hits.map_or(Cost::ONE, Cost::new)),
        Some(0) => Hits::Check,
        hits if is_report => Hits::Report(hits.map(Cost::new)),
        hits => Hits::Charge(hits.map(Cost::new)),
    })
}

fn given(descriptor: &RateLimitDescriptor) -> Result<Option<InlineLimit>, String> {
    let Some(limit) = &descriptor.limit else { return Ok(None) };
    match RateLimitUnit::try_from(limit.unit) {
        Ok(RateLimitUnit::Unknown) | Err(_) => {
            Err(format!("`limit.unit` is {}: use 1 (second) to 6 (year)", limit.unit))
        }
        Ok(unit) => Ok(Some(InlineLimit { requests_per_unit: limit.requests_per_unit, unit })),
    }
}
