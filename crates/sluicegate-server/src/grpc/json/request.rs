//! A rate limit request in protobuf's JSON mapping.
//!
//! As in protobuf, names may be in camel case or as in the .proto file, numbers may be texts, units may be
//! names or numbers, and null counts as absent. An unknown name is an error: a misspelled field would otherwise be
//! a limit that is silently missing.

use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::super::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use super::super::messages::envoy::service::ratelimit::v3::RateLimitRequest;
use super::super::messages::envoy::r#type::v3::RateLimitUnit;

/// Reads a request.
pub(super) fn read(bytes: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    serde_json::from_slice::<Object<JsonRequest>>(bytes).map(|Object(question)| question.into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonRequest {
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    descriptors: Option<Vec<Object<Descriptor>>>,
    #[serde(default, alias = "hits_addend")]
    hits_addend: Option<Number>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Descriptor {
    #[serde(default)]
    entries: Option<Vec<Object<EntryOfDescriptor>>>,
    #[serde(default)]
    limit: Option<Object<Limit>>,
    #[serde(default, alias = "hits_addend")]
    hits_addend: Option<LongNumber>,
    #[serde(default, alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryOfDescriptor {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limit {
    #[serde(default, alias = "requests_per_unit")]
    requests_per_unit: Option<Number>,
    #[serde(default)]
    unit: Option<UnitOfLimit>,
}

impl From<JsonRequest> for RateLimitRequest {
    fn from(question: JsonRequest) -> Self {
        Self {
            domain: question.domain.unwrap_or_default(),
            descriptors: question
                .descriptors
                .unwrap_or_default()
                .into_iter()
                .map(|Object(each)| each.into())
                .collect(),
            hits_addend: question.hits_addend.map_or(0, |number| number.0),
        }
    }
}

impl From<Descriptor> for RateLimitDescriptor {
    fn from(descriptor: Descriptor) -> Self {
        let entry = |Object(entry): Object<EntryOfDescriptor>| Entry {
            key: entry.key.unwrap_or_default(),
            value: entry.value.unwrap_or_default(),
        };
        let limit = |Object(limit): Object<Limit>| RateLimitOverride {
            requests_per_unit: limit.requests_per_unit.map_or(0, |number| number.0),
            unit: limit.unit.map_or(0, |unit| unit.0),
        };
        Self {
            entries: descriptor.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: descriptor.limit.map(limit),
            hits_addend: descriptor.hits_addend.map(|number| number.0),
            is_negative_hits: descriptor.is_negative_hits.unwrap_or_default(),
        }
    }
}

/// A message must be an object; serde would also accept a list of its members.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = T;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

/// A whole number of 32 bits, or its digits.
struct Number(u32);

/// A whole number of 64 bits, or its digits.
struct LongNumber(u64);

/// A unit by its name or its number.
struct UnitOfLimit(i32);

struct Digits;

impl Visitor<'_> for Digits {
    type Value = u64;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a whole number, or its digits as a text")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for LongNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Digits).map(Self)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = deserializer.deserialize_any(Digits)?;
        let narrow = u32::try_from(number);
        narrow.map(Self).map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(number), &"at most 4294967295"))
    }
}

impl<'de> Deserialize<'de> for UnitOfLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unit;
        impl Visitor<'_> for Unit {
            type Value = i32;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<i32, E> {
                i32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i32, E> {
                let unit = RateLimitUnit::from_str_name(text);
                unit.map(Into::into).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Unit).map(Self)
    }
}
