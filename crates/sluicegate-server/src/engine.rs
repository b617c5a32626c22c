//! The engine that all front doors share: the limiter and gate, the response options, the admin tokens, the rule source
//! and the telemetry.
//!
//! An [`Engine`] is built once, without sockets or settings, so each test builds its own with the rules it needs.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::gate::{Admission, Gate, Head};
use sluicegate::headers::HeaderOptions;
use sluicegate::identify::{Identify, Source};
use sluicegate::path::EncodedSlashes;
use sluicegate::rules::{LeaseBounds, Rule, RuleSet};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::redis::KeyEncoder;
use sluicegate::store::{Health, Store as _};
use sluicegate::top_k::TopClients;
use sluicegate::{Instances, Limiter, MemoryStore};
use tokio::time::MissedTickBehavior;

use crate::admin_tokens::{Token, Tokens};
use crate::admit::{self, Exemptions};
use crate::config::api::ApiSettings;
use crate::config::envoy_headers::EnvoyHeaders;
use crate::limiter::{ServerGate, ServerLimiter};
use crate::metrics::Gauges;
use crate::problem::Problem;
use crate::reload::Reload;
use crate::rule_source::RuleSource;
use crate::secret::Secret;
use crate::store::ServerStore;
use crate::telemetry;
use crate::telemetry::decision_log::DecisionLog;
use crate::telemetry::history::{self, OutcomeHistory};
use crate::telemetry::observer::ServerObserver;
use crate::telemetry::tally::RequestTotals;
use crate::traces::Traces;

/// The parts of an [`Engine`].
#[derive(Debug)]
pub(crate) struct EngineOptions {
    /// The rules in force at the start.
    pub(crate) rules: RuleSet,
    /// The capacity of the in-memory stores.
    pub(crate) memory: MemoryOptions,
    /// Which rate-limit headers responses carry.
    pub(crate) headers: HeaderOptions,
    /// Which of these headers Envoy adds to its responses.
    pub(crate) envoy_headers: EnvoyHeaders,
    /// The administrator's token. Without any token no change is possible.
    pub(crate) admin_token: Option<Secret>,
    /// Whether clients on this machine also need a token to read.
    pub(crate) requires_token: bool,
    /// Access control of the api listener.
    pub(crate) api: ApiSettings,
    /// Further admin tokens, each with a role.
    pub(crate) tokens: Vec<Token>,
    /// The encoding of keys in a shared store.
    pub(crate) encoder: KeyEncoder,
    /// The identification of gateway clients.
    pub(crate) identify: Identify,
    /// Requests that pass the gateway without a decision.
    pub(crate) exemptions: Exemptions,
    /// The treatment of encoded slashes in request paths.
    pub(crate) slashes: EncodedSlashes,
    /// The metric label of limits that requests carry themselves; `None` if no listener accepts such limits.
    pub(crate) request_limits: Option<&'static str>,
    /// The decision log, if it is on.
    pub(crate) decision_log: Option<DecisionLog>,
    /// The exporter of traces, if it is on.
    pub(crate) traces: Option<Traces>,
    /// The status and trigger of configuration reloads.
    pub(crate) reload: Reload,
    /// The file or database that holds the rules.
    pub(crate) source: RuleSource,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            rules: RuleSet::default(),
            memory: MemoryOptions::default(),
            headers: HeaderOptions::default(),
            envoy_headers: EnvoyHeaders::default(),
            admin_token: None,
            requires_token: false,
            api: ApiSettings::default(),
            tokens: Vec::new(),
            encoder: KeyEncoder::default(),
            identify: Identify::new(vec![Source::Address]),
            exemptions: Exemptions::default(),
            slashes: EncodedSlashes::default(),
            request_limits: None,
            decision_log: None,
            traces: None,
            reload: Reload::default(),
            source: RuleSource::default(),
        }
    }
}

/// The state of every handler. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<EngineState>);

#[derive(Debug)]
struct EngineState {
    limiter: Arc<ServerLimiter>,
    gate: Arc<ServerGate>,
    exemptions: Exemptions,
    slashes: EncodedSlashes,
    headers: HeaderOptions,
    envoy_headers: EnvoyHeaders,
    tokens: Tokens,
    api: ApiSettings,
    encoder: KeyEncoder,
    history: OutcomeHistory,
    reload: Reload,
    source: RuleSource,
    traces: Option<Traces>,
}

impl Engine {
    /// An engine on this store, which it shares with `instances` servers. All counters start at zero.
    pub(crate) fn new(
        options: EngineOptions,
        store: ServerStore,
        clock: SystemClock,
        instances: Instances,
    ) -> Self {
        let EngineOptions { rules, memory, headers, admin_token, tokens, encoder, identify, exemptions, .. } =
            options;
        let EngineOptions {
            slashes,
            envoy_headers,
            request_limits,
            decision_log,
            traces,
            reload,
            source,
            requires_token,
            api,
            ..
        } = options;
        reload.started(clock.now());
        let observer = ServerObserver::new(&rules, request_limits, clock.now())
            .with_decision_log(decision_log)
            .with_spans(traces.as_ref().map(|traces| traces.spans(store.name())));
        let limiter =
            Limiter::new(rules, store, clock).observed(Arc::new(observer)).with_fallback(memory, instances);
        let (gate, history) = (Gate::new(limiter, identify), OutcomeHistory::default());
        let limiter = Arc::clone(gate.limiter());
        let tokens = Tokens::new(admin_token.as_ref(), tokens).required(requires_token);
        Self(Arc::new(EngineState {
            limiter,
            gate: Arc::new(gate),
            exemptions,
            slashes,
            headers,
            envoy_headers,
            tokens,
            api,
            encoder,
            history,
            reload,
            source,
            traces,
        }))
    }

    /// The limiter.
    pub(crate) fn limiter(&self) -> &Arc<ServerLimiter> {
        &self.0.limiter
    }

    /// The gate: identity and path of an HTTP request in front of the limiter.
    pub(crate) fn gate(&self) -> &Arc<ServerGate> {
        &self.0.gate
    }

    /// Decides about an HTTP request from `peer`: see [`admit::admit`].
    pub(crate) async fn admit(&self, head: &Head<'_>, peer: IpAddr) -> Result<Option<Admission>, Problem> {
        admit::admit(&self.0.gate, &self.0.exemptions, self.0.headers, head, peer).await
    }

    /// Refreshes the signing keys of token issuers for as long as the server runs, if any issuer is configured.
    pub(crate) async fn keep_keys_fresh(&self) {
        self.0.gate.identify().keep_keys_fresh(self.limiter().clock()).await;
    }

    /// The treatment of encoded slashes in request paths.
    pub(crate) fn slashes(&self) -> EncodedSlashes {
        self.0.slashes
    }

    /// Which rate-limit headers responses carry.
    pub(crate) fn headers(&self) -> HeaderOptions {
        self.0.headers
    }

    /// Which of these headers Envoy adds to its responses.
    pub(crate) fn envoy_headers(&self) -> &EnvoyHeaders {
        &self.0.envoy_headers
    }

    /// Access control of the api listener.
    pub(crate) fn api(&self) -> &ApiSettings {
        &self.0.api
    }

    /// The admin tokens.
    pub(crate) fn admin_tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// The encoding of keys in a shared store.
    pub(crate) fn encoder(&self) -> &KeyEncoder {
        &self.0.encoder
    }

    /// The status and trigger of configuration reloads.
    pub(crate) fn reload(&self) -> &Reload {
        &self.0.reload
    }

    /// The file or database that holds the rules.
    pub(crate) fn source(&self) -> &RuleSource {
        &self.0.source
    }

    /// The exporter of traces, if it is on.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.0.traces.as_ref()
    }

    /// Decisions since the start, by outcome.
    pub(crate) fn totals(&self) -> RequestTotals {
        self.limiter().observer().totals()
    }

    /// The identities with the most requests.
    pub(crate) fn hot(&self) -> &TopClients {
        self.limiter().observer().hot()
    }

    /// Counters of the last hour, in steps.
    pub(crate) fn history(&self) -> &OutcomeHistory {
        &self.0.history
    }

    /// Appends one step to the history at each interval, for as long as the server runs.
    pub(crate) async fn keep_history(&self) {
        let mut steps = tokio::time::interval(history::STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick of an interval completes immediately.
        steps.tick().await;
        loop {
            steps.tick().await;
            let limiter = self.limiter();
            self.history().record(limiter.clock().now(), &limiter.observer().metrics().snapshot(), &self.totals());
            self.report_losses();
        }
    }

    /// Logs how many decisions the decision log left out, and how many lines the log lost.
    pub(crate) fn report_losses(&self) {
        self.limiter().observer().decision_log().into_iter().for_each(DecisionLog::log_left_out);
        telemetry::log_lost_lines();
    }

    /// The number of keys whose state this process holds.
    pub(crate) fn tracked_keys(&self) -> u64 {
        let limiter = self.limiter();
        let local_keys = limiter.local_store().map_or(0, MemoryStore::used) as u64;
        limiter.store().tracked_keys().unwrap_or(0) + local_keys
    }

    /// All metrics, in Prometheus' text format.
    pub(crate) fn metrics(&self) -> String {
        let (limiter, reload) = (self.limiter(), self.reload().status());
        let gauges = Gauges {
            is_store_up: limiter.store().health() == Health::Up,
            tracked_keys: self.tracked_keys(),
            savings: limiter.store().savings(),
            uncharged_usage: limiter.store().uncharged_usage(),
            leases: lease_bounds(limiter),
            is_config_current: reload.successful,
            config_loaded_at_ms: reload.succeeded_at,
            spans: self.traces().map(Traces::counts),
            left_out: limiter.observer().decision_log().map_or(0, DecisionLog::left_out_total),
            lost_lines: telemetry::lost_lines(),
            unauthorized: limiter.observer().identity_events().counts().collect(),
        };
        limiter.observer().metrics().text(&gauges)
    }
}

/// The over-admission bounds of each rule with leases; empty if the store has none.
fn lease_bounds(limiter: &ServerLimiter) -> Vec<(Box<str>, LeaseBounds)> {
    if !limiter.store().charges_ahead() {
        return Vec::new();
    }
    let instances = limiter.instances().count();
    let bounds = |rule: &Rule| Some((rule.space.name().into(), rule.lease_bounds(instances)?));
    limiter.rules().rules().iter().filter_map(bounds).collect()
}
