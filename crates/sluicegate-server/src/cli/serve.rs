//! `sluicegate serve`: from the settings to `ready`, and from a stop signal to the exit code.
//!
//! The server prints addresses after all listeners are bound, and `ready` after all of them accept. After the first stop signal,
//! the process ends within [`STOP_WITHIN`], whatever its clients do. The admin listener stops last, so that probes can see that
//! the server is not ready.

mod announcement;
mod supervisor;

use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Error;
use announcement::{StartupAnnouncement, print_line};
use sluicegate::Instances;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::identify::address::TrustedProxies;

use crate::admin_tokens;
use crate::admit::Exemptions;
use crate::config::Config;
use crate::config::gateway::GatewaySettings;
use crate::config::identity::IdentitySettings;
use crate::config::listeners::{ListenerSettings, Listeners};
use crate::config::load::LoadError;
use crate::config::redis::RedisSettings;
use crate::engine::{Engine, EngineOptions};
use crate::envoy_ratelimit::xds::XdsSettings;
use crate::envoy_ratelimit::{self, EnvoyRatelimit};
use crate::envoy_xds::XdsClient;
use crate::envoy_xds::status::XdsStatus;
use crate::fleet::Fleet;
use crate::health::{Health, Readiness};
use crate::http::HttpEndpoints;
use crate::http::gateway::Gateway;
use crate::identify::identify_with;
use crate::net::tls::{Alpn, ListenerTls, TlsError};
use crate::net::{self, ConnectionAdmission, Drained, Listener, ListenerOptions, open_files};
use crate::reload::file::ConfigFile;
use crate::reload::{self, Reload, Reloader};
use crate::resp::{self, RespOptions, Service};
use crate::rule_documents::CompiledRules;
use crate::rule_source::RuleSource;
use crate::settings::declared::{LOG, LOG_FORMAT};
use crate::settings::{self, Env, Flags, Listen, Settings, StoreUrl};
use crate::shutdown::{Shutdown, Signals};
use crate::store::ServerStore;
use crate::sweeper::Sweeper;
use crate::telemetry;
use crate::telemetry::decision_log::DecisionLog;
use crate::telemetry::identities::IdentityDisplay;
use crate::telemetry::tally::RequestTotals;
use crate::traces::Traces;

/// The time from the stop signal to the end of the last connection. The whole process must end within 10 s.
const STOP_WITHIN: Duration = Duration::from_secs(9);

/// The part of [`STOP_WITHIN`] for the admin listener, which drains last.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// A listener ended before the stop signal.
#[derive(Debug, thiserror::Error)]
#[error("a listener stopped unexpectedly: this is a defect; see the log of the server")]
struct ListenerLost;

/// Two sources of rules are configured.
#[derive(Debug, thiserror::Error)]
#[error(
    "rules cannot come from a database and from --envoy-ratelimit or --envoy-xds at the same time; remove one of the two"
)]
struct TwoSources;

/// Serves until a stop signal.
pub(super) fn run(flags: &Flags, env: &Env, ignored: &[String]) -> Result<ExitCode, Error> {
    let theirs = envoy_ratelimit::log_variables(flags, env);
    let (level, format) = (theirs.level.as_deref(), theirs.format);
    telemetry::init(env.text(&LOG).or(level), env.text(&LOG_FORMAT).or(format))?;
    if !ignored.is_empty() {
        let arguments = ignored.join(", ");
        tracing::warn!(arguments, "these arguments are unknown, and are ignored as by envoyproxy/ratelimit");
    }
    let outcome = run_logged(flags, env);
    telemetry::flush();
    outcome
}

fn run_logged(flags: &Flags, env: &Env) -> Result<ExitCode, Error> {
    let envoy = EnvoyRatelimit::chosen(flags, env)?;
    let is_envoy = envoy.is_some();
    let xds = envoy.as_ref().and_then(EnvoyRatelimit::xds).cloned();
    let (config, reload, followed) = load(flags, env, envoy)?;
    let settings = settings::merge(flags, env, &config.settings)?;
    if is_envoy && settings.database.is_some() {
        return Err(TwoSources.into());
    }
    let health = Health::default();
    let shutdown = Shutdown::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Config { rules, keys, content, admin, api, log, traces, .. } = config;
    let Config {
        listeners, memory, redis, resp, headers, envoy_headers, proxies, identity, gateway, demo, ..
    } = config;
    let opened = RuleSource::at_start(settings.database.as_ref(), content, CompiledRules { rules, keys });
    let (source, rules) = runtime.block_on(opened)?;
    let rules = if xds.is_some() { source.expect_envoy(rules)? } else { rules };
    let (exempt, has_api_token) = (proxies.clone(), api.token.is_some());
    let identity = identity.unwrap_or_else(|| IdentitySettings::usual(demo));
    let identify = identify_with(identity, proxies, env.variables(), source.keys())?;
    let exemptions = Exemptions { paths: gateway.exempt.clone(), preflights: gateway.preflights };
    let slashes = gateway.encoded_slashes;
    let (signals, engine) = {
        // A shared store connects in the background. The signal handlers are installed first, because waiting for an
        // unreachable store takes long enough for an operator to stop the server.
        let _runtime = runtime.enter();
        let admin_token = settings.admin_token.clone();
        let request_limits = (settings.resp != Listen::Off).then_some(resp::THROTTLE_SPACE);
        let (tokens, encoder) = (admin_tokens::named(&admin.tokens, env.variables())?, redis.encoder.clone());
        let display = Arc::new(IdentityDisplay::new(&log)?);
        let decision_log = log.decisions.map(|shares| DecisionLog::new(shares, &display));
        let traces = Traces::open(traces.as_ref(), env.variables(), &exempt, &display)?;
        let requires_token = admin.require_token;
        let observed = EngineOptions { decision_log, traces, request_limits, ..EngineOptions::default() };
        let secured = EngineOptions { tokens, admin_token, requires_token, identify, exemptions, api, ..observed };
        let sourced = EngineOptions { rules, source, reload, encoder, memory, ..secured };
        let options = EngineOptions { headers, envoy_headers, slashes, ..sourced };
        (Signals::install()?, open(options, &settings.store, &redis)?)
    };
    let routers = endpoints(&gateway, demo, is_envoy, &engine, &health)?;
    let routers = routers.with_metrics(listeners.prometheus.as_ref(), &engine);
    let doors = FrontDoors { routers, resp: Service::new(engine.clone(), resp), listeners, exempt, has_api_token };

    let sweeper = Sweeper::start(Arc::clone(engine.limiter()))?;
    let reloader = followed
        .map(|followed| {
            Reloader::start(followed, engine.reload().clone(), Arc::clone(engine.gate()), engine.source().clone())
        })
        .transpose()?;
    let control_plane = xds.map(|xds| control_plane(xds, &engine));
    let outcome = runtime.block_on(async {
        tokio::spawn(signals.forward(shutdown.clone(), health.clone(), engine.reload().clone()));
        spawn_background_tasks(&engine);
        if let Some((client, first)) = control_plane {
            tokio::spawn(client.follow());
            tokio::select! {
                () = first => {}
                () = shutdown.drain().cancelled() => return Ok(ExitCode::SUCCESS),
            }
        }
        let fleet = tokio::select! {
            fleet = Fleet::join(&engine, &settings.store) => fleet,
            () = shutdown.drain().cancelled() => return Ok(ExitCode::SUCCESS),
        };
        let outcome = serve(&settings, demo, doors, &health, &shutdown).await;
        fleet.leave(&engine).await;
        outcome
    });
    drop((reloader, sweeper));
    flush_telemetry(&engine);
    // The drain deadline has cut the remaining tasks on purpose.
    runtime.shutdown_background();
    outcome
}

/// Loads the configuration: the built-in demo, or a file that is then followed for changes.
fn load(
    flags: &Flags,
    env: &Env,
    envoy: Option<EnvoyRatelimit>,
) -> Result<(Config, Reload, Option<reload::Followed>), Error> {
    let path = settings::config_path(flags, env).map(Path::to_owned);
    if path.is_none() && envoy.is_none() {
        return Ok((Config::demo().map_err(LoadError::Mistakes)?, Reload::default(), None));
    }
    envoy.iter().for_each(EnvoyRatelimit::warn_of_unused);
    let file = ConfigFile { path, envoy, flags: flags.clone(), env: env.clone() };
    let (config, reload, followed) = reload::open(file)?;
    Ok((config, reload, Some(followed)))
}

/// The endpoints of the HTTP listeners.
fn endpoints(
    gateway: &GatewaySettings,
    demo: bool,
    is_envoy: bool,
    engine: &Engine,
    health: &Health,
) -> Result<HttpEndpoints, Error> {
    let gateway = Gateway::open(gateway, engine.clone())?;
    let endpoints = HttpEndpoints::new(engine, health).with_gateway(gateway).with_demo(demo);
    Ok(if is_envoy { endpoints.with_healthcheck(engine, health) } else { endpoints })
}

/// The client of the control plane, and the wait for the configuration without which the server does not serve.
fn control_plane(settings: XdsSettings, engine: &Engine) -> (XdsClient, impl Future<Output = ()> + use<>) {
    let status = XdsStatus::new(&settings);
    engine.reload().follow_control_plane(status.clone());
    let waits = !settings.serves_without_configuration;
    let first = status.clone();
    let first = async move {
        if waits {
            tracing::info!("waiting for the first configuration: FORCE_START_WITHOUT_INITIAL_CONFIG is false");
            first.wait_until_configured().await;
        }
    };
    (XdsClient::new(settings, status, engine.source().clone(), Arc::clone(engine.gate())), first)
}

/// Starts the tasks that refresh keys, follow the rule source and record the history.
fn spawn_background_tasks(engine: &Engine) {
    let key_refresher = engine.clone();
    tokio::spawn(async move { key_refresher.keep_keys_fresh().await });
    let follower = engine.clone();
    tokio::spawn(async move {
        follower.source().follow(follower.gate(), |outcome| follower.reload().note_source(outcome)).await
    });
    let recorder = engine.clone();
    tokio::spawn(async move { recorder.keep_history().await });
}

/// Writes the remaining log lines and exports the remaining spans.
fn flush_telemetry(engine: &Engine) {
    // The queued lines first, to make room for the line about lost ones.
    telemetry::flush();
    engine.report_losses();
    engine.traces().into_iter().for_each(Traces::stop);
    let RequestTotals { allowed, denied, undecided, degraded, store_failures } = engine.totals();
    tracing::info!(allowed, denied, undecided, degraded, store_failures, "stopped");
}

/// Opens the store, and creates the engine.
fn open(options: EngineOptions, store: &StoreUrl, redis: &RedisSettings) -> Result<Engine, Error> {
    let clock = SystemClock::new();
    let store = ServerStore::open(store, options.memory, redis, clock.now())?;
    Ok(Engine::new(options, store, clock, Instances::at_least(redis.min_instances)))
}

/// What the listeners serve.
struct FrontDoors {
    routers: HttpEndpoints,
    resp: Arc<Service>,
    listeners: Listeners,
    /// Trusted proxies, which are exempt from the limit of connections per address.
    exempt: TrustedProxies,
    /// Whether the api listener requires a token.
    has_api_token: bool,
}

/// Binds, announces, serves and drains.
async fn serve(
    settings: &Settings,
    is_demo: bool,
    doors: FrontDoors,
    health: &Health,
    shutdown: &Shutdown,
) -> Result<ExitCode, Error> {
    let FrontDoors {
        routers: HttpEndpoints { gateway, api, admin, metrics },
        resp: service,
        listeners,
        exempt,
        has_api_token,
    } = doors;
    let connections_max = open_files::connections_max(open_files::raise_limit());
    let factory = ListenerFactory { connections_max, exempt };
    let gateway = factory.bind("gateway", settings.gateway, listeners.gateway, gateway).await?;
    let api = factory.bind("api", settings.api, listeners.api, api).await?;
    let admin = factory.bind("admin", settings.admin, listeners.admin, admin).await?;
    let resp = factory.bind("resp", settings.resp, listeners.resp, service).await?;
    let metrics_at = listeners.prometheus.map_or(Listen::Off, |metrics| metrics.address);
    let metrics = factory.bind("metrics", metrics_at, ListenerSettings::default(), metrics).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = %settings.store,
        has_admin_token = settings.admin_token.is_some(),
        connections_max,
        "starting"
    );
    warn_of_open_listeners(listener_of(&api), has_api_token, &resp);
    let listeners = [listener_of(&gateway), listener_of(&api), listener_of(&admin), listener_of(&resp)];
    let listeners = listeners.into_iter().chain([listener_of(&metrics)]);
    let announcement = StartupAnnouncement::of(listeners.flatten(), is_demo);

    let options = |drain| ListenerOptions { drain, connections_max, ..ListenerOptions::default() };
    let traffic_drain = STOP_WITHIN.saturating_sub(ADMIN_DRAIN);
    let mut traffic = JoinSet::new();
    for (listener, router) in [gateway, api].into_iter().flatten() {
        let drain = shutdown.drain().clone();
        traffic.spawn(net::serve(listener, router, options(traffic_drain), drain));
    }
    if let Some((listener, service)) = resp {
        let options = RespOptions { drain: traffic_drain, connections_max, ..RespOptions::default() };
        traffic.spawn(resp::serve(listener, service, options, shutdown.drain().clone()));
    }
    let traffic_is_drained = CancellationToken::new();
    let mut administration = JoinSet::new();
    for (listener, router) in [admin, metrics].into_iter().flatten() {
        let drain = traffic_is_drained.clone();
        administration.spawn(net::serve(listener, router, options(ADMIN_DRAIN), drain));
    }

    announcement.print();
    health.set(Readiness::Ready);
    print_line("ready");
    supervisor::ready();

    tokio::select! {
        // The drain is checked first, because listeners may end as soon as it begins. A listener that ends earlier has
        // panicked.
        biased;
        () = shutdown.drain().cancelled() => {}
        Some(_) = traffic.join_next() => return Err(ListenerLost.into()),
        Some(_) = administration.join_next() => return Err(ListenerLost.into()),
    }
    supervisor::stopping();
    drain(traffic, administration, &traffic_is_drained, shutdown).await
}

/// Waits until all connections are drained, the administration last, or for a second signal.
async fn drain(
    traffic: JoinSet<Drained>,
    administration: JoinSet<Drained>,
    traffic_is_drained: &CancellationToken,
    shutdown: &Shutdown,
) -> Result<ExitCode, Error> {
    let drained = async {
        let traffic = connections_cut(traffic).await;
        traffic_is_drained.cancel();
        traffic + connections_cut(administration).await
    };
    tokio::select! {
        connections_cut = drained => {
            // Connections that the deadline has cut do not count as a failure.
            tracing::info!(connections_cut, "drained");
            Ok(ExitCode::SUCCESS)
        }
        () = shutdown.at_once().cancelled() => {
            tracing::warn!("a second signal: stopped without waiting for responses in flight");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A listener and its service, if it is enabled.
type BoundListener<T> = Option<(Listener, T)>;

/// The options that all listeners share.
struct ListenerFactory {
    connections_max: NonZeroU32,
    /// Trusted proxies, which are exempt from the limit of connections per address.
    exempt: TrustedProxies,
}

impl ListenerFactory {
    /// Binds a listener with its admission control, if it is enabled.
    async fn bind<T>(
        &self,
        name: &'static str,
        listen: Listen,
        settings: ListenerSettings,
        served: T,
    ) -> Result<BoundListener<T>, Error> {
        let Listen::At(address) = listen else { return Ok(None) };
        let ListenerSettings { tls, proxy_protocol, connections_per_address } = settings;
        let alpn = if name == "resp" { Alpn::Off } else { Alpn::Http };
        let tls = tls.map(|files| ListenerTls::open(files, alpn)).transpose();
        let tls = tls.map_err(|source| ListenerTlsError { name, source })?;
        let per_address =
            connections_per_address.unwrap_or(net::connections_per_address_max(self.connections_max));
        let admission = ConnectionAdmission::new(per_address, self.exempt.clone())
            .with_proxy_protocol(proxy_protocol)
            .with_tls(tls);
        Ok(Some((Listener::bind(name, address).await?.with_admission(admission), served)))
    }
}

/// The certificate of a listener is invalid.
#[derive(Debug, thiserror::Error)]
#[error("listen.{name}.tls: {source}")]
struct ListenerTlsError {
    name: &'static str,
    source: TlsError,
}

const OPEN_API: &str =
    "other machines can reach the api listener and need no token; set api.token in the configuration";
const OPEN_RESP: &str =
    "other machines can reach the resp listener and need no password; set resp.password in the configuration";

/// Warns about listeners that other machines can use without a credential.
fn warn_of_open_listeners(api: Option<&Listener>, has_api_token: bool, resp: &BoundListener<Arc<Service>>) {
    let has_password = resp.as_ref().is_some_and(|(_, service)| service.has_password());
    for (listener, has_secret, warning) in
        [(api, has_api_token, OPEN_API), (listener_of(resp), has_password, OPEN_RESP)]
    {
        let Some(address) = listener.map(Listener::address) else { continue };
        if !address.ip().to_canonical().is_loopback() && !has_secret {
            tracing::warn!(%address, "{warning}");
        }
    }
}

fn listener_of<T>(bound: &BoundListener<T>) -> Option<&Listener> {
    bound.as_ref().map(|(listener, _)| listener)
}

/// Waits until every listener is drained.
async fn connections_cut(mut listeners: JoinSet<Drained>) -> usize {
    let mut connections_cut = 0;
    while let Some(drained) = listeners.join_next().await {
        // A listener that panicked has no connections left.
        connections_cut += drained.map_or(0, |drained| drained.connections_cut);
    }
    connections_cut
}
