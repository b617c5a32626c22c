//! `GET /admin/v1/events`: a stream of server-sent events with one [`Overview`](crate::admin_api::Overview) per second.
//!
//! All readers share one sampler: it takes one sample per second however many readers there are, and none without a reader.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use parking_lot::Mutex;
use sluicegate::identify::address::{IPV6_PREFIX_BITS, counted};
use sluicegate::response::ResponseClass;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::overview::OverviewSampler;
use crate::admin_tokens;
use crate::engine::Engine;
use crate::keyed_cap::{CapGuard, CapReached, KeyedCap};
use crate::problem::Problem;

/// The time between two events.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most readers at a time. Each holds a connection and receives some kilobytes per second.
pub(crate) const READERS_MAX: u32 = 64;
/// The most readers of one address, or of one /64 of IPv6, so that one client cannot take all places.
pub(crate) const READERS_PER_ADDRESS_MAX: u32 = 16;

/// Streams events until the reader disconnects.
pub(super) async fn events(
    State((engine, feed)): State<(Engine, EventFeed)>,
    head: Parts,
) -> Result<Response, Problem> {
    admin_tokens::require_to_read(engine.admin_tokens(), &head).await?;
    let reader = feed.subscribe(admin_tokens::peer(&head.extensions))?;
    let events = stream::unfold(reader, async |mut reader| {
        let text = reader.next().await?;
        Some((Ok::<_, Infallible>(Event::default().event("overview").data(&*text)), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// The feed that all readers share. Clones share it, too.
#[derive(Clone, Debug)]
pub(super) struct EventFeed(Arc<FeedState>);

#[derive(Debug)]
struct FeedState {
    readers: Arc<KeyedCap<IpAddr>>,
    sender: watch::Sender<Arc<str>>,
    /// `Some` while no task samples. The sampling task holds the sampler and returns it when the last reader is gone.
    sampler: Mutex<Option<OverviewSampler>>,
}

/// One subscription.
#[derive(Debug)]
pub(super) struct EventReader {
    receiver: watch::Receiver<Arc<str>>,
    _guard: CapGuard<IpAddr>,
}

impl EventReader {
    /// Waits for the next event, as JSON.
    pub(super) async fn next(&mut self) -> Option<Arc<str>> {
        self.receiver.changed().await.ok()?;
        Some(Arc::clone(&self.receiver.borrow_and_update()))
    }
}

impl EventFeed {
    pub(super) fn new(sampler: OverviewSampler) -> Self {
        let (sender, _) = watch::channel(Arc::from(""));
        let readers = KeyedCap::new(READERS_MAX, READERS_PER_ADDRESS_MAX);
        Self(Arc::new(FeedState { readers, sender, sampler: Mutex::new(Some(sampler)) }))
    }

    /// Subscribes a client at `address`. Its first event comes at once.
    pub(super) fn subscribe(&self, address: IpAddr) -> Result<EventReader, Problem> {
        let guard = self.0.readers.acquire(counted(address, IPV6_PREFIX_BITS)).map_err(too_many_readers)?;
        let mut sampler = self.0.sampler.lock();
        let mut receiver = self.0.sender.subscribe();
        match sampler.take() {
            Some(sampler) => drop(tokio::spawn(sample(Arc::clone(&self.0), sampler))),
            // The last event is less than an interval old.
            None => receiver.mark_changed(),
        }
        Ok(EventReader { receiver, _guard: guard })
    }
}

fn too_many_readers(reached: CapReached) -> Problem {
    let detail = match reached {
        CapReached::Total => format!(
            "{READERS_MAX} readers are connected already, which is the most; close one of them, or try again later"
        ),
        CapReached::Key => format!(
            "{READERS_PER_ADDRESS_MAX} readers of this address are connected already, which is the most; close one of them"
        ),
    };
    ResponseClass::Unavailable.problem(detail)
}

/// Takes a sample per [`INTERVAL`] until the last reader is gone.
async fn sample(feed: Arc<FeedState>, mut sampler: OverviewSampler) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A new reader subscribes under the same lock: either this task counts it, or it finds the sampler returned.
        let mut idle = feed.sampler.lock();
        if feed.sender.receiver_count() == 0 {
            *idle = Some(sampler);
            return;
        }
        drop(idle);
        feed.sender.send_replace(sampler.sample().into());
    }
}

#[cfg(test)]
mod tests;
