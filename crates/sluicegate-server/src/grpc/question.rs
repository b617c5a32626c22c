//! What a request of Envoy's asks, read from its message and checked against every bound.
//!
//! Whatever is wrong is told with the field, the value and the remedy, and nothing is decided then.

use sluicegate::Request;
use sluicegate::core::Cost;
use sluicegate::identity::{Entry, Identity, identifier_of, resource_of};

use super::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::messages::envoy::service::ratelimit::v3::RateLimitRequest;
use super::messages::envoy::r#type::v3::RateLimitUnit;

/// The most descriptors of one request. Envoy makes one for each of a route's rate limits, of which there are a few;
/// each costs as much as a request of its own.
pub(crate) const DESCRIPTORS_MAX: usize = 64;

/// What one descriptor asks.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// Its entries.
    pub(crate) entries: Vec<Entry<'a>>,
    resource: String,
    identifier: String,
    /// What is to be done with its hits.
    pub(crate) hits: Hits,
    /// The limit that it brings along.
    pub(crate) limit: Option<Given>,
}

/// What is to be done with the hits of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hits {
    /// Charge them; what the rules say if the request does not.
    Charge(Option<Cost>),
    /// Only say whether there is room for one.
    Look,
    /// Give them back.
    Refund(Cost),
}

/// A limit that a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// How many.
    pub(crate) requests_per_unit: u32,
    /// In how long.
    pub(crate) unit: RateLimitUnit,
}

/// Why a question cannot be asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) String);

/// Everything that `message` asks, in the order of its descriptors.
pub(crate) fn read(message: &RateLimitRequest) -> Result<Vec<Asked<'_>>, Malformed> {
    if message.domain.is_empty() {
        return Err(Malformed("`domain` is empty: name the domain of the rate limits".to_owned()));
    }
    if message.descriptors.is_empty() {
        return Err(Malformed("`descriptors` is empty: give it at least one descriptor".to_owned()));
    }
    if message.descriptors.len() > DESCRIPTORS_MAX {
        let count = message.descriptors.len();
        return Err(Malformed(format!("`descriptors` has {count} descriptors: use at most {DESCRIPTORS_MAX}")));
    }
    message.descriptors.iter().enumerate().map(|(place, each)| read_one(message, place, each)).collect()
}

fn read_one<'a>(
    message: &'a RateLimitRequest,
    place: usize,
    descriptor: &'a RateLimitDescriptor,
) -> Result<Asked<'a>, Malformed> {
    let within = |detail: &dyn std::fmt::Display| Malformed(format!("in `descriptors[{place}]`, {detail}"));
    let entries: Vec<Entry<'a>> =
        descriptor.entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect();
    let hits = hits(message.hits_addend, descriptor).map_err(|detail| within(&detail))?;
    let limit = given(descriptor).map_err(|detail| within(&detail))?;
    let (resource, identifier) = (resource_of(&entries), identifier_of(&entries));
    let asked = Asked { entries, resource, identifier, hits, limit };
    asked.request(&message.domain).validate().map_err(|error| match error.field {
        "tenant" => Malformed(error.to_string().replace("`tenant`", "`domain`")),
        _ => within(&error),
    })?;
    Ok(asked)
}

impl Asked<'_> {
    /// The request for a decision that it stands for, in `domain`.
    pub(crate) fn request<'r>(&'r self, domain: &'r str) -> Request<'r> {
        let cost = match self.hits {
            Hits::Charge(cost) => cost,
            Hits::Look => Some(Cost::ONE),
            Hits::Refund(cost) => Some(cost),
        };
        Request {
            cost,
            identity: Identity::Named(&self.identifier),
            descriptor: Some(&self.entries),
            ..Request::new(&self.resource, "").tenant(domain)
        }
    }
}

fn hits(of_request: u32, descriptor: &RateLimitDescriptor) -> Result<Hits, String> {
    let own = descriptor.hits_addend.map(|hits| {
        let max = u32::MAX;
        u32::try_from(hits).map_err(|_| format!("`hits_addend` is {hits}: use at most {max}"))
    });
    let hits = match own.transpose()? {
        Some(hits) => Some(hits),
        None => Some(of_request).filter(|hits| *hits > 0),
    };
    Ok(match hits {
        hits if descriptor.is_negative_hits => Hits::Refund(hits.map_or(Cost::ONE, Cost::new)),
        Some(0) => Hits::Look,
        hits => Hits::Charge(hits.map(Cost::new)),
    })
}

fn given(descriptor: &RateLimitDescriptor) -> Result<Option<Given>, String> {
    let Some(limit) = &descriptor.limit else { return Ok(None) };
    match RateLimitUnit::try_from(limit.unit) {
        Ok(RateLimitUnit::Unknown) | Err(_) => {
            Err(format!("`limit.unit` is {}: use 1 (second) to 6 (year)", limit.unit))
        }
        Ok(unit) => Ok(Some(Given { requests_per_unit: limit.requests_per_unit, unit })),
    }
}
