//! `sluicegate serve`: settings to listeners to `ready`, and from a signal to the exit code.
//!
//! Nothing is announced until everything is bound, `ready` is printed once every listener accepts,
//! and after the first stop signal the process ends within [`STOP_WITHIN`], whatever its clients
//! do. The admin listener stays up until the others are drained, so that readiness can be seen to
//! be off.

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
use announcement::{Announcement, print_line};
use sluicegate::Instances;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::identify::address::TrustedProxies;

use crate::admit::Exemptions;
use crate::app::{App, AppOptions};
use crate::config::Config;
use crate::config::identity::IdentitySettings;
use crate::config::listeners::{ListenerSettings, Listeners};
use crate::config::load::LoadError;
use crate::config::redis::RedisSettings;
use crate::content::Compiled;
use crate::envoy_ratelimit::EnvoyRatelimit;
use crate::fleet::Fleet;
use crate::http::Routers;
use crate::http::admin::access;
use crate::http::gateway::Gateway;
use crate::http::health::{Health, Readiness};
use crate::identify::identify_with;
use crate::net::tls::{Speaks, Tls, TlsError};
use crate::net::{self, Door, Drained, Listener, ListenerOptions, open_files};
use crate::reload::file::ConfigFile;
use crate::reload::{self, Reload, Reloader};
use crate::resp::{self, RespOptions, Service};
use crate::rule_source::RuleSource;
use crate::settings::{self, Env, Flags, Listen, Settings, StoreUrl};
use crate::shutdown::{Shutdown, Signals};
use crate::store::ServerStore;
use crate::sweeper::Sweeper;
use crate::telemetry;
use crate::telemetry::decision_log::DecisionLog;
use crate::telemetry::identities::Shown;
use crate::telemetry::tally::Totals;
use crate::traces::Traces;

/// From the stop signal to the end of the last connection. The contract says 10 s for the whole
/// process.
const STOP_WITHIN: Duration = Duration::from_secs(9);

/// What of [`STOP_WITHIN`] is kept for the admin listener, which is drained last.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// A listener ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
#[error("a listener stopped by itself, which is a fault of the server; its log says where")]
struct ListenerLost;

/// Rules come from one place.
#[derive(Debug, thiserror::Error)]
#[error("rules cannot come from a database and from --envoy-ratelimit at once; leave out one of the two")]
struct TwoSources;

/// Serves until told to stop.
pub(super) fn run(flags: &Flags, env: &Env) -> Result<ExitCode, Error> {
    telemetry::init(env.log(), env.log_format())?;
    let outcome = run_logged(flags, env);
    telemetry::flush();
    outcome
}

fn run_logged(flags: &Flags, env: &Env) -> Result<ExitCode, Error> {
    let path = settings::config_path(flags, env).map(Path::to_owned);
    let envoy = EnvoyRatelimit::chosen(flags, env)?;
    let is_envoy = envoy.is_some();
    let is_demo = path.is_none() && !is_envoy;
    let (config, reload, followed) = if is_demo {
        (Config::demo().map_err(LoadError::Mistakes)?, Reload::default(), None)
    } else {
        envoy.iter().for_each(EnvoyRatelimit::warn_of_unused);
        let file = ConfigFile { path, envoy, flags: flags.clone(), env: env.clone() };
        let (config, reload, followed) = reload::open(file)?;
        (config, reload, Some(followed))
    };
    let settings = settings::merge(flags, env, &config.settings)?;
    if is_envoy && settings.database.is_some() {
        return Err(TwoSources.into());
    }
    let health = Health::default();
    let shutdown = Shutdown::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Config { rules, keys, content, admin, log, traces, .. } = config;
    let Config { listeners, memory, redis, resp, headers, envoy_headers, proxies, identity, gateway, .. } = config;
    let opened = RuleSource::at_start(settings.database.as_ref(), content, Compiled { rules, keys });
    let (source, rules) = runtime.block_on(opened)?;
    let exempt = proxies.clone();
    let identity = identity.unwrap_or_else(|| IdentitySettings::usual(gateway.routes.is_empty()));
    let identify = identify_with(identity, proxies, env.variables(), source.keys())?;
    let exemptions = Exemptions { paths: gateway.exempt.clone(), preflights: gateway.preflights };
    let (signals, app) = {
        // A shared store connects in the background. Waiting for one that cannot be reached makes the start long
        // enough to be called off.
        let _runtime = runtime.enter();
        let (admin_token, has_resp) = (settings.admin_token.clone(), settings.resp != Listen::Off);
        let (tokens, encoder) = (access::named(&admin, env.variables())?, redis.encoder.clone());
        let shown = Arc::new(Shown::new(&log)?);
        let decision_log = log.decisions.map(|shares| DecisionLog::new(shares, &shown));
        let traces = Traces::open(traces.as_ref(), env.variables(), &exempt, &shown)?;
        let watched = AppOptions { decision_log, traces, ..AppOptions::default() };
        let whence = AppOptions { tokens, encoder, envoy_headers, source, reload, ..watched };
        let options = AppOptions { rules, memory, headers, admin_token, identify, exemptions, has_resp, ..whence };
        (Signals::install()?, open(options, &settings.store, &redis)?)
    };
    let gateway = Gateway::open(&gateway, app.clone())?;
    let is_demo = is_demo && gateway.is_none();
    let routers = Routers::new(&app, &health).with_gateway(gateway);
    let routers = if is_envoy { routers.with_healthcheck(&app, &health) } else { routers };
    let doors = Doors { routers, resp: Service::new(app.clone(), resp), listeners, exempt };

    let sweeper = Sweeper::start(Arc::clone(app.limiter()))?;
    let reloader = followed.map(|followed| Reloader::start(followed, app.clone())).transpose()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(signals.forward(shutdown.clone(), health.clone(), app.reload().clone()));
        let keys_of = app.clone();
        tokio::spawn(async move { keys_of.keep_keys_fresh().await });
        let follower = app.clone();
        tokio::spawn(async move { follower.source().follow(&follower).await });
        let history_of = app.clone();
        tokio::spawn(async move { history_of.keep_history().await });
        let fleet = tokio::select! {
            fleet = Fleet::join(&app, &settings.store) => fleet,
            () = shutdown.drain().cancelled() => return Ok(ExitCode::SUCCESS),
        };
        let outcome = serve(&settings, is_demo, doors, &health, &shutdown).await;
        fleet.leave(&app).await;
        outcome
    });
    drop((reloader, sweeper));
    tell_the_rest(&app);
    // What is still running was cut on purpose; nothing waits for it.
    runtime.shutdown_background();
    outcome
}

/// Writes and sends what is still to be told of this server.
fn tell_the_rest(app: &App) {
    // First what is told already, so that there is room to tell what was left out.
    telemetry::flush();
    app.tell_left_out();
    app.traces().into_iter().for_each(Traces::stop);
    let Totals { allowed, denied, undecided, degraded, store_failures } = app.totals();
    tracing::info!(allowed, denied, undecided, degraded, store_failures, "stopped");
}

/// Opens the store and makes an app of it and the rules.
fn open(options: AppOptions, store: &StoreUrl, redis: &RedisSettings) -> Result<App, Error> {
    let clock = SystemClock::new();
    let store = ServerStore::open(store, options.memory, redis, clock.now())?;
    Ok(App::new(options, store, clock, Instances::at_least(redis.min_instances)))
}

/// What the listeners serve.
struct Doors {
    routers: Routers,
    resp: Arc<Service>,
    listeners: Listeners,
    /// Who speaks for many clients, and may have as many connections as it likes.
    exempt: TrustedProxies,
}

/// Binds, announces, serves and drains.
async fn serve(
    settings: &Settings,
    is_demo: bool,
    doors: Doors,
    health: &Health,
    shutdown: &Shutdown,
) -> Result<ExitCode, Error> {
    let Doors { routers: Routers { gateway, api, admin }, resp: service, listeners, exempt } = doors;
    let connections_max = open_files::connections_max(open_files::raise_limit());
    let opens = Opens { connections_max, exempt };
    let gateway = opens.bind("gateway", settings.gateway, listeners.gateway, gateway).await?;
    let api = opens.bind("api", settings.api, listeners.api, api).await?;
    let admin = opens.bind("admin", settings.admin, listeners.admin, admin).await?;
    let resp = opens.bind("resp", settings.resp, listeners.resp, service).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = %settings.store,
        has_admin_token = settings.admin_token.is_some(),
        connections_max,
        "starting"
    );
    warn_if_open(&resp);
    let listeners = [listener_of(&gateway), listener_of(&api), listener_of(&admin), listener_of(&resp)];
    let announcement = Announcement::of(listeners.into_iter().flatten(), is_demo);

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
    if let Some((listener, router)) = admin {
        let drain = traffic_is_drained.clone();
        administration.spawn(net::serve(listener, router, options(ADMIN_DRAIN), drain));
    }

    announcement.print();
    health.set(Readiness::Ready);
    print_line("ready");
    supervisor::ready();

    tokio::select! {
        // Asked first, because listeners may end as soon as the drain has begun. One that ends
        // before has panicked.
        biased;
        () = shutdown.drain().cancelled() => {}
        Some(_) = traffic.join_next() => return Err(ListenerLost.into()),
        Some(_) = administration.join_next() => return Err(ListenerLost.into()),
    }
    supervisor::stopping();
    let drained = async {
        let traffic = connections_cut(traffic).await;
        traffic_is_drained.cancel();
        traffic + connections_cut(administration).await
    };
    tokio::select! {
        connections_cut = drained => {
            // A drain that had to cut connections still ends well: that is what its deadline is
            // for.
            tracing::info!(connections_cut, "drained");
            Ok(ExitCode::SUCCESS)
        }
        () = shutdown.at_once().cancelled() => {
            tracing::warn!("a second signal: stopped without waiting for answers in flight");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A listener and what it serves, if it is on.
type Bound<T> = Option<(Listener, T)>;

/// What all listeners are opened with.
struct Opens {
    connections_max: NonZeroU32,
    /// Who speaks for many clients.
    exempt: TrustedProxies,
}

impl Opens {
    /// A listener with its door, if it is on.
    async fn bind<T>(
        &self,
        name: &'static str,
        listen: Listen,
        settings: ListenerSettings,
        served: T,
    ) -> Result<Bound<T>, Error> {
        let Listen::At(address) = listen else { return Ok(None) };
        let ListenerSettings { tls, proxy_protocol, connections_per_address } = settings;
        let speaks = if name == "resp" { Speaks::Other } else { Speaks::Http };
        let tls = tls.map(|files| Tls::open(files, speaks)).transpose();
        let tls = tls.map_err(|source| ListenerFault { name, source })?;
        let per_address =
            connections_per_address.unwrap_or(net::connections_per_address_max(self.connections_max));
        let door = Door::new(per_address, self.exempt.clone()).with_proxy_protocol(proxy_protocol).with_tls(tls);
        Ok(Some((Listener::bind(name, address).await?.behind(door), served)))
    }
}

/// A listener whose certificate is no good.
#[derive(Debug, thiserror::Error)]
#[error("listen.{name}.tls: {source}")]
struct ListenerFault {
    name: &'static str,
    source: TlsError,
}

/// Whoever reaches the listener may ask, and ask for much: that is for who runs the server to know.
fn warn_if_open(resp: &Bound<Arc<Service>>) {
    let Some((listener, service)) = resp else { return };
    let address = listener.address();
    if !address.ip().to_canonical().is_loopback() && !service.has_password() {
        tracing::warn!(
            %address,
            "other machines can reach the resp listener and need no password; set resp.password in the configuration"
        );
    }
}

fn listener_of<T>(bound: &Bound<T>) -> Option<&Listener> {
    bound.as_ref().map(|(listener, _)| listener)
}

/// Waits until every listener is drained.
async fn connections_cut(mut listeners: JoinSet<Drained>) -> usize {
    let mut connections_cut = 0;
    while let Some(drained) = listeners.join_next().await {
        // A listener that panicked has nothing left to cut.
        connections_cut += drained.map_or(0, |drained| drained.connections_cut);
    }
    connections_cut
}
