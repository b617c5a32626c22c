//! A real Redis Cluster that a test owns, with primaries, replicas, failover and slot migration.
//!
//! Nodes are named by their index in [`RedisCluster::nodes`], which never changes. The primary of a slot is always
//! queried from the running nodes. The kit creates the cluster with its own commands, because Valkey is installed here
//! without its command-line tool.

mod reshard;
mod view;

use std::time::Duration;

use crate::poll;
use crate::redis_server::{self, RedisServer, Role, field_of};
use reshard::Move;
use view::NodeView;

const SLOTS: usize = 16_384;
/// The time limit for the nodes to agree; elections need a few node timeouts.
const AGREEMENT_LIMIT: Duration = Duration::from_secs(60);

/// The options of a cluster; the default is three primaries with one replica each.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    node: redis_server::Options,
    primaries: usize,
    replicas_each: usize,
    node_timeout: Duration,
    requires_full_coverage: bool,
}

impl Options {
    /// Nodes with these options: program, settings, passwords and TLS.
    pub fn new(node: redis_server::Options) -> Self {
        let node_timeout = Duration::from_millis(1_000);
        Self { node, primaries: 3, replicas_each: 1, node_timeout, requires_full_coverage: true }
    }

    /// The number of primaries, and the number of replicas of each.
    pub fn size(mut self, primaries: usize, replicas_each: usize) -> Self {
        self.primaries = primaries;
        self.replicas_each = replicas_each;
        self
    }

    /// The silence after which a node counts as failed.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Whether one lost slot stops the whole cluster, as it does by default.
    pub fn full_coverage(mut self, required: bool) -> Self {
        self.requires_full_coverage = required;
        self
    }

    fn of_node(&self) -> redis_server::Options {
        let coverage = if self.requires_full_coverage { "yes" } else { "no" };
        self.node
            .clone()
            .role(Role::ClusterNode)
            .set("cluster-node-timeout", &self.node_timeout.as_millis().to_string())
            .set("cluster-require-full-coverage", coverage)
            // Replicas stay with their primary.
            .set("cluster-allow-replica-migration", "no")
            // A replica may take over regardless of the time since its last contact with its primary.
            .set("cluster-replica-validity-factor", "0")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(redis_server::Options::default())
    }
}

/// A cluster that runs as long as this value lives.
#[derive(Debug)]
pub struct RedisCluster {
    options: Options,
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Three primaries of Redis with a replica each.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// A cluster with these options. All nodes agree, and all replicas follow.
    pub fn with(options: &Options) -> Self {
        let count = options.primaries * (1 + options.replicas_each);
        let nodes = (0..count).map(|_| RedisServer::with(&options.of_node())).collect();
        let cluster = Self { options: options.clone(), nodes };
        cluster.share_slots();
        (1..count).for_each(|node| cluster.introduce(node));
        cluster.wait_until("nodes that know each other", |cluster| cluster.all_know_each_other());
        (options.primaries..count).for_each(|replica| cluster.follow(replica, replica % options.primaries));
        cluster.wait_until_agreed();
        cluster
    }

    /// All nodes: first the initial primaries, then the replicas, then nodes added later.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The URLs of all nodes for a client.
    pub fn url(&self) -> String {
        let urls: Vec<String> = self.nodes.iter().map(RedisServer::url).collect();
        let (scheme, first) = urls[0].split_once("://").unwrap_or(("redis", ""));
        let hosts = urls[1..].iter().map(|url| url.rsplit(['/', '@']).next().unwrap_or_default());
        let hosts: Vec<&str> = std::iter::once(first).chain(hosts).collect();
        format!("{scheme}+cluster://{}", hosts.join(","))
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.somebody().command(&["CLUSTER", "KEYSLOT", key])
    }

    /// The node that claims to serve a slot.
    pub fn primary_of(&self, slot: u16) -> usize {
        poll::until("a primary of the slot", AGREEMENT_LIMIT, || self.claims(slot))
    }

    /// The running replicas of a node.
    pub fn replicas_of(&self, primary: usize) -> Vec<usize> {
        let id = self.id(primary);
        self.own_views().filter(|(_, own)| own.primary.as_ref() == Some(&id)).map(|(node, _)| node).collect()
    }

    /// Kills the node that serves a slot, and returns it.
    pub fn kill_primary_of(&self, slot: u16) -> usize {
        let primary = self.primary_of(slot);
        self.nodes[primary].kill();
        primary
    }

    /// Returns the node that serves the slot instead of `old`, once all running nodes agree and are healthy.
    pub fn wait_for_new_primary(&self, slot: u16, old: usize) -> usize {
        let new = poll::until("a new primary of the slot", AGREEMENT_LIMIT, || {
            self.claims(slot).filter(|&claimant| claimant != old)
        });
        let id = self.id(new);
        self.wait_until("agreement on the new primary", |cluster| cluster.all_believe(slot, &id));
        new
    }

    /// Makes a replica take over in an orderly way (`CLUSTER FAILOVER`), and returns the new primary.
    pub fn fail_over(&self, slot: u16) -> usize {
        let old = self.primary_of(slot);
        let replicas = self.replicas_of(old);
        let replica = replicas.first().unwrap_or_else(|| panic!("node {old} has no running replica"));
        self.nodes[*replica].command::<()>(&["CLUSTER", "FAILOVER"]);
        self.wait_for_new_primary(slot, old)
    }

    /// Moves the first `count` slots of one node to another, including their keys, and returns them. Clients may use
    /// the slots in the meantime.
    pub fn move_slots(&self, giver: usize, receiver: usize, count: usize) -> Vec<u16> {
        let owned = self.own_view(giver);
        let slots: Vec<u16> = owned.iter().flat_map(NodeView::slots).take(count).collect();
        assert_eq!(slots.len(), count, "node {giver} has fewer slots than that");
        self.move_these(giver, receiver, &slots);
        slots
    }

    /// Moves one slot from the node that serves it to another.
    pub fn move_slot(&self, slot: u16, receiver: usize) {
        self.move_these(self.primary_of(slot), receiver, &[slot]);
    }

    /// Begins to move one slot to another node, without sending any key. [`Self::move_slot`] completes the move.
    pub fn begin_to_move(&self, slot: u16, receiver: usize) {
        let (giver, slot) = (self.primary_of(slot), slot.to_string());
        let set = |node: usize, state, other| {
            self.nodes[node].command::<()>(&["CLUSTER", "SETSLOT", &slot, state, &self.id(other)]);
        };
        set(receiver, "IMPORTING", giver);
        set(giver, "MIGRATING", receiver);
    }

    /// Sends one key of a slot in migration.
    pub fn send_key(&self, key: &str, receiver: usize) {
        let giver = &self.nodes[self.primary_of(self.slot_of(key))];
        reshard::send_key(giver, key, self.nodes[receiver].port());
    }

    /// Adds an empty node without slots, and returns its index.
    pub fn add_node(&mut self) -> usize {
        self.nodes.push(RedisServer::with(&self.options.of_node()));
        let node = self.nodes.len() - 1;
        self.introduce(node);
        self.wait_until("a node that all know", |cluster| cluster.all_know_each_other());
        self.wait_until_agreed();
        node
    }

    /// Adds a replica of a primary, and returns its index.
    pub fn add_replica_of(&mut self, primary: usize) -> usize {
        let node = self.add_node();
        self.follow(node, primary);
        self.wait_until_agreed();
        node
    }

    /// Returns when every running node is healthy, knows every other running node and, if it is a replica, follows its
    /// primary.
    pub fn wait_until_agreed(&self) {
        self.wait_until("a cluster that agrees", |cluster| {
            cluster.running().all(|node| cluster.is_well(node)) && cluster.all_see_the_same()
        });
    }

    fn share_slots(&self) {
        let primaries = self.options.primaries;
        for (index, node) in self.nodes.iter().enumerate() {
            // Distinct epochs from the start, so that no two nodes have to resolve a conflict first.
            node.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < primaries {
                let (first, next) = (SLOTS * index / primaries, SLOTS * (index + 1) / primaries);
                let (first, last) = (first.to_string(), (next - 1).to_string());
                node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
    }

    /// Every running older node meets the new one directly: waiting for gossip would take seconds.
    fn introduce(&self, node: usize) {
        let new = &self.nodes[node];
        let (_, bus): (String, String) = new.command(&["CONFIG", "GET", "cluster-port"]);
        let port = new.port().to_string();
        for older in self.nodes[..node].iter().filter(|older| older.is_running()) {
            older.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
    }

    fn follow(&self, replica: usize, primary: usize) {
        self.nodes[replica].command::<()>(&["CLUSTER", "REPLICATE", &self.id(primary)]);
    }

    fn move_these(&self, giver: usize, receiver: usize, slots: &[u16]) {
        let everybody = self.running().collect();
        let (giver, receiver) = (&self.nodes[giver], &self.nodes[receiver]);
        Move { giver, receiver, everybody }
            .run(slots)
            .unwrap_or_else(|error| panic!("cannot move slots: {error}"));
        let id: String = receiver.command(&["CLUSTER", "MYID"]);
        self.wait_until("agreement on the moved slots", |cluster| {
            slots.iter().all(|&slot| cluster.views().all(|views| owner(&views, slot) == Some(&id)))
        });
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        poll::until_true(what, AGREEMENT_LIMIT, || holds(self));
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    /// The first running node. All nodes have the same view, unless a test is about differing views.
    fn somebody(&self) -> &RedisServer {
        self.running().next().unwrap_or_else(|| panic!("no node of the cluster is running"))
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command(&["CLUSTER", "MYID"])
    }

    /// The view that each running node has of all nodes.
    fn views(&self) -> impl Iterator<Item = Vec<NodeView>> {
        self.running().map(view_of)
    }

    fn own_view(&self, node: usize) -> Option<NodeView> {
        view_of(&self.nodes[node]).into_iter().find(NodeView::is_myself)
    }

    /// The view that each running node has of itself.
    fn own_views(&self) -> impl Iterator<Item = (usize, NodeView)> {
        let running = (0..self.nodes.len()).filter(|&node| self.nodes[node].is_running());
        running.filter_map(|node| Some((node, self.own_view(node)?)))
    }

    /// The running node that claims to serve the slot; the one with the later epoch if there are two.
    fn claims(&self, slot: u16) -> Option<usize> {
        let claimants = self.own_views().filter(|(_, own)| own.is_primary() && own.owns(slot));
        claimants.max_by_key(|(_, own)| own.epoch).map(|(node, _)| node)
    }

    fn all_believe(&self, slot: u16, id: &str) -> bool {
        self.views().all(|views| owner(&views, slot).is_some_and(|owner| owner == id))
            && self.running().all(|node| self.is_well(node))
    }

    fn all_know_each_other(&self) -> bool {
        let ports: Vec<u16> = self.running().map(RedisServer::port).collect();
        let knows = |views: &[NodeView], port| views.iter().any(|view| view.port == port && view.is_settled());
        self.views().all(|views| ports.iter().all(|&port| knows(&views, port)))
    }

    /// Whether every running node sees each other one in the role that it reports itself.
    fn all_see_the_same(&self) -> bool {
        let own: Vec<NodeView> = self.own_views().map(|(_, own)| own).collect();
        let sees = |views: &[NodeView], own: &NodeView| {
            let seen = views.iter().find(|view| view.id == own.id);
            seen.is_some_and(|seen| {
                seen.is_settled() && seen.primary == own.primary && seen.slots().eq(own.slots())
            })
        };
        self.views().all(|views| own.iter().all(|own| sees(&views, own)))
    }

    fn is_well(&self, node: &RedisServer) -> bool {
        let report: String = node.command(&["CLUSTER", "INFO"]);
        let state_is_ok = field_of(&report, "cluster_state").as_deref() == Some("ok");
        let replication: String = node.command(&["INFO", "replication"]);
        let link = field_of(&replication, "master_link_status");
        state_is_ok && link.is_none_or(|link| link == "up")
    }
}

fn view_of(node: &RedisServer) -> Vec<NodeView> {
    NodeView::read(&node.command::<String>(&["CLUSTER", "NODES"]))
}

fn owner(views: &[NodeView], slot: u16) -> Option<&String> {
    views.iter().find(|view| view.is_primary() && view.owns(slot)).map(|view| &view.id)
}
