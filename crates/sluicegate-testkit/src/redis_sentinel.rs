//! A real primary with replicas and sentinels, which detect its failure and elect another one.
//!
//! Servers are named by their index in [`RedisSentinels::servers`], which never changes. The current primary is always
//! queried from the sentinels.

use std::collections::HashMap;
use std::time::Duration;

use crate::poll;
use crate::redis_server::{ADMINISTRATOR, ANY_PASSWORD, Options, RedisServer, Role};

/// The name of the primary in the sentinels' configuration.
pub const SERVICE: &str = "limits";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// The time limit for sentinels to find each other or to agree; they exchange messages every two seconds.
const AGREEMENT_LIMIT: Duration = Duration::from_secs(60);

/// One primary, two replicas and three sentinels that run as long as this value lives.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinels {
    /// Starts Redis with the default options.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// Starts servers with these options; the sentinels run the same program. Returns when every replica follows and
    /// every sentinel knows all others.
    pub fn with(options: &Options) -> Self {
        let primary = RedisServer::with(options);
        let replica = options.clone().replica_of(primary.port());
        let sentinel = sentinel_options(options, primary.port());
        let replicas = (0..REPLICAS).map(|_| RedisServer::with(&replica));
        let servers: Vec<RedisServer> = std::iter::once(primary).chain(replicas).collect();
        // A sentinel discovers replicas by querying the primary, first at once and then every ten seconds.
        poll::until_true("replicas that follow", AGREEMENT_LIMIT, || {
            servers[0].info("connected_slaves").as_deref() == Some("2") && servers[1..].iter().all(follows)
        });
        let sentinels = (0..SENTINELS).map(|_| RedisServer::with(&sentinel)).collect();
        let watched = Self { servers, sentinels };
        watched.wait_until_agreed();
        watched
    }

    /// The data servers, starting with the initial primary.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The URL for clients: every sentinel, and the service name.
    pub fn url(&self) -> String {
        let sentinels: Vec<String> =
            self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis+sentinel://{}/{SERVICE}", sentinels.join(","))
    }

    /// The primary according to a majority of the sentinels, if they agree at this moment.
    pub fn primary(&self) -> Option<usize> {
        let named: Vec<u16> = self.running_sentinels().filter_map(named_primary).collect();
        (0..self.servers.len()).find(|&server| {
            let port = self.servers[server].port();
            named.iter().filter(|&&named| named == port).count() >= QUORUM
        })
    }

    /// Kills the primary, and returns it.
    pub fn kill_primary(&self) -> usize {
        let primary = poll::until("a primary to kill", AGREEMENT_LIMIT, || self.primary());
        self.servers[primary].kill();
        primary
    }

    /// Returns the server that a majority of the sentinels names instead of `old`, once it reports the role of primary
    /// itself. The others may not follow it yet.
    pub fn wait_for_new_primary(&self, old: usize) -> usize {
        poll::until("a new primary", AGREEMENT_LIMIT, || {
            self.primary().filter(|&primary| primary != old && self.is_primary(primary))
        })
    }

    /// Returns when all other running servers follow this one. After a former primary returns, sentinels wait about ten
    /// seconds before they reconfigure it.
    pub fn wait_until_followed(&self, primary: usize) {
        poll::until_true("replicas of the primary", AGREEMENT_LIMIT, || self.all_follow(primary));
    }

    /// Makes the sentinels elect another primary although the current one is healthy, and returns it.
    pub fn fail_over(&self) -> usize {
        let old = poll::until("a primary to replace", AGREEMENT_LIMIT, || self.primary());
        let sentinel = self.running_sentinels().next().unwrap_or_else(|| panic!("no sentinel is running"));
        // The sentinel refuses for a moment, until it has seen a suitable replica.
        poll::until_true("a failover that starts", AGREEMENT_LIMIT, || {
            sentinel.try_command::<()>(&["SENTINEL", "FAILOVER", SERVICE]).is_ok()
        });
        self.wait_for_new_primary(old)
    }

    /// Returns when every running sentinel sees a healthy primary, all its replicas and all other sentinels.
    pub fn wait_until_agreed(&self) {
        let others = (self.running_sentinels().count() - 1).to_string();
        let replicas = REPLICAS.to_string();
        poll::until_true("sentinels that know each other", AGREEMENT_LIMIT, || {
            self.running_sentinels().all(|sentinel| {
                let seen: HashMap<String, String> = sentinel.command(&["SENTINEL", "MASTER", SERVICE]);
                let is = |field: &str, value: &str| seen.get(field).is_some_and(|seen| seen == value);
                is("flags", "master") && is("num-slaves", &replicas) && is("num-other-sentinels", &others)
            })
        });
    }

    fn running_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running())
    }

    fn is_primary(&self, server: usize) -> bool {
        let server = &self.servers[server];
        server.is_running() && server.info("role").as_deref() == Some("master")
    }

    fn all_follow(&self, primary: usize) -> bool {
        let port = self.servers[primary].port().to_string();
        let others = (0..self.servers.len()).filter(|&server| server != primary);
        let mut running = others.map(|server| &self.servers[server]).filter(|server| server.is_running());
        running.all(|server| follows(server) && server.info("master_port").as_deref() == Some(&port))
    }
}

fn sentinel_options(options: &Options, primary: u16) -> Options {
    Options::new(options.program())
        .role(Role::Sentinel)
        .set("sentinel", &format!("monitor {SERVICE} 127.0.0.1 {primary} {QUORUM}"))
        .set("sentinel", &format!("down-after-milliseconds {SERVICE} 1000"))
        .set("sentinel", &format!("failover-timeout {SERVICE} 5000"))
        .set("sentinel", &format!("auth-user {SERVICE} {ADMINISTRATOR}"))
        .set("sentinel", &format!("auth-pass {SERVICE} {ANY_PASSWORD}"))
}

fn follows(server: &RedisServer) -> bool {
    server.info("master_link_status").as_deref() == Some("up")
}

fn named_primary(sentinel: &RedisServer) -> Option<u16> {
    let address: Option<(String, u16)> = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
    address.map(|(_, port)| port)
}
