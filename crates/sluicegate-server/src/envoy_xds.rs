//! The client of a control plane: fetches the limits of `envoyproxy/ratelimit` over xDS and puts them into force.
//!
//! One stream (`StreamAggregatedResources`, state of the world) delivers the complete configuration with each response. A
//! response without errors is in force when its ACK is sent. With errors the client sends a NACK that names them; the
//! domains without errors are in force, and the others keep their last good form. Contents are compared and never
//! versions, because the versions of a control plane begin again when it restarts. For the same reason every stream begins
//! without a version.
//!
//! Some control planes answer a NACK with the same configuration at once. So the NACKs after the first of a sequence are
//! delayed, up to [`NACK_DELAY_MAX`], and the same errors are logged and counted once.
//!
//! The last good configuration stays in force while the control plane is away. Before the first one, no limit applies.
//!
//! ```text
//! resource.rs       one resource: from its message to a bounded tree
//! configuration.rs  the resources of a response, beside the ones in force
//! connection.rs     the channel with its TLS
//! backoff.rs        the waits between attempts
//! status.rs         the state for log, metrics, health and the admin API
//! ```

mod backoff;
mod configuration;
mod connection;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::too_many_lines, reason = "written by a program")]
mod messages;
mod resource;
pub(crate) mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use futures_util::stream;
use prost_types::Any;
use prost_types::value::Kind;
use sluicegate::clock::Clock as _;
use sluicegate::rules::file::problem::shown;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::envoy_ratelimit::xds::XdsSettings;
use crate::limiter::ServerGate;
use crate::rule_source::RuleSource;
use backoff::Waits;
use configuration::{Domains, Taken};
use connection::ConnectionError;
use messages::envoy::config::core::v3::Node;
use messages::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use messages::google::rpc;
use status::XdsStatus;

/// The type of the resources.
const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
/// The path of the method.
const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Requests that wait to be sent: one for each response, which are handled one after the other.
const REQUESTS_QUEUED_MAX: usize = 4;
/// The time for a control plane to take a request. It only passes if the peer stops reading.
const SEND_WITHIN: Duration = Duration::from_secs(30);
/// The delay of the second NACK in a sequence; it doubles with each further one.
const NACK_DELAY: Duration = Duration::from_secs(1);
/// The longest delay of a NACK, and so of the next configuration of such a control plane.
const NACK_DELAY_MAX: Duration = Duration::from_secs(10);
/// The longest description of errors in a NACK, in bytes.
const NACK_BYTES_MAX: usize = 4_096;
/// The most errors that the log and the status list.
const PROBLEMS_SHOWN_MAX: usize = 20;

/// The client.
#[derive(Debug)]
pub(crate) struct XdsClient {
    settings: XdsSettings,
    status: XdsStatus,
    source: RuleSource,
    gate: Arc<ServerGate>,
    /// The resources in force.
    domains: Arc<Domains>,
}

/// The state of one stream.
#[derive(Debug, Default)]
struct StreamState {
    /// The version that was accepted last on this stream.
    accepted: String,
    /// Whether any response arrived.
    has_received: bool,
    /// The responses that were rejected since the last accepted one.
    rejections: u32,
    /// The errors of the last one, if it was rejected.
    problems: Vec<String>,
}

impl StreamState {
    /// The time before the next request is sent.
    fn delay(&self) -> Duration {
        let doublings = self.rejections.saturating_sub(2).min(16);
        if self.rejections < 2 { Duration::ZERO } else { (NACK_DELAY * (1 << doublings)).min(NACK_DELAY_MAX) }
    }
}

impl XdsClient {
    /// A client whose configurations take effect in `gate` by way of `source`.
    pub(crate) fn new(
        settings: XdsSettings,
        status: XdsStatus,
        source: RuleSource,
        gate: Arc<ServerGate>,
    ) -> Self {
        Self { settings, status, source, gate, domains: Arc::default() }
    }

    /// Follows the control plane for as long as the server runs.
    pub(crate) async fn follow(mut self) {
        let mut waits = Waits::new(self.settings.backoff);
        loop {
            let mut state = StreamState::default();
            let error = match self.run_stream(&mut state).await {
                Ok(()) => "the control plane ended the stream".to_owned(),
                Err(error) => {
                    if matches!(error, ConnectionError::TooLarge { .. }) {
                        self.status.rejected(&[error.to_string()]);
                    }
                    error.to_string()
                }
            };
            self.status.disconnected(error);
            tokio::time::sleep(waits.next(state.has_received)).await;
        }
    }

    /// Connects and handles the responses of one stream until it ends.
    async fn run_stream(&mut self, state: &mut StreamState) -> Result<(), ConnectionError> {
        let channel = connection::open(&self.settings).await?;
        self.status.connected();
        let (requests, queue) = mpsc::channel(REQUESTS_QUEUED_MAX);
        send(&requests, self.request(state, String::new(), None)).await?;
        let mut responses = self.stream(channel, queue).await?;
        while let Some(response) = responses.message().await.map_err(|status| self.broken(&status))? {
            state.has_received = true;
            if response.type_url != TYPE_URL {
                let type_url = shown(&response.type_url, false);
                tracing::warn!(type_url, "a response of the control plane has another type");
                continue;
            }
            let answer = self.answer(state, response).await;
            tokio::time::sleep(state.delay()).await;
            send(&requests, answer).await?;
        }
        Ok(())
    }

    async fn stream(
        &self,
        channel: Channel,
        queue: Receiver<DiscoveryRequest>,
    ) -> Result<Streaming<DiscoveryResponse>, ConnectionError> {
        let next = |mut queue: Receiver<_>| async move { queue.recv().await.map(|request| (request, queue)) };
        let mut request = Request::new(stream::unfold(queue, next));
        let fields = self.settings.headers.iter().cloned().collect();
        *request.metadata_mut() = MetadataMap::from_headers(fields);
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.settings.message_bytes_max);
        grpc.ready().await.map_err(ConnectionError::from)?;
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        // Without a configuration for this server there is no response yet, so this may wait for long.
        let opened = grpc.streaming(request, PathAndQuery::from_static(PATH), codec).await;
        Ok(opened.map_err(|status| self.broken(&status))?.into_inner())
    }

    /// The error of a stream. It names the bound of a message if that was exceeded.
    fn broken(&self, status: &Status) -> ConnectionError {
        if status.code() == Code::OutOfRange && status.message().contains("message length too large") {
            return ConnectionError::TooLarge { bytes_max: self.settings.message_bytes_max };
        }
        ConnectionError::from(status.clone())
    }

    /// Handles a response. Returns its ACK or NACK.
    async fn answer(&mut self, state: &mut StreamState, response: DiscoveryResponse) -> DiscoveryRequest {
        let DiscoveryResponse { version_info, resources, nonce, .. } = response;
        let before = Arc::clone(&self.domains);
        let outcome = self.apply(&version_info, resources).await;
        let problems = match &outcome {
            Ok(problems) => problems.clone(),
            Err(problem) => vec![problem.clone()],
        };
        // Other good domains beside the same errors are another configuration.
        let is_repeated =
            !problems.is_empty() && problems == state.problems && Arc::ptr_eq(&before, &self.domains);
        if !is_repeated {
            self.report(&version_info, outcome.is_ok(), &problems);
        }
        if problems.is_empty() {
            (state.rejections, state.accepted) = (0, version_info);
            state.problems.clear();
            return self.request(state, nonce, None);
        }
        let message = nack_text(&problems);
        (state.rejections, state.problems) = (state.rejections.saturating_add(1), problems);
        self.request(state, nonce, Some(message))
    }

    /// Logs and counts a configuration, which is in force except for the domains with problems, if `is_in_force`.
    fn report(&self, version: &str, is_in_force: bool, problems: &[String]) {
        let is_in_force = is_in_force && (problems.is_empty() || !self.domains.is_empty());
        match is_in_force {
            true => {
                let now = self.gate.limiter().clock().time_of_day();
                self.status.configured(&shown(version, false), self.domains.len(), problems, now);
            }
            false => self.status.rejected(problems),
        }
        for problem in problems.iter().take(PROBLEMS_SHOWN_MAX) {
            tracing::error!(problem, "a mistake in the configuration of the control plane");
        }
        if let Some(first) = problems.first() {
            let (version, count) = (shown(version, false), problems.len());
            tracing::error!(version, count, first, "a configuration of the control plane was rejected");
        }
    }

    /// Puts the good part of a configuration into force. Returns the errors of the rest, or that of the whole.
    async fn apply(&mut self, version: &str, resources: Vec<Any>) -> Result<Vec<String>, String> {
        let (current, options) = (Arc::clone(&self.domains), self.settings.options);
        // Compiling a large configuration takes a while, and must not block other tasks.
        let work = move || configuration::take(&current, resources, &options);
        let outcome = match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => outcome,
            // It panicked, which the log has, or the server stops.
            Err(_) => Err("the configuration could not be compiled: this is a defect of the server".to_owned()),
        };
        outcome.and_then(|taken| self.put(version, taken))
    }

    /// Puts compiled domains into force, if they differ from those in force. Returns the errors of the others.
    fn put(&mut self, version: &str, taken: Taken) -> Result<Vec<String>, String> {
        let Taken { domains, config, problems } = taken;
        if let Some(config) = config {
            let (limits, new) = (config.rules().len(), Arc::new(domains));
            self.source.put_envoy(&self.gate, config).map_err(|error| {
                format!("the limits do not go together with the other rules of the server: {error}")
            })?;
            let (version, domains, rejected) = (shown(version, false), new.len(), problems.len());
            tracing::info!(version, domains, limits, rejected, "a configuration of the control plane is in force");
            self.domains = new;
        }
        Ok(problems)
    }

    fn request(&self, state: &StreamState, nonce: String, error: Option<String>) -> DiscoveryRequest {
        let error_detail = error.map(|message| rpc::Status { code: Code::InvalidArgument as i32, message });
        DiscoveryRequest {
            version_info: state.accepted.clone(),
            node: Some(self.node()),
            resource_names: Vec::new(),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce,
            error_detail,
        }
    }

    fn node(&self) -> Node {
        let value = |text: &String| prost_types::Value { kind: Some(Kind::StringValue(text.clone())) };
        let fields: BTreeMap<String, prost_types::Value> =
            self.settings.metadata.iter().map(|(key, text)| (key.clone(), value(text))).collect();
        Node {
            id: self.settings.node_id.clone(),
            metadata: (!fields.is_empty()).then_some(prost_types::Struct { fields }),
            user_agent_name: "sluicegate".to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

async fn send(requests: &Sender<DiscoveryRequest>, request: DiscoveryRequest) -> Result<(), ConnectionError> {
    match timeout(SEND_WITHIN, requests.send(request)).await {
        Ok(Ok(())) => Ok(()),
        // The stream has ended; its responses tell why.
        Ok(Err(_)) => Ok(()),
        Err(_elapsed) => Err(ConnectionError::NotReading),
    }
}

/// All errors as one text of at most [`NACK_BYTES_MAX`].
fn nack_text(problems: &[String]) -> String {
    let mut text = String::new();
    for (index, problem) in problems.iter().enumerate() {
        let left = problems.len() - index;
        let more = format!("\nand {left} more; solve these first");
        if text.len() + 1 + problem.len() + more.len() > NACK_BYTES_MAX && index > 0 {
            text.push_str(&more);
            return text;
        }
        if index > 0 {
            text.push('\n');
        }
        let end = problem.floor_char_boundary(NACK_BYTES_MAX - more.len());
        text.push_str(&problem[..end]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_nacks_double_up_to_a_maximum_and_the_first_has_none() {
        let secs = |rejections| StreamState { rejections, ..StreamState::default() }.delay().as_secs();
        assert_eq!([0, 1, 2, 3, 4, 5, 6, u32::MAX].map(secs), [0, 0, 1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn the_description_of_errors_is_bounded_and_counts_the_rest() {
        assert_eq!(nack_text(&["a".to_owned(), "b".to_owned()]), "a\nb");
        let long = "é".repeat(1_000);
        let text = nack_text(&[long.clone(), long.clone(), long]);
        assert!(text.len() <= NACK_BYTES_MAX && text.ends_with("\nand 1 more; solve these first"), "{text}");
        let one = nack_text(&["é".repeat(10_000)]);
        assert!(one.len() <= NACK_BYTES_MAX && one.len() > NACK_BYTES_MAX / 2);
    }
}
