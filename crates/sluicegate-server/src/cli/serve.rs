//! `sluicegate serve`: settings to listeners to `ready`, and from a signal to the exit code.
//!
//! Nothing is announced until everything is bound, `ready` is printed once every listener accepts,
//! and after the first stop signal the process ends within [`STOP_WITHIN`], whatever its clients
//! do. The admin listener stays up until the others are drained, so that readiness can be seen to
//! be off.

use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Error;
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
use crate::envoy_ratelimit::EnvoyRatelimit;
use crate::fleet::Fleet;
use crate::http::Routers;
use crate::http::gateway::Gateway;
use crate::http::health::{Health, Readiness};
use crate::identify::identify;
use crate::net::tls::{Speaks, Tls, TlsError};
use crate::net::{self, Door, Drained, Listener, ListenerOptions, open_files};
use crate::reload::file::ConfigFile;
use crate::reload::{self, Reload, Reloader};
use crate::resp::{self, RespOptions, Service};
use crate::settings::{self, Env, Flags, Listen, Settings, StoreUrl};
use crate::shutdown::{Shutdown, Signals};
use crate::store::ServerStore;
use crate::sweeper::Sweeper;
use crate::telemetry;
use crate::telemetry::tally::Totals;

/// From the stop signal to the end of the last connection. The contract says 10 s for the whole
/// process.
const STOP_WITHIN: Duration = Duration::from_secs(9);

/// What of [`STOP_WITHIN`] is kept for the admin listener, which is drained last.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// A listener ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
#[error("a listener stopped by itself, which is a fault of the server; its log says where")]
struct ListenerLost;

/// Serves until told to stop.
pub(super) fn run(flags: &Flags, env: &Env) -> Result<ExitCode, Error> {
    telemetry::init(env.log())?;
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
    let health = Health::default();
    let shutdown = Shutdown::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Config { listeners, memory, redis, resp, headers, proxies, identity, gateway, rules, .. } = config;
    let exempt = proxies.clone();
    let identity = identity.unwrap_or_else(|| IdentitySettings::usual(gateway.routes.is_empty()));
    let identify = identify(identity, proxies, env.variables())?;
    let exemptions = Exemptions { paths: gateway.exempt.clone(), preflights: gateway.preflights };
    let (signals, app) = {
        // A shared store connects in the background. Waiting for one that cannot be reached makes the start long
        // enough to be called off.
        let _runtime = runtime.enter();
        let (admin_token, has_resp) = (settings.admin_token.clone(), settings.resp != Listen::Off);
        let options = AppOptions { rules, memory, headers, admin_token, identify, exemptions, has_resp, reload };
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
    let Totals { allowed, denied, undecided, degraded, store_failures } = app.totals();
    tracing::info!(allowed, denied, undecided, degraded, store_failures, "stopped");
    // What is still running was cut on purpose; nothing waits for it.
    runtime.shutdown_background();
    outcome
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

    tokio::select! {
        // Asked first, because listeners may end as soon as the drain has begun. One that ends
        // before has panicked.
        biased;
        () = shutdown.drain().cancelled() => {}
        Some(_) = traffic.join_next() => return Err(ListenerLost.into()),
        Some(_) = administration.join_next() => return Err(ListenerLost.into()),
    }
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

/// What is printed before `ready`.
struct Announcement {
    listening: Vec<(&'static str, SocketAddr)>,
    /// Those of them that speak TLS.
    with_tls: Vec<&'static str>,
    /// Whether the built-in configuration is in use, so that it is known what there is to try.
    is_demo: bool,
}

impl Announcement {
    fn of<'l>(listeners: impl Iterator<Item = &'l Listener> + Clone, is_demo: bool) -> Self {
        let with_tls = listeners.clone().filter(|listener| listener.has_tls()).map(Listener::name).collect();
        let listening = listeners.map(|listener| (listener.name(), listener.address())).collect();
        Self { listening, with_tls, is_demo }
    }

    fn print(&self) {
        for (name, address) in &self.listening {
            print_line(&format!("listening {name} {address}"));
        }
        for hint in self.hints() {
            print_line(&hint);
        }
    }

    /// Lines to paste, for what is on.
    fn hints(&self) -> Vec<String> {
        let at = |wanted| {
            let found = self.listening.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, address)| Reachable(*address))
        };
        let scheme = |name| if self.with_tls.contains(&name) { "https" } else { "http" };
        let gateway = at("gateway").filter(|_| self.is_demo).map(|address| {
            format!("try: curl -i -H 'X-API-Key: demo-key' {}://{address}/api/ping", scheme("gateway"))
        });
        let api = at("api").map(|address| {
            let body = if self.is_demo {
                r#"{"resource":"demo","identifier":"alice"}"#
            } else {
                r#"{"resource":"RESOURCE","identifier":"IDENTIFIER"}"#
            };
            let scheme = scheme("api");
            format!("try: curl -s {scheme}://{address}/v1/check -H 'content-type: application/json' -d '{body}'")
        });
        let resp = at("resp").map(|reachable| {
            let address = reachable.local();
            let tls = if self.with_tls.contains(&"resp") { " --tls" } else { "" };
            format!("try: redis-cli{tls} -h {} -p {} CL.THROTTLE alice 15 30 60", address.ip(), address.port())
        });
        let hints: Vec<_> = gateway.into_iter().chain(api).chain(resp).collect();
        if hints.is_empty() {
            return at("admin")
                .map(|address| format!("try: curl -i {}://{address}/readyz", scheme("admin")))
                .into_iter()
                .collect();
        }
        hints
    }
}

/// An address as a client on this machine can use it: one that stands for all becomes loopback.
struct Reachable(SocketAddr);

impl Reachable {
    fn local(&self) -> SocketAddr {
        let ip = match self.0.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        SocketAddr::new(ip, self.0.port())
    }
}

impl fmt::Display for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.local().fmt(f)
    }
}

/// Scripts wait for these lines, so they are plain whatever the log's form. A closed stderr is no
/// reason to stop serving.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(listening: &[(&'static str, &str)], is_demo: bool) -> Announcement {
        let parsed = listening.iter().map(|(name, address)| (*name, address.parse().expect("an address")));
        Announcement { listening: parsed.collect(), with_tls: vec![], is_demo }
    }

    fn hints(listening: &[(&'static str, &str)]) -> Vec<String> {
        announcement(listening, true).hints()
    }

    #[test]
    fn the_hints_name_addresses_that_a_client_can_use() {
        let ping = |at: &str| format!("try: curl -i -H 'X-API-Key: demo-key' http://{at}/api/ping");
        for (bound, reachable) in [
            ("127.0.0.1:43121", "127.0.0.1:43121"),
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
        ] {
            assert_eq!(hints(&[("gateway", bound)]), [ping(reachable)]);
        }
    }

    #[test]
    fn the_hints_speak_tls_where_the_listener_does() {
        let plain = announcement(&[("api", "127.0.0.1:2"), ("resp", "127.0.0.1:4")], false);
        let hints = Announcement { with_tls: vec!["api", "resp"], ..plain }.hints();
        assert!(hints[0].starts_with("try: curl -s https://127.0.0.1:2/v1/check"), "{hints:?}");
        assert!(hints[1].starts_with("try: redis-cli --tls -h 127.0.0.1"), "{hints:?}");
    }

    #[test]
    fn with_a_file_the_hints_assume_nothing_of_what_is_in_it() {
        let hints = |listening: &[_]| announcement(listening, false).hints();
        let check = r#"try: curl -s http://127.0.0.1:2/v1/check -H 'content-type: application/json' -d '{"resource":"RESOURCE","identifier":"IDENTIFIER"}'"#;
        assert_eq!(hints(&[("gateway", "127.0.0.1:1"), ("api", "127.0.0.1:2")]), [check]);
        assert!(hints(&[("gateway", "127.0.0.1:1")]).is_empty());
    }

    #[test]
    fn only_what_is_on_is_hinted_at() {
        let check = r#"try: curl -s http://127.0.0.1:2/v1/check -H 'content-type: application/json' -d '{"resource":"demo","identifier":"alice"}'"#;
        assert_eq!(hints(&[("api", "127.0.0.1:2"), ("admin", "127.0.0.1:3")]), [check]);
        assert_eq!(hints(&[("gateway", "127.0.0.1:1"), ("api", "127.0.0.1:2")]).len(), 2);
        let throttle = "try: redis-cli -h ::1 -p 4 CL.THROTTLE alice 15 30 60";
        assert_eq!(hints(&[("admin", "127.0.0.1:3"), ("resp", "[::]:4")]), [throttle]);
        assert_eq!(hints(&[("admin", "127.0.0.1:3")]), ["try: curl -i http://127.0.0.1:3/readyz"]);
        assert!(hints(&[]).is_empty());
    }
}
