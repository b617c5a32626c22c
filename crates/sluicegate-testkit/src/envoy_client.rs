//! A client of Envoy's rate limit service, for tests and benchmarks.
//!
//! It has its own idea of the messages, written down from the protocol's definition and not generated from ours, so that
//! a slip in ours does not find its like here.

use std::net::SocketAddr;

use http::uri::PathAndQuery;
use prost::{Enumeration, Message};
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Where the method is.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// `RateLimitRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct Question {
    /// The domain.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is asked about.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    /// What each costs; 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Descriptor {
    /// Its entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit of its own.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<Given>,
    /// What it costs.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether that is given back.
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
    /// How many.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// 1 (second) to 6 (year).
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

/// `RateLimitResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// Whether all may pass.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// How each descriptor stands.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Header fields for the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<Header>,
    /// What the configuration tells beside the decision.
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<prost_types::Struct>,
}

/// `RateLimitResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never said.
    Unknown = 0,
    /// May pass.
    Ok = 1,
    /// May not.
    OverLimit = 2,
}

/// `RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// Whether it may pass.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit that speaks for it.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    /// What is left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// When it is whole again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<prost_types::Duration>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Message)]
pub struct CurrentLimit {
    /// How many.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// 1 (second) to 7 (week).
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
    /// A descriptor of these entries.
    pub fn new(entries: &[(&str, &str)]) -> Self {
        let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
        Self { entries: entries.iter().map(entry).collect(), ..Self::default() }
    }

    /// The same with so many hits.
    #[must_use]
    pub fn hits(self, hits: u64) -> Self {
        Self { hits_addend: Some(hits), ..self }
    }

    /// The same, given back.
    #[must_use]
    pub fn refund(self) -> Self {
        Self { is_negative_hits: true, ..self }
    }
}

impl Question {
    /// A question about `descriptors` in `domain`.
    pub fn new(domain: &str, descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self { domain: domain.to_owned(), descriptors: descriptors.into_iter().collect(), hits_addend: 0 }
    }
}

impl Answer {
    /// The codes of all descriptors.
    pub fn codes(&self) -> Vec<Code> {
        self.statuses.iter().map(DescriptorStatus::code).collect()
    }

    /// What is left for each descriptor.
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
}

impl EnvoyClient {
    /// A client of the service at `address`, which it connects to when it first asks.
    pub fn new(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.unwrap_or_else(|error| panic!("an address is no endpoint: {error}"));
        Self { channel: endpoint.connect_lazy(), token: None }
    }

    /// The same with the admin token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// The connection.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Asks, and waits for the answer.
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
        let path = PathAndQuery::from_static(PATH);
        Ok(grpc.unary(request, path, ProstCodec::<Question, Answer>::default()).await?.into_inner())
    }
}
