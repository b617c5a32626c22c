//! How many servers share the store: each says once a second that it lives, and hears how many do.
//!
//! The count matters only while the store is gone, when every server decides for its share by itself; then the last
//! one heard of counts. A server that ends says so; one that vanishes is forgotten after [`LIFETIME`].

use super::call::{Call, Repeat, Script, Word};
use super::pause::jittered;
use super::servers::Servers;
use crate::instances::Instances;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How often a server is heard of, give or take a fifth.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a server counts after it was last heard of: a few heartbeats may be lost.
const LIFETIME: Duration = Duration::from_secs(5);
/// How long a heartbeat may take.
const WITHIN: Duration = Duration::from_secs(1);

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/heartbeat.lua")));

/// Says that this server lives until it is told to stop or dropped.
#[derive(Debug)]
#[must_use = "dropped, it ends"]
pub struct Heartbeat {
    pulse: Pulse,
    task: JoinHandle<()>,
}

/// What is said.
#[derive(Clone, Debug)]
struct Pulse {
    servers: Arc<Servers>,
    key: Vec<u8>,
    instance: String,
    instances: Instances,
}

impl Heartbeat {
    /// Begins to say so, on the current runtime, and to keep `instances` right.
    pub(super) fn start(servers: Arc<Servers>, key_start: &str, instances: Instances) -> Self {
        let key = format!("{key_start}{{instances}}").into_bytes();
        let pulse = Pulse { servers, key, instance: format!("{:016x}", fastrand::u64(..)), instances };
        let beats = pulse.clone();
        let task = tokio::spawn(async move {
            loop {
                beats.say(LIFETIME).await;
                sleep(jittered(INTERVAL)).await;
            }
        });
        Self { pulse, task }
    }

    /// Says that this server leaves, so that the others need not wait until it is forgotten.
    pub async fn stop(self) {
        self.task.abort();
        self.pulse.say(Duration::ZERO).await;
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pulse {
    /// Says that this server counts for `lifetime` from now. A store that does not answer leaves the count as it was.
    async fn say(&self, lifetime: Duration) {
        let lifetime = lifetime.as_micros().to_string();
        let arguments = [self.instance.as_str(), &lifetime].map(|text| Word::from_slice(text.as_bytes()));
        let keys = [self.key.clone()];
        let call = Call { script: &SCRIPT, keys: &keys, arguments: &arguments, repeat: Repeat::Allowed };
        let Ok(answer) = self.servers.call(&call, Instant::now() + WITHIN).await else { return };
        if let Some(count) = std::str::from_utf8(&answer.body).ok().and_then(|body| body.parse().ok()) {
            self.instances.set(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_testkit::poll;
    use sluicegate_testkit::redis_server::RedisServer;

    /// Longer than anything takes that is not meant to fail.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_stands_in_the_place_of_the_count_makes_room_for_it() {
        let server = RedisServer::start();
        let options = server.url().parse().expect("a URL");
        let servers = Arc::new(Servers::start(&options, &[&SCRIPT], "ours:").expect("options that make sense"));
        server.command::<()>(&["SET", "ours:{instances}", "garbage"]);
        let instances = [Instances::default(), Instances::default()];
        let beats =
            instances.each_ref().map(|count| Heartbeat::start(Arc::clone(&servers), "ours:", count.clone()));
        poll::until_true("both are counted", PATIENCE, || instances.iter().all(|count| count.count().get() == 2));
        server.command::<()>(&["SET", "ours:{instances}", "garbage"]);
        poll::until_true("both are counted again", PATIENCE, || {
            server.try_command::<u64>(&["ZCARD", "ours:{instances}"]).is_ok_and(|count| count == 2)
        });
        for beat in beats {
            beat.stop().await;
        }
        assert_eq!(server.command::<u64>(&["ZCARD", "ours:{instances}"]), 0);
    }
}
