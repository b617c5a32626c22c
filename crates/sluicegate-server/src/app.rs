//! What all handlers share: the limiter, how its answers are written, and who may change things.
//!
//! An [`App`] is made once, without sockets or settings, so tests make their own with the rules they need.

use std::sync::Arc;

use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::gate::Gate;
use sluicegate::headers::HeaderOptions;
use sluicegate::hot::HotIdentities;
use sluicegate::identify::{Identify, Source};
use sluicegate::rules::{LeaseBounds, Rule, RuleSet};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::redis::KeyEncoder;
use sluicegate::store::{Health, Store as _};
use sluicegate::{Instances, Limiter, MemoryStore};
use tokio::time::MissedTickBehavior;

use crate::admit::Exemptions;
use crate::envoy_ratelimit::headers::EnvoyHeaders;
use crate::http::admin::access::{Token, Tokens};
use crate::metrics::Gauges;
use crate::reload::Reload;
use crate::resp;
use crate::rule_source::RuleSource;
use crate::secret::Secret;
use crate::store::ServerStore;
use crate::telemetry;
use crate::telemetry::decision_log::DecisionLog;
use crate::telemetry::history::{self, History};
use crate::telemetry::tally::Totals;
use crate::telemetry::watch::Watch;
use crate::traces::Traces;

/// The limiter of this server.
pub(crate) type ServerLimiter = Limiter<ServerStore, SystemClock, Arc<Watch>>;

/// The gate of this server.
pub(crate) type ServerGate = Gate<ServerStore, SystemClock, Arc<Watch>>;

/// What an [`App`] is made from.
#[derive(Debug)]
pub(crate) struct AppOptions {
    /// What applies to whom.
    pub(crate) rules: RuleSet,
    /// How much this process may hold.
    pub(crate) memory: MemoryOptions,
    /// How answers are written.
    pub(crate) headers: HeaderOptions,
    /// What of that Envoy is told to add.
    pub(crate) envoy_headers: EnvoyHeaders,
    /// What changes need; without one there are no changes.
    pub(crate) admin_token: Option<Secret>,
    /// More tokens, each with a role.
    pub(crate) tokens: Vec<Token>,
    /// How keys are written in a shared store.
    pub(crate) encoder: KeyEncoder,
    /// How callers of the gateway are known.
    pub(crate) identify: Identify,
    /// What passes the gateway without a decision.
    pub(crate) exemptions: Exemptions,
    /// Whether there is a listener on which requests may bring limits of their own.
    pub(crate) has_resp: bool,
    /// What writes decisions down, if something does.
    pub(crate) decision_log: Option<DecisionLog>,
    /// What traces requests, if something does.
    pub(crate) traces: Option<Traces>,
    /// How the rules are exchanged.
    pub(crate) reload: Reload,
    /// Where the rules come from.
    pub(crate) source: RuleSource,
}

impl Default for AppOptions {
    fn default() -> Self {
        Self {
            rules: RuleSet::default(),
            memory: MemoryOptions::default(),
            headers: HeaderOptions::default(),
            envoy_headers: EnvoyHeaders::default(),
            admin_token: None,
            tokens: Vec::new(),
            encoder: KeyEncoder::default(),
            identify: Identify::new(vec![Source::Address]),
            exemptions: Exemptions::default(),
            has_resp: false,
            decision_log: None,
            traces: None,
            reload: Reload::default(),
            source: RuleSource::default(),
        }
    }
}

/// The state of every handler. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    gate: ServerGate,
    exemptions: Exemptions,
    headers: HeaderOptions,
    envoy_headers: EnvoyHeaders,
    tokens: Tokens,
    encoder: KeyEncoder,
    history: History,
    reload: Reload,
    source: RuleSource,
    traces: Option<Traces>,
}

impl App {
    /// An app with this store, which it shares with so many instances, and nothing counted yet.
    pub(crate) fn new(options: AppOptions, store: ServerStore, clock: SystemClock, instances: Instances) -> Self {
        let AppOptions { rules, memory, headers, admin_token, tokens, encoder, identify, exemptions, .. } =
            options;
        let AppOptions { envoy_headers, has_resp, decision_log, traces, reload, source, .. } = options;
        reload.started(clock.now());
        let watch = Watch::new(&rules, has_resp.then_some(resp::THROTTLE_SPACE), clock.now())
            .with_decision_log(decision_log)
            .with_spans(traces.as_ref().map(|traces| traces.spans(store.name())));
        let limiter = Limiter::new(rules, store, clock).observed(Arc::new(watch)).with_fallback(memory, instances);
        let (gate, history) = (Gate::new(limiter, identify), History::default());
        let tokens = Tokens::new(admin_token.as_ref(), tokens);
        Self(Arc::new(Shared {
            gate,
            exemptions,
            headers,
            envoy_headers,
            tokens,
            encoder,
            history,
            reload,
            source,
            traces,
        }))
    }

    /// Who decides.
    pub(crate) fn limiter(&self) -> &Arc<ServerLimiter> {
        self.0.gate.limiter()
    }

    /// Who decides about HTTP requests.
    pub(crate) fn gate(&self) -> &ServerGate {
        &self.0.gate
    }

    /// Fetches the keys of issuers, for ever, if there are any to fetch.
    pub(crate) async fn keep_keys_fresh(&self) {
        self.0.gate.identify().keep_keys_fresh(self.limiter().clock()).await;
    }

    /// What passes without a decision.
    pub(crate) fn exemptions(&self) -> &Exemptions {
        &self.0.exemptions
    }

    /// How rate-limit headers are written.
    pub(crate) fn headers(&self) -> HeaderOptions {
        self.0.headers
    }

    /// Which header fields Envoy is told to add.
    pub(crate) fn envoy_headers(&self) -> &EnvoyHeaders {
        &self.0.envoy_headers
    }

    /// What changes need.
    pub(crate) fn admin_token(&self) -> &Tokens {
        &self.0.tokens
    }

    /// How keys are written in a shared store.
    pub(crate) fn encoder(&self) -> &KeyEncoder {
        &self.0.encoder
    }

    /// How the rules are exchanged, and how the last exchange went.
    pub(crate) fn reload(&self) -> &Reload {
        &self.0.reload
    }

    /// Where the rules come from.
    pub(crate) fn source(&self) -> &RuleSource {
        &self.0.source
    }

    /// What traces requests, if something does.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.0.traces.as_ref()
    }

    /// What was decided so far.
    pub(crate) fn totals(&self) -> Totals {
        self.limiter().observer().totals()
    }

    /// The busiest identities.
    pub(crate) fn hot(&self) -> &HotIdentities {
        self.limiter().observer().hot()
    }

    /// The last hour.
    pub(crate) fn history(&self) -> &History {
        &self.0.history
    }

    /// Writes down what happens, step by step, for ever.
    pub(crate) async fn keep_history(&self) {
        let mut steps = tokio::time::interval(history::STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is over at once.
        steps.tick().await;
        loop {
            steps.tick().await;
            let limiter = self.limiter();
            self.history().write(limiter.clock().now(), &limiter.observer().metrics().snapshot(), &self.totals());
            self.tell_left_out();
        }
    }

    /// Tells of decisions that were left out of the decision log, and of lines that the log lost.
    pub(crate) fn tell_left_out(&self) {
        self.limiter().observer().decision_log().into_iter().for_each(DecisionLog::tell_left_out);
        telemetry::tell_lost_lines();
    }

    /// How many keys have their state in this process.
    pub(crate) fn tracked_keys(&self) -> u64 {
        let limiter = self.limiter();
        let local_keys = limiter.local_store().map_or(0, MemoryStore::used) as u64;
        limiter.store().tracked_keys().unwrap_or(0) + local_keys
    }

    /// All metrics, in Prometheus' text format.
    pub(crate) fn metrics(&self) -> String {
        let limiter = self.limiter();
        let gauges = Gauges {
            is_store_up: limiter.store().health() == Health::Up,
            tracked_keys: self.tracked_keys(),
            savings: limiter.store().savings(),
            leases: lease_bounds(limiter),
            reload: self.reload().status(),
            spans: self.traces().map(Traces::counts),
            left_out: limiter.observer().decision_log().map_or(0, DecisionLog::left_out_total),
            lost_lines: telemetry::lost_lines(),
            unauthorized: limiter.observer().callers().counts().collect(),
        };
        limiter.observer().metrics().text(&gauges)
    }
}

/// What charging ahead may cost under each rule, if the store does it.
fn lease_bounds(limiter: &ServerLimiter) -> Vec<(Box<str>, LeaseBounds)> {
    if !limiter.store().charges_ahead() {
        return Vec::new();
    }
    let instances = limiter.instances().count();
    let bounds = |rule: &Rule| Some((rule.space.name().into(), rule.lease_bounds(instances)?));
    limiter.rules().rules().iter().filter_map(bounds).collect()
}
