//! A client of Envoy's rate limit service, for tests and benchmarks.
//!
//! The messages are written by hand from the protocol's definition instead of generated from ours, so that an error in
//! our definitions is not repeated here.

use std::net::SocketAddr;

use http::uri::PathAndQuery;
use prost::{Enumeration, Message};
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// The path of the method.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// `RateLimitRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct Question {
    /// The domain.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The descriptors to check.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    /// The cost for each descriptor (`hits_addend`); 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Descriptor {
    /// Its entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that the request itself defines.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<Given>,
    /// The cost of this descriptor. It takes precedence over that of the request.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the cost is refunded instead of charged.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// Its key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `RateLimitDescriptor.RateLimitOverride`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Given {
    /// Requests per unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit, from 1 (second) to 6 (year).
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

/// `RateLimitResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// The code of the whole request: `Ok` only if every descriptor passes.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// The status of each descriptor.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Header fields for the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<Header>,
    /// Dynamic metadata that the configuration adds to the decision.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<prost_types::Struct>,
}

/// `RateLimitResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// The service never sends this code.
    Unknown = 0,
    /// The request is allowed.
    Ok = 1,
    /// The request is denied.
    OverLimit = 2,
}

/// `RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// The code of this descriptor.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit that determines the code.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    /// The remaining quota.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// The time until the quota is fully restored.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<prost_types::Duration>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Message)]
pub struct CurrentLimit {
    /// Requests per unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit, from 1 (second) to 7 (week).
    #[prost(int32, tag = "2")]
    pub unit: i32,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `HeaderValue`.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

impl Descriptor {
    /// A descriptor with these entries.
    pub fn new(entries: &[(&str, &str)]) -> Self {
        let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
        Self { entries: entries.iter().map(entry).collect(), ..Self::default() }
    }

    /// The same descriptor with this `hits_addend`.
    #[must_use]
    pub fn hits(self, hits: u64) -> Self {
        Self { hits_addend: Some(hits), ..self }
    }

    /// The same descriptor as a refund.
    #[must_use]
    pub fn refund(self) -> Self {
        Self { is_negative_hits: true, ..self }
    }
}

impl Question {
    /// A request about `descriptors` in `domain`.
    pub fn new(domain: &str, descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self { domain: domain.to_owned(), descriptors: descriptors.into_iter().collect(), hits_addend: 0 }
    }
}

impl Answer {
    /// The codes of all descriptors.
    pub fn codes(&self) -> Vec<Code> {
        self.statuses.iter().map(DescriptorStatus::code).collect()
    }

    /// The remaining quota of each descriptor.
    pub fn remaining(&self) -> Vec<u32> {
        self.statuses.iter().map(|status| status.limit_remaining).collect()
    }

    /// The value of a header field for the client.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response_headers_to_add.iter().find(|header| header.key == name).map(|header| &*header.value)
    }
}

/// A connection to a service.
#[derive(Clone, Debug)]
pub struct EnvoyClient {
    channel: Channel,
    token: Option<String>,
    /// The metadata `x-sluicegate-charge`.
    charging: Option<&'static str>,
}

impl EnvoyClient {
    /// A client of the service at `address`. It connects on the first request.
    pub fn new(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.unwrap_or_else(|error| panic!("an address is no endpoint: {error}"));
        Self { channel: endpoint.connect_lazy(), token: None, charging: None }
    }

    /// The same client with the admin token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// The same client with this `x-sluicegate-charge`.
    #[must_use]
    pub fn with_charging(self, charging: &'static str) -> Self {
        Self { charging: Some(charging), ..self }
    }

    /// The connection.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Sends a request and waits for the response.
    pub async fn ask(&self, question: Question) -> Result<Answer, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut request = Request::new(question);
        if let Some(token) = &self.token {
            let value: AsciiMetadataValue = format!("Bearer {token}")
                .parse()
                .unwrap_or_else(|error| panic!("a token that cannot be sent: {error}"));
            request.metadata_mut().insert("authorization", value);
        }
        if let Some(charging) = self.charging {
            request.metadata_mut().insert("x-sluicegate-charge", AsciiMetadataValue::from_static(charging));
        }
        let path = PathAndQuery::from_static(PATH);
        Ok(grpc.unary(request, path, ProstCodec::<Question, Answer>::default()).await?.into_inner())
    }
}
