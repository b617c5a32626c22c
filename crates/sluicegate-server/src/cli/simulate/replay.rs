//! Replays logs against a configuration. One thread reads lines; this one decides them strictly in their order.
//!
//! The decisions are those of a server with this configuration: the same gate, limiter and embedded store, and a clock that
//! shows the time of the log. A log has no credentials. Clients are therefore identified by address, as the source `ip` of
//! the configuration does it, or by a field of the log if the user names one. Such a name counts as a verified identity.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use axum::http::HeaderMap;
use axum::http::header::HeaderValue;
use futures_util::FutureExt as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sluicegate::clock::ManualClock;
use sluicegate::core::Timestamp;
use sluicegate::decision::Decision;
use sluicegate::gate::{Gate, Head, Refusal};
use sluicegate::identify::address::{TrustedProxies, X_FORWARDED_FOR, client_address, counted};
use sluicegate::identity::{DEFAULT_TENANT, Target};
use sluicegate::path::{EncodedSlashes, Path, PathPattern};
use sluicegate::rules::RuleSet;
use sluicegate::{CheckError, Limiter, MemoryStore, Request};

use super::batch::{LoggedRequest, RequestBatch};
use super::clients::LoggedClient;
use super::compare::ConfigComparison;
use super::reader::{self, BATCHES, BatchRing, LogFiles, ReadResult};
use super::rejected_lines::{LineRejection, RejectedLines};
use super::source::{self, BytesRead};
use super::suggest::SuggestObserver;
use super::tally::ReplayTally;
use crate::admit::covers_all_readings;
use crate::cli::Error;
use crate::config::Config;
use crate::config::identity::{IdentitySettings, SourceSettings};
use crate::identify::identify;
use crate::settings::Env;

/// The decisions between two sweeps of the store, and the steps per sweep. A sweep visits about as many places as requests were
/// decided since the last one, so the state in memory stays proportional to the live state.
const DECISIONS_PER_SWEEP: u32 = 1_024;
const STEPS_PER_SWEEP: usize = 32;

/// How often the progress bar is drawn, per second.
const DRAWN_PER_SECOND: u8 = 5;

/// The result of a replay.
#[derive(Debug)]
pub(super) struct ReplayResult {
    pub(super) read: ReadResult,
    pub(super) tally: ReplayTally,
    pub(super) comparison: Option<ConfigComparison>,
    /// Lines that are requests, but that the gateway rejects before a decision.
    pub(super) rejected: RejectedLines,
}

/// The gates that decide every request, created at the time of the first line.
#[derive(Debug)]
pub(super) struct Gates {
    pub(super) gate: ReplayGate,
    pub(super) comparison: Option<ConfigComparison>,
}

/// The gates and the tally of their decisions.
struct RunningReplay {
    gates: Gates,
    tally: ReplayTally,
    rejected: RejectedLines,
}

/// Replays the logs. `gates_at` creates the gates for the time of the first line.
pub(super) fn replay(
    logs: &LogFiles,
    gates_at: impl FnOnce(Timestamp) -> Result<Gates, Error>,
) -> Result<ReplayResult, Error> {
    let (full_sender, full) = sync_channel(BATCHES);
    let (empty, empty_receiver) = sync_channel(BATCHES);
    let bytes_read = BytesRead::default();
    let progress = ReplayProgress::new(source::total_bytes(&logs.paths), bytes_read.clone());
    thread::scope(|scope| {
        let ring = BatchRing { full: full_sender, empty: empty_receiver };
        let reading = scope.spawn(|| reader::read(logs, &bytes_read, ring));
        let decided = decide_all(&full, &empty, gates_at, &progress);
        // After an error, closed channels stop the reader.
        drop((full, empty));
        let read = reading.join().map_err(|_| "the thread that reads the log panicked: this is a defect")?;
        progress.bar.finish_and_clear();
        let RunningReplay { tally, rejected, gates } = decided?;
        Ok(ReplayResult { read: read?, tally, comparison: gates.comparison, rejected })
    })
}

fn decide_all(
    full: &Receiver<RequestBatch>,
    empty: &SyncSender<RequestBatch>,
    gates_at: impl FnOnce(Timestamp) -> Result<Gates, Error>,
    progress: &ReplayProgress,
) -> Result<RunningReplay, Error> {
    for _ in 0..BATCHES {
        // The reader of a short log may have finished already.
        let _ = empty.send(RequestBatch::default());
    }
    let first = full.recv().unwrap_or_default();
    let now = first.requests().next().map_or(0, |logged| logged.at_micros);
    let gates = gates_at(Timestamp::now(now))?;
    let tally = ReplayTally::new(&gates.gate.rules());
    let mut replay = RunningReplay { gates, tally, rejected: RejectedLines::default() };
    let mut next = Some(first);
    while let Some(batch) = next {
        for logged in batch.requests() {
            replay.decide(&logged)?;
        }
        progress.update(replay.tally.requests.total());
        // After the end of the log, the reader is gone, but its last batches are still in the channel.
        let _ = empty.send(batch);
        next = full.recv().ok();
    }
    Ok(replay)
}

impl RunningReplay {
    #[inline]
    fn decide(&mut self, logged: &LoggedRequest<'_>) -> Result<(), Error> {
        let first = match self.gates.gate.decide(logged)? {
            ReplayOutcome::Decided(client, decision) => {
                self.tally.add_decision(logged, client, &decision);
                Some((client, decision.is_allowed()))
            }
            ReplayOutcome::Exempt => {
                self.tally.add_exempt(logged);
                Some((LoggedClient::Address(logged.peer), true))
            }
            ReplayOutcome::Unauthorized => {
                self.tally.unauthorized += 1;
                None
            }
            ReplayOutcome::Rejected(reason) => {
                self.rejected.add(logged.log, logged.line, reason, logged.path.as_bytes());
                None
            }
        };
        if let Some(comparison) = &mut self.gates.comparison {
            comparison.decide(logged, first)?;
        }
        Ok(())
    }
}

/// A progress bar if the size of the logs is known, else a counter. It appears on a terminal only.
#[derive(Debug)]
struct ReplayProgress {
    bar: ProgressBar,
    bytes_read: BytesRead,
}

impl ReplayProgress {
    fn new(total_bytes: Option<u64>, bytes_read: BytesRead) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWN_PER_SECOND);
        let bar = ProgressBar::with_draw_target(total_bytes, target);
        let template = match total_bytes {
            Some(_) => "{bar:32} {percent:>3} %  {bytes_per_sec}  {msg}  {eta} left",
            None => "{spinner} {bytes} read  {bytes_per_sec}  {msg}",
        };
        // The templates are constants. If one is invalid, the default style appears.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, bytes_read }
    }

    /// Shows the number of decided requests.
    fn update(&self, requests: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_message(format!("{requests} requests"));
        self.bar.set_position(self.bytes_read.get());
    }
}

/// Decides requests of a log under one configuration.
#[derive(Debug)]
pub(super) struct ReplayGate {
    gate: Gate<MemoryStore, ManualClock, SuggestObserver>,
    clock: ManualClock,
    exempt: Box<[PathPattern]>,
    slashes: EncodedSlashes,
    proxies: TrustedProxies,
    ipv6_prefix: u8,
    /// Whether a name in the log identifies the client.
    is_named: bool,
    until_sweep: u32,
    no_headers: HeaderMap,
}

/// The outcome of a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for every line")]
pub(super) enum ReplayOutcome<'l> {
    Decided(LoggedClient<'l>, Decision),
    /// The path is exempt, so the request passes without a decision.
    Exempt,
    /// The gateway rejects the request before a decision.
    Rejected(LineRejection),
    /// The gateway answers 401, because nothing in the log identifies the client.
    Unauthorized,
}

/// The reason why a configuration cannot be tested with a log.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error(
        "the configuration identifies clients by tokens or keys only, and a log has neither; \
         name the field with their identity with --identity, or add `ip` to `identity`"
    )]
    NoIdentity,
    #[error("line {line}: {error}")]
    Undecided { line: u64, error: String },
}

impl ReplayGate {
    /// Checks that the configuration can identify clients of a log.
    pub(super) fn check(config: &Config, is_named: bool) -> Result<(), ReplayError> {
        let is_by_ip = |source: &SourceSettings| matches!(source, SourceSettings::Ip);
        if is_named || identity_settings(config).sources.iter().any(is_by_ip) {
            Ok(())
        } else {
            Err(ReplayError::NoIdentity)
        }
    }

    /// A gate for a log that begins at `now`. `observer` observes all decisions.
    pub(super) fn new(
        config: &Config,
        env: &Env,
        is_named: bool,
        now: Timestamp,
        observer: SuggestObserver,
    ) -> Result<Self, Error> {
        let settings = identity_settings(config);
        let ipv6_prefix = settings.ipv6_prefix;
        let identify = identify(settings, config.proxies.clone(), env.variables())?;
        let clock = ManualClock::at(now);
        let store = MemoryStore::new(config.memory, now);
        let limiter = Limiter::new(config.rules.clone(), store, clock.clone()).observed(observer);
        Ok(Self {
            gate: Gate::new(limiter, identify),
            clock,
            exempt: config.gateway.exempt.clone(),
            slashes: config.gateway.encoded_slashes,
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
    pub(super) fn decide<'l>(&mut self, logged: &LoggedRequest<'l>) -> Result<ReplayOutcome<'l>, ReplayError> {
        let now = Timestamp::now(logged.at_micros);
        self.clock.set(now);
        self.sweep(now);
        if logged.method.eq_ignore_ascii_case("CONNECT") || logged.method.eq_ignore_ascii_case("TRACE") {
            return Ok(ReplayOutcome::Rejected(LineRejection::Method));
        }
        let path = match Path::parse(logged.path, self.slashes) {
            Ok(path) => path,
            Err(error) => return Ok(ReplayOutcome::Rejected(LineRejection::Path(error))),
        };
        if covers_all_readings(&self.exempt, &path) {
            return Ok(ReplayOutcome::Exempt);
        }
        let forwarded = (!logged.forwarded.is_empty()).then(|| forwarded(logged.forwarded));
        let headers = forwarded.as_ref().unwrap_or(&self.no_headers);
        if self.is_named && !logged.identity.is_empty() {
            return self.decide_named(logged, &path, headers);
        }
        let head = Head { method: logged.method, path: &path, authority: None, headers };
        match ready(logged.line, self.gate.decide(&head, logged.peer).now_or_never())? {
            Ok(admission) => {
                let address: IpAddr = admission.client.counted();
                Ok(ReplayOutcome::Decided(LoggedClient::Address(address), admission.decision))
            }
            Err(Refusal::Unauthorized(_)) => Ok(ReplayOutcome::Unauthorized),
            Err(refusal) => Err(ReplayError::Undecided { line: logged.line, error: refusal.to_string() }),
        }
    }

    /// Decides a request as the gate does for a client with a verified credential.
    fn decide_named<'l>(
        &self,
        logged: &LoggedRequest<'l>,
        path: &Path<'_>,
        headers: &HeaderMap,
    ) -> Result<ReplayOutcome<'l>, ReplayError> {
        let limiter = self.gate.limiter();
        let resource = path.resource();
        let tenant = if logged.tenant.is_empty() { DEFAULT_TENANT } else { logged.tenant };
        let client = client_address(logged.peer, headers, &self.proxies);
        let is_known = limiter.rules().tiers().iter().any(|known| **known == *logged.tier);
        let request = Request {
            tenant,
            address: Some(counted(client, self.ipv6_prefix)),
            tier: is_known.then_some(logged.tier),
            target: Some(Target::of(logged.method, path)),
            ..Request::new(&resource, logged.identity)
        };
        match ready(logged.line, limiter.check(&request).now_or_never())? {
            Ok(decision) => {
                Ok(ReplayOutcome::Decided(LoggedClient::Named { tenant, name: logged.identity }, decision))
            }
            Err(CheckError::InvalidText(_)) => Ok(ReplayOutcome::Rejected(LineRejection::Name)),
            Err(error) => Err(ReplayError::Undecided { line: logged.line, error: error.to_string() }),
        }
    }

    /// Removes expired state from the store, a little at a time.
    fn sweep(&mut self, now: Timestamp) {
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.until_sweep = DECISIONS_PER_SWEEP;
            self.gate.limiter().store().sweep(now, STEPS_PER_SWEEP);
        }
    }
}

fn identity_settings(config: &Config) -> IdentitySettings {
    let usual = || IdentitySettings::usual(config.demo);
    config.identity.clone().unwrap_or_else(usual)
}

/// The value of a future that must be ready: the embedded store never waits.
fn ready<T>(line: u64, value: Option<T>) -> Result<T, ReplayError> {
    value.ok_or_else(|| ReplayError::Undecided {
        line,
        error: "the embedded store did not reply at once".to_owned(),
    })
}

fn forwarded(text: &str) -> HeaderMap {
    let value = HeaderValue::from_str(text).ok();
    value.map(|value| (X_FORWARDED_FOR, value)).into_iter().collect()
}
