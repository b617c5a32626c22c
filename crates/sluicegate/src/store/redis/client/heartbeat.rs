//! The instance count: each instance announces itself once a second and reads how many are alive.
//!
//! The count matters while the store is unavailable, because every instance then decides for its share of the
//! limits. The last known count applies. An instance that shuts down withdraws its announcement. An instance that
//! crashes is dropped after [`LIFETIME`].

use crate::instances::Instances;
use crate::store::redis::client::backoff::jittered;
use crate::store::redis::client::call::{Argument, Call, LatePolicy, Resend, Script};
use crate::store::redis::client::servers::Servers;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The interval of announcements, with 20 % jitter.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long an announcement counts. Several heartbeats may be lost.
const LIFETIME: Duration = Duration::from_secs(5);
/// The timeout of a heartbeat.
const WITHIN: Duration = Duration::from_secs(1);

pub(crate) static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../lua/heartbeat.lua")));

/// Announces this instance until it is stopped or dropped.
#[derive(Debug)]
#[must_use = "the announcement stops when this is dropped"]
pub struct Heartbeat {
    announcement: Announcement,
    task: JoinHandle<()>,
}

/// The announcement of this instance.
#[derive(Clone, Debug)]
struct Announcement {
    servers: Arc<Servers>,
    key: Vec<u8>,
    instance: String,
    instances: Instances,
}

impl Heartbeat {
    /// Starts to announce, on the current runtime, and keeps `instances` up to date.
    pub(crate) fn start(servers: Arc<Servers>, key_start: &str, instances: Instances) -> Self {
        let key = format!("{key_start}{{instances}}").into_bytes();
        let announcement =
            Announcement { servers, key, instance: format!("{:016x}", fastrand::u64(..)), instances };
        let repeated = announcement.clone();
        let task = tokio::spawn(async move {
            loop {
                repeated.announce(LIFETIME).await;
                sleep(jittered(INTERVAL)).await;
            }
        });
        Self { announcement, task }
    }

    /// Withdraws the announcement, so that the other instances need not wait until it expires.
    pub async fn stop(self) {
        self.task.abort();
        self.announcement.announce(Duration::ZERO).await;
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Announcement {
    /// Announces this instance for `lifetime`. If the store does not answer, the count stays as it is.
    async fn announce(&self, lifetime: Duration) {
        let lifetime = lifetime.as_micros().to_string();
        let arguments = [self.instance.as_str(), &lifetime].map(|text| Argument::from_slice(text.as_bytes()));
        let keys = [self.key.clone()];
        let call = Call {
            script: &SCRIPT,
            keys: &keys,
            arguments: &arguments,
            resend: Resend::Allowed,
            late_policy: LatePolicy::default(),
        };
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

    /// Longer than any step of the test takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_foreign_value_under_the_instance_key_is_replaced() {
        let server = RedisServer::start();
        let options = server.url().parse().expect("a URL");
        let servers = Arc::new(Servers::start(&options, &[&SCRIPT], "ours:").expect("options that make sense"));
        server.command::<()>(&["SET", "ours:{instances}", "garbage"]);
        let instances = [Instances::default(), Instances::default()];
        let repeated =
            instances.each_ref().map(|count| Heartbeat::start(Arc::clone(&servers), "ours:", count.clone()));
        poll::until_true("both are counted", PATIENCE, || instances.iter().all(|count| count.count().get() == 2));
        server.command::<()>(&["SET", "ours:{instances}", "garbage"]);
        poll::until_true("both are counted again", PATIENCE, || {
            server.try_command::<u64>(&["ZCARD", "ours:{instances}"]).is_ok_and(|count| count == 2)
        });
        for beat in repeated {
            beat.stop().await;
        }
        assert_eq!(server.command::<u64>(&["ZCARD", "ours:{instances}"]), 0);
    }
}
