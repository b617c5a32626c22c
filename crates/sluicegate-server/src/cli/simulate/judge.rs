//! Decides requests of a log as a server with this configuration would have: the same gate, the same limiter, the same
//! store, and a clock that shows the time of the log.
//!
//! A log has no credentials. So callers are known by their address, as the configuration's `ip` says, or by a name that
//! the log has, if the user says where: that name then counts as one that a key or a token stands for.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::HeaderValue;
use futures_util::FutureExt as _;
use sluicegate::clock::ManualClock;
use sluicegate::core::Timestamp;
use sluicegate::decision::Decision;
use sluicegate::gate::{Gate, Head, Refusal};
use sluicegate::identify::address::{TrustedProxies, X_FORWARDED_FOR, client_address, counted};
use sluicegate::identity::{DEFAULT_TENANT, Target};
use sluicegate::path::{EncodedSlashes, Path, PathPattern};
use sluicegate::rules::RuleSet;
use sluicegate::{CheckError, Limiter, MemoryStore, Request};

use super::batch::Logged;
use super::faults::Reason;
use super::suggest::Watch;
use crate::cli::Error;
use crate::config::Config;
use crate::config::identity::{IdentitySettings, SourceSettings};
use crate::identify::identify;
use crate::settings::Env;

/// How many decisions there are between two looks for states that matter no longer, and how many steps such a look takes:
/// about as many places are looked at as requests are decided, so what is kept is bounded by what is alive.
const DECISIONS_PER_SWEEP: u32 = 1_024;
const STEPS_PER_SWEEP: usize = 32;

/// Decides by one configuration.
#[derive(Debug)]
pub(super) struct Judge {
    gate: Gate<MemoryStore, ManualClock, Watch>,
    clock: ManualClock,
    exempt: Box<[PathPattern]>,
    proxies: TrustedProxies,
    ipv6_prefix: u8,
    /// Whether callers are known by the names in the log.
    is_named: bool,
    until_sweep: u32,
    no_headers: HeaderMap,
}

/// What came of a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for every line")]
pub(super) enum Judged<'l> {
    Decided(Who<'l>, Decision),
    /// It passes without being asked.
    Exempt,
    /// The gateway refuses it before it decides.
    Refused(Reason),
    /// The gateway answers 401, because nothing in the log says who asks.
    Unauthorized,
}

/// Who asks, as reports call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who<'l> {
    Address(IpAddr),
    Named { tenant: &'l str, name: &'l str },
}

/// Why a configuration cannot be tried with a log.
#[derive(Debug, thiserror::Error)]
pub(super) enum JudgeError {
    #[error(
        "callers are known by tokens or keys only, and a log has neither; \
         say which field names them with --identity, or add `ip` to `identity`"
    )]
    NobodyKnown,
    #[error("line {line}: {error}")]
    Undecided { line: u64, error: String },
}

impl Judge {
    /// Whether somebody can be known from a log.
    pub(super) fn check(config: &Config, is_named: bool) -> Result<(), JudgeError> {
        let is_by_ip = |source: &SourceSettings| matches!(source, SourceSettings::Ip);
        if is_named || settings(config).sources.iter().any(is_by_ip) {
            Ok(())
        } else {
            Err(JudgeError::NobodyKnown)
        }
    }

    /// A judge by `config`, for a log that begins at `now`; `watch` sees what is decided.
    pub(super) fn new(
        config: &Config,
        env: &Env,
        is_named: bool,
        now: Timestamp,
        watch: Watch,
    ) -> Result<Self, Error> {
        let settings = settings(config);
        let ipv6_prefix = settings.ipv6_prefix;
        let identify = identify(settings, config.proxies.clone(), env.variables())?;
        let clock = ManualClock::at(now);
        let store = MemoryStore::new(config.memory, now);
        let limiter = Limiter::new(config.rules.clone(), store, clock.clone()).observed(watch);
        Ok(Self {
            gate: Gate::new(limiter, identify),
            clock,
            exempt: config.gateway.exempt.clone(),
            proxies: config.proxies.clone(),
            ipv6_prefix,
            is_named,
            until_sweep: DECISIONS_PER_SWEEP,
            no_headers: HeaderMap::new(),
        })
    }

    /// The rules.
    pub(super) fn rules(&self) -> Arc<RuleSet> {
        self.gate.limiter().rules()
    }

    /// Decides one request, and charges it if it is allowed.
    #[inline]
    pub(super) fn decide<'l>(&mut self, logged: &Logged<'l>) -> Result<Judged<'l>, JudgeError> {
        let now = Timestamp::now(logged.at_micros);
        self.clock.set(now);
        self.sweep(now);
        if logged.method.eq_ignore_ascii_case("CONNECT") || logged.method.eq_ignore_ascii_case("TRACE") {
            return Ok(Judged::Refused(Reason::Method));
        }
        let path = match Path::parse(logged.path, EncodedSlashes::Refuse) {
            Ok(path) => path,
            Err(error) => return Ok(Judged::Refused(Reason::Path(error))),
        };
        if self.exempt.iter().any(|pattern| pattern.matches(path.matched())) {
            return Ok(Judged::Exempt);
        }
        let forwarded = (!logged.forwarded.is_empty()).then(|| forwarded(logged.forwarded));
        let headers = forwarded.as_ref().unwrap_or(&self.no_headers);
        if self.is_named && !logged.identity.is_empty() {
            return self.decide_named(logged, &path, headers);
        }
        let head = Head { method: logged.method, path: &path, authority: None, headers };
        match answered(logged.line, self.gate.decide(&head, logged.peer).now_or_never())? {
            Ok(admission) => Ok(Judged::Decided(Who::Address(admission.caller.counted()), admission.decision)),
            Err(Refusal::Unauthorized(_)) => Ok(Judged::Unauthorized),
            Err(refusal) => Err(JudgeError::Undecided { line: logged.line, error: refusal.to_string() }),
        }
    }

    /// As the gate does for somebody whose credential is good.
    fn decide_named<'l>(
        &self,
        logged: &Logged<'l>,
        path: &Path<'_>,
        headers: &HeaderMap,
    ) -> Result<Judged<'l>, JudgeError> {
        let limiter = self.gate.limiter();
        let resource = path.resource();
        let tenant = if logged.tenant.is_empty() { DEFAULT_TENANT } else { logged.tenant };
        let client = client_address(logged.peer, headers, &self.proxies);
        let is_known = limiter.rules().tiers().iter().any(|known| **known == *logged.tier);
        let request = Request {
            tenant,
            address: Some(counted(client, self.ipv6_prefix)),
            tier: is_known.then_some(logged.tier),
            target: Some(Target::new(logged.method, path.matched())),
            ..Request::new(&resource, logged.identity)
        };
        match answered(logged.line, limiter.check(&request).now_or_never())? {
            Ok(decision) => Ok(Judged::Decided(Who::Named { tenant, name: logged.identity }, decision)),
            Err(CheckError::InvalidText(_)) => Ok(Judged::Refused(Reason::Name)),
            Err(error) => Err(JudgeError::Undecided { line: logged.line, error: error.to_string() }),
        }
    }

    /// Forgets what matters no longer, a little at a time.
    fn sweep(&mut self, now: Timestamp) {
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.until_sweep = DECISIONS_PER_SWEEP;
            self.gate.limiter().store().sweep(now, STEPS_PER_SWEEP);
        }
    }
}

/// How callers are known.
fn settings(config: &Config) -> IdentitySettings {
    let usual = || IdentitySettings::usual(config.gateway.routes.is_empty());
    config.identity.clone().unwrap_or_else(usual)
}

/// What was answered at once: the store is in this process, and never waits.
fn answered<T>(line: u64, answer: Option<T>) -> Result<T, JudgeError> {
    answer.ok_or_else(|| JudgeError::Undecided { line, error: "no answer at once".to_owned() })
}

fn forwarded(text: &str) -> HeaderMap {
    let value = HeaderValue::from_str(text).ok();
    value.map(|value| (X_FORWARDED_FOR, value)).into_iter().collect()
}
