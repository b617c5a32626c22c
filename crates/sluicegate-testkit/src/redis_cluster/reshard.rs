//! Moves slots from one primary to another while clients use them.
//!
//! The order of steps is the one that Redis documents. First the receiver is set to importing, so that it never rejects
//! a client redirected to it with ASKING. Then the giver is set to migrating, and the keys are sent. Finally the new
//! owner is published, again to the receiver first.

use redis::{Connection, RedisResult, Value};

use super::view::NodeView;
use crate::redis_server::{ADMINISTRATOR, ANY_PASSWORD, RedisServer};

/// The number of keys in one `MIGRATE`, which blocks both nodes.
const KEYS_AT_ONCE: &str = "100";
const MIGRATION_LIMIT_MS: &str = "5000";

pub(super) struct Move<'a> {
    pub(super) giver: &'a RedisServer,
    pub(super) receiver: &'a RedisServer,
    /// All running nodes. They may include the giver and the receiver.
    pub(super) everybody: Vec<&'a RedisServer>,
}

impl Move<'_> {
    /// Moves these slots one after the other.
    pub(super) fn run(&self, slots: &[u16]) -> RedisResult<()> {
        let mut giver = Node::new(self.giver)?;
        let mut receiver = Node::new(self.receiver)?;
        let mut everybody: Vec<Node> =
            self.everybody.iter().map(|node| Node::new(node)).collect::<Result<_, _>>()?;
        let (from, to) = (giver.id.clone(), receiver.id.clone());
        for slot in slots {
            let slot = slot.to_string();
            receiver.set_slot(&slot, "IMPORTING", &from)?;
            giver.set_slot(&slot, "MIGRATING", &to)?;
            giver.send_keys(&slot, self.receiver.port())?;
            receiver.set_slot(&slot, "NODE", &to)?;
            giver.set_slot(&slot, "NODE", &to)?;
            for node in everybody.iter_mut().filter(|node| node.is_primary) {
                node.set_slot(&slot, "NODE", &to)?;
            }
        }
        Ok(())
    }
}

/// Sends one key, which must be there.
pub(super) fn send_key(giver: &RedisServer, key: &str, to_port: u16) {
    let port = to_port.to_string();
    let target = ["MIGRATE", "127.0.0.1", &port, key, "0", MIGRATION_LIMIT_MS];
    let sent: String = giver.command(&[target.as_slice(), &["AUTH2", ADMINISTRATOR, ANY_PASSWORD]].concat());
    assert_eq!(sent, "OK", "{key} is not there");
}

/// A node and a connection to it, which is reused because a move takes thousands of commands.
struct Node {
    id: String,
    is_primary: bool,
    connection: Connection,
}

impl Node {
    fn new(server: &RedisServer) -> RedisResult<Self> {
        let mut connection = server.connection()?;
        let report: String = redis::cmd("CLUSTER").arg("NODES").query(&mut connection)?;
        let own = NodeView::read(&report).into_iter().find(NodeView::is_myself);
        let is_primary = own.as_ref().is_some_and(NodeView::is_primary);
        Ok(Self { id: own.map(|own| own.id).unwrap_or_default(), is_primary, connection })
    }

    fn set_slot(&mut self, slot: &str, state: &str, other: &str) -> RedisResult<()> {
        redis::cmd("CLUSTER").arg(&["SETSLOT", slot, state, other]).exec(&mut self.connection)
    }

    /// Sends keys until none remain; a client may still create keys during the first transfers.
    fn send_keys(&mut self, slot: &str, to_port: u16) -> RedisResult<()> {
        loop {
            let keys: Vec<Value> =
                redis::cmd("CLUSTER").arg(&["GETKEYSINSLOT", slot, KEYS_AT_ONCE]).query(&mut self.connection)?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(to_port).arg(&["", "0", MIGRATION_LIMIT_MS]);
            migrate.arg(&["AUTH2", ADMINISTRATOR, ANY_PASSWORD, "KEYS"]);
            for key in keys {
                migrate.arg(redis::from_redis_value::<Vec<u8>>(key)?);
            }
            migrate.exec(&mut self.connection)?;
        }
    }
}
