//! A Redis Cluster: the map of slots to servers.
//!
//! A `MOVED` redirection updates its slot at once. A background task then reads the whole map again, from any server
//! that answers. Calls wait for the map only while there is none.

use super::probe_key;
use super::slots::{self, SLOTS, SlotRange, slot_of};
use crate::store::ErrorClass;
use crate::store::redis::client::address::Address;
use crate::store::redis::client::backoff::jittered;
use crate::store::redis::client::call::{Call, ScriptReply};
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::node::{Node, NodeContext, NodeOutcome};
use parking_lot::{Mutex, RwLock};
use redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The most servers that one call is sent to.
const HOPS_MAX: usize = 5;
/// The interval of map reads while all servers are healthy.
const PAUSE_WELL: Duration = Duration::from_secs(30);
/// The interval of map reads while a server is unavailable, because a failover is likely.
const PAUSE_UNWELL: Duration = Duration::from_millis(200);
/// The shortest interval between two map reads.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The most probe keys that are tried until each server has one in a slot of its own.
const PROBE_KEYS_MAX: u32 = 200_000;

/// A Cluster.
pub(crate) struct Cluster {
    map: Arc<SlotMap>,
    _tasks: JoinSet<()>,
}

struct SlotMap {
    context: Arc<NodeContext>,
    seeds: Vec<Address>,
    owners: RwLock<Vec<Option<Arc<Node>>>>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    known: watch::Sender<bool>,
    last_error: Mutex<Option<(ErrorClass, String)>>,
}

impl Cluster {
    /// Starts to read the map, on the current runtime.
    pub(crate) fn start(seeds: Vec<Address>, context: Arc<NodeContext>) -> Self {
        let owners = RwLock::new(vec![None; usize::from(SLOTS)]);
        let (nodes, known) = (Mutex::new(HashMap::new()), watch::Sender::new(false));
        let map = Arc::new(SlotMap { context, seeds, owners, nodes, known, last_error: Mutex::new(None) });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_reading(Arc::clone(&map)));
        Self { map, _tasks: tasks }
    }

    /// Delivers a call and follows redirections.
    pub(crate) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<ScriptReply, CallError> {
        let slot = slot_of(call.keys.first().map_or(&[], Vec::as_slice));
        self.known(deadline).await;
        let mut node = self.map.owner(slot)?;
        let mut asking = false;
        for _ in 0..HOPS_MAX {
            let elsewhere = match node.call(call, deadline, asking).await? {
                NodeOutcome::Answered(answer) => return Ok(answer),
                NodeOutcome::Moved(text) => {
                    asking = false;
                    self.map.moved(slot, &text, node.address())
                }
                NodeOutcome::Ask(text) => {
                    asking = true;
                    Address::from_redirection(&text, node.address()).map(|address| self.map.node(&address))
                }
            };
            node = elsewhere.ok_or_else(|| {
                CallError::of_call(ErrorClass::Protocol, "a redirection without a valid address")
            })?;
        }
        self.map.context.doubt.notify_one();
        let message = format!("slot {slot} was not found on {HOPS_MAX} servers");
        Err(CallError::of_call(ErrorClass::Unusable, message))
    }

    /// Returns when there is a map, or at the deadline.
    pub(crate) async fn known(&self, deadline: Instant) {
        if !*self.map.known.borrow() {
            _ = timeout_at(deadline, self.map.known.subscribe().wait_for(|known| *known)).await;
        }
    }

    /// All servers that own slots.
    pub(crate) fn primaries(&self) -> Option<Vec<Arc<Node>>> {
        self.map.known.borrow().then(|| self.map.primaries())
    }

    /// The owner of this slot, if it is known.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.owners.read().get(usize::from(slot)).cloned().flatten()
    }

    /// Why there is no map.
    pub(crate) fn error(&self) -> Option<(ErrorClass, String)> {
        self.map.last_error.lock().clone()
    }
}

impl SlotMap {
    fn owner(&self, slot: u16) -> Result<Arc<Node>, CallError> {
        let owner = self.owners.read().get(usize::from(slot)).cloned().flatten();
        owner.ok_or_else(|| {
            let last = self.last_error.lock().clone();
            let (class, why) = last.unwrap_or((ErrorClass::Unusable, format!("no server has slot {slot}")));
            CallError::of_server(class, Executed::No, format!("the Cluster's map: {why}"))
        })
    }

    /// The node with this address, which may be new.
    fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let start = || Arc::new(Node::start(address.clone(), Arc::clone(&self.context), None));
        Arc::clone(nodes.entry(address.clone()).or_insert_with(start))
    }

    fn moved(&self, slot: u16, text: &str, origin: &Address) -> Option<Arc<Node>> {
        let node = self.node(&Address::from_redirection(text, origin)?);
        if let Some(owner) = self.owners.write().get_mut(usize::from(slot)) {
            *owner = Some(Arc::clone(&node));
        }
        self.context.begin_generation();
        self.context.doubt.notify_one();
        Some(node)
    }

    fn primaries(&self) -> Vec<Arc<Node>> {
        distinct(&self.owners.read())
    }

    fn take(&self, ranges: &[SlotRange]) {
        let mut owners = vec![None; usize::from(SLOTS)];
        for SlotRange { first, last, primary } in ranges {
            owners[usize::from(*first)..=usize::from(*last)].fill(Some(self.node(primary)));
        }
        self.name_probe_keys(&owners);
        let before = std::mem::replace(&mut *self.owners.write(), owners);
        if !same(&before, &self.owners.read()) {
            self.context.begin_generation();
        }
        // A server without slots is kept while calls with `ASKING` go there: it is importing slots.
        let needed = |address: &Address| ranges.iter().any(|range| range.primary == *address);
        self.nodes.lock().retain(|address, node| needed(address) || node.take_asking());
        *self.last_error.lock() = None;
        self.known.send_replace(true);
    }

    /// Finds a probe key for each server, in a slot that it owns.
    fn name_probe_keys(&self, owners: &[Option<Arc<Node>>]) {
        let mut nameless = distinct(owners);
        for number in 0..PROBE_KEYS_MAX {
            if nameless.is_empty() {
                return;
            }
            let key = probe_key(&self.context, number);
            let Some(owner) = &owners[usize::from(slot_of(key.as_bytes()))] else { continue };
            if let Some(index) = nameless.iter().position(|node| Arc::ptr_eq(node, owner)) {
                nameless.swap_remove(index).set_probe_key(key);
            }
        }
    }
}

/// The distinct servers.
fn distinct(owners: &[Option<Arc<Node>>]) -> Vec<Arc<Node>> {
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    for owner in owners.iter().flatten() {
        // The slots of one server are mostly contiguous, so the search starts at the last server.
        if !nodes.iter().rev().any(|node| Arc::ptr_eq(node, owner)) {
            nodes.push(Arc::clone(owner));
        }
    }
    nodes
}

/// Whether every slot has the same owner.
fn same(left: &[Option<Arc<Node>>], right: &[Option<Arc<Node>>]) -> bool {
    left.iter().zip(right).all(|pair| match pair {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (None, None) => true,
        _ => false,
    })
}

async fn keep_reading(map: Arc<SlotMap>) {
    loop {
        match read(&map).await {
            Ok(ranges) => map.take(&ranges),
            Err(error) => *map.last_error.lock() = Some((error.class, error.message)),
        }
        let well = *map.known.borrow() && map.primaries().iter().all(|node| node.error().is_none());
        sleep(PAUSE_MIN).await;
        tokio::select! {
            () = sleep(jittered(if well { PAUSE_WELL } else { PAUSE_UNWELL })) => {}
            () = map.context.doubt.notified() => {}
        }
    }
}

/// Reads the map from the first server that has one. Connected servers come first.
async fn read(map: &SlotMap) -> Result<Vec<SlotRange>, CallError> {
    let mut connected = map.primaries();
    connected.retain(|node| node.error().is_none());
    fastrand::shuffle(&mut connected);
    for node in connected {
        if let Ok(value) = node.ask(slots_command()).await
            && let Some(ranges) = slots::ranges(&value, node.address())
        {
            return Ok(ranges);
        }
    }
    let mut seeds: Vec<&Address> = map.seeds.iter().collect();
    fastrand::shuffle(&mut seeds);
    let mut last = CallError::of_server(ErrorClass::Connection, Executed::No, "the URL names no server");
    for seed in seeds {
        match ask_once(map, seed).await {
            Ok(ranges) => return Ok(ranges),
            Err(error) => last = error.at(seed),
        }
    }
    Err(last)
}

fn slots_command() -> redis::Cmd {
    let mut command = redis::Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

async fn ask_once(map: &SlotMap, seed: &Address) -> Result<Vec<SlotRange>, CallError> {
    let (mut connection, driver, _) = map.context.dialer.open(seed).await?;
    let lost = || CallError::of_server(ErrorClass::Connection, Executed::No, "the connection was lost at once");
    let command = slots_command();
    let value = tokio::select! {
        () = driver => return Err(lost()),
        value = timeout(map.context.read_timeout, connection.send_packed_command(&command)) => value,
    };
    match value {
        Ok(Ok(Value::ServerError(error))) => Err(CallError::from_reply(&error)),
        Ok(Ok(value)) => slots::ranges(&value, seed)
            .ok_or_else(|| CallError::of_server(ErrorClass::Unusable, Executed::No, "the server has no slot map")),
        Ok(Err(error)) => Err(CallError::from_connection(&error)),
        Err(_) => Err(CallError::of_server(ErrorClass::Timeout, Executed::No, "no answer to CLUSTER SLOTS")),
    }
}
