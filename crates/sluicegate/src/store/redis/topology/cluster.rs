//! A Cluster: every slot has a server, and servers say who it is when it changes.
//!
//! A redirection changes the map at once, for its slot; the whole map is read again by one task, which asks any
//! server that answers. Calls only wait for the map when there is none yet.

use super::probe_key;
use super::slots::{self, Range, SLOTS, slot_of};
use crate::store::ErrorClass;
use crate::store::redis::address::Address;
use crate::store::redis::call::{Answer, Call};
use crate::store::redis::error::{Ran, Trouble};
use crate::store::redis::node::{Common, Node, Outcome};
use crate::store::redis::pause::jittered;
use parking_lot::{Mutex, RwLock};
use redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How many servers one call may be sent to.
const HOPS_MAX: usize = 5;
/// How often the map is read while all is well.
const PAUSE_WELL: Duration = Duration::from_secs(30);
/// How often the map is read while a server is missing: soon another takes its place.
const PAUSE_UNWELL: Duration = Duration::from_millis(200);
/// How soon the map is read again at the earliest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// How many names for the probe's key are tried until each server has one in a slot of its own.
const PROBE_KEYS_MAX: u32 = 200_000;

/// A Cluster.
pub(in crate::store::redis) struct Cluster {
    map: Arc<Map>,
    _tasks: JoinSet<()>,
}

struct Map {
    common: Arc<Common>,
    seeds: Vec<Address>,
    owners: RwLock<Vec<Option<Arc<Node>>>>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    known: watch::Sender<bool>,
    last_trouble: Mutex<Option<(ErrorClass, String)>>,
}

impl Cluster {
    /// Starts to read the map, on the current runtime.
    pub(in crate::store::redis) fn start(seeds: Vec<Address>, common: Arc<Common>) -> Self {
        let owners = RwLock::new(vec![None; usize::from(SLOTS)]);
        let (nodes, known) = (Mutex::new(HashMap::new()), watch::Sender::new(false));
        let map = Arc::new(Map { common, seeds, owners, nodes, known, last_trouble: Mutex::new(None) });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_reading(Arc::clone(&map)));
        Self { map, _tasks: tasks }
    }

    /// Delivers a call, wherever servers send it.
    pub(in crate::store::redis) async fn call(
        &self,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Answer, Trouble> {
        let slot = slot_of(call.keys.first().map_or(&[], Vec::as_slice));
        self.known(deadline).await;
        let mut node = self.map.owner(slot)?;
        let mut asking = false;
        for _ in 0..HOPS_MAX {
            let elsewhere = match node.call(call, deadline, asking).await? {
                Outcome::Answered(answer) => return Ok(answer),
                Outcome::Moved(text) => {
                    asking = false;
                    self.map.moved(slot, &text, node.address())
                }
                Outcome::Ask(text) => {
                    asking = true;
                    Address::from_redirection(&text, node.address()).map(|address| self.map.node(&address))
                }
            };
            node =
                elsewhere.ok_or_else(|| Trouble::with_call(ErrorClass::Protocol, "a redirection to nowhere"))?;
        }
        self.map.common.doubt.notify_one();
        let message = format!("slot {slot} was not found on {HOPS_MAX} servers");
        Err(Trouble::with_call(ErrorClass::Unusable, message))
    }

    /// Returns when there is a map, or at the deadline.
    pub(in crate::store::redis) async fn known(&self, deadline: Instant) {
        if !*self.map.known.borrow() {
            _ = timeout_at(deadline, self.map.known.subscribe().wait_for(|known| *known)).await;
        }
    }

    /// All servers that have slots.
    pub(in crate::store::redis) fn primaries(&self) -> Option<Vec<Arc<Node>>> {
        self.map.known.borrow().then(|| self.map.primaries())
    }

    /// Why there is no map.
    pub(in crate::store::redis) fn trouble(&self) -> Option<(ErrorClass, String)> {
        self.map.last_trouble.lock().clone()
    }
}

impl Map {
    fn owner(&self, slot: u16) -> Result<Arc<Node>, Trouble> {
        let owner = self.owners.read().get(usize::from(slot)).cloned().flatten();
        owner.ok_or_else(|| {
            let last = self.last_trouble.lock().clone();
            let (class, why) = last.unwrap_or((ErrorClass::Unusable, format!("no server has slot {slot}")));
            Trouble::with_server(class, Ran::No, format!("the Cluster's map: {why}"))
        })
    }

    /// The server with this address, which may be new.
    fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let start = || Arc::new(Node::start(address.clone(), Arc::clone(&self.common), None));
        Arc::clone(nodes.entry(address.clone()).or_insert_with(start))
    }

    fn moved(&self, slot: u16, text: &str, asked: &Address) -> Option<Arc<Node>> {
        let node = self.node(&Address::from_redirection(text, asked)?);
        if let Some(owner) = self.owners.write().get_mut(usize::from(slot)) {
            *owner = Some(Arc::clone(&node));
        }
        self.common.begin_era();
        self.common.doubt.notify_one();
        Some(node)
    }

    fn primaries(&self) -> Vec<Arc<Node>> {
        distinct(&self.owners.read())
    }

    fn take(&self, ranges: &[Range]) {
        let mut owners = vec![None; usize::from(SLOTS)];
        for Range { first, last, primary } in ranges {
            owners[usize::from(*first)..=usize::from(*last)].fill(Some(self.node(primary)));
        }
        self.name_probe_keys(&owners);
        let before = std::mem::replace(&mut *self.owners.write(), owners);
        if !same(&before, &self.owners.read()) {
            self.common.begin_era();
        }
        // A server without slots is kept as long as owners send calls there: slots are moving to it.
        let needed = |address: &Address| ranges.iter().any(|range| range.primary == *address);
        self.nodes.lock().retain(|address, node| needed(address) || node.take_asked());
        *self.last_trouble.lock() = None;
        self.known.send_replace(true);
    }

    /// Finds a key for each server's probe that lies in a slot of its own.
    fn name_probe_keys(&self, owners: &[Option<Arc<Node>>]) {
        let mut nameless = distinct(owners);
        for number in 0..PROBE_KEYS_MAX {
            if nameless.is_empty() {
                return;
            }
            let key = probe_key(&self.common, number);
            let Some(owner) = &owners[usize::from(slot_of(key.as_bytes()))] else { continue };
            if let Some(index) = nameless.iter().position(|node| Arc::ptr_eq(node, owner)) {
                nameless.swap_remove(index).set_probe_key(key);
            }
        }
    }
}

/// Every server once.
fn distinct(owners: &[Option<Arc<Node>>]) -> Vec<Arc<Node>> {
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    for owner in owners.iter().flatten() {
        // Slots of one server lie next to one another, mostly.
        if !nodes.iter().rev().any(|node| Arc::ptr_eq(node, owner)) {
            nodes.push(Arc::clone(owner));
        }
    }
    nodes
}

/// Whether every slot has the same server.
fn same(left: &[Option<Arc<Node>>], right: &[Option<Arc<Node>>]) -> bool {
    left.iter().zip(right).all(|pair| match pair {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (None, None) => true,
        _ => false,
    })
}

async fn keep_reading(map: Arc<Map>) {
    loop {
        match read(&map).await {
            Ok(ranges) => map.take(&ranges),
            Err(trouble) => *map.last_trouble.lock() = Some((trouble.class, trouble.message)),
        }
        let well = *map.known.borrow() && map.primaries().iter().all(|node| node.trouble().is_none());
        sleep(PAUSE_MIN).await;
        tokio::select! {
            () = sleep(jittered(if well { PAUSE_WELL } else { PAUSE_UNWELL })) => {}
            () = map.common.doubt.notified() => {}
        }
    }
}

/// The map, from the first server that has one. Those with a connection are asked first.
async fn read(map: &Map) -> Result<Vec<Range>, Trouble> {
    let mut connected = map.primaries();
    connected.retain(|node| node.trouble().is_none());
    fastrand::shuffle(&mut connected);
    for node in connected {
        if let Ok(value) = node.ask(question()).await
            && let Some(ranges) = slots::ranges(&value, node.address())
        {
            return Ok(ranges);
        }
    }
    let mut seeds: Vec<&Address> = map.seeds.iter().collect();
    fastrand::shuffle(&mut seeds);
    let mut last = Trouble::with_server(ErrorClass::Connection, Ran::No, "no server is named");
    for seed in seeds {
        match ask_once(map, seed).await {
            Ok(ranges) => return Ok(ranges),
            Err(trouble) => last = trouble.at(seed),
        }
    }
    Err(last)
}

fn question() -> redis::Cmd {
    let mut command = redis::Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

async fn ask_once(map: &Map, seed: &Address) -> Result<Vec<Range>, Trouble> {
    let (mut connection, driver) = map.common.dialer.open(seed).await?;
    let lost = || Trouble::with_server(ErrorClass::Connection, Ran::No, "the connection was lost at once");
    let command = question();
    let value = tokio::select! {
        () = driver => return Err(lost()),
        value = timeout(map.common.read_timeout, connection.send_packed_command(&command)) => value,
    };
    match value {
        Ok(Ok(Value::ServerError(error))) => Err(Trouble::reported(&error)),
        Ok(Ok(value)) => slots::ranges(&value, seed)
            .ok_or_else(|| Trouble::with_server(ErrorClass::Unusable, Ran::No, "the server knows of no slots")),
        Ok(Err(error)) => Err(Trouble::broken(&error)),
        Err(_) => Err(Trouble::with_server(ErrorClass::Timeout, Ran::No, "no answer to CLUSTER SLOTS")),
    }
}
