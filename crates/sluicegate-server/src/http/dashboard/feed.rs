//! One look per second for all who watch, and none when nobody does.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::overview::Onlooker;
use crate::problem::Problem;

/// How often there is something new.
const PAUSE: Duration = Duration::from_secs(1);
/// The most who may watch at a time. Each holds a connection, and is sent some kilobytes per second.
const READERS_MAX: usize = 64;

/// What is told to all who watch. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Feed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sender: watch::Sender<Arc<str>>,
    /// Is there while nobody looks; whoever looks has it.
    onlooker: Mutex<Option<Onlooker>>,
}

/// Somebody who watches.
#[derive(Debug)]
pub(super) struct Reader(watch::Receiver<Arc<str>>);

impl Reader {
    /// What there is to tell next.
    pub(super) async fn next(&mut self) -> Option<Arc<str>> {
        self.0.changed().await.ok()?;
        Some(Arc::clone(&self.0.borrow_and_update()))
    }
}

impl Feed {
    pub(super) fn new(onlooker: Onlooker) -> Self {
        let (sender, _) = watch::channel(Arc::from(""));
        Self(Arc::new(Shared { sender, onlooker: Mutex::new(Some(onlooker)) }))
    }

    /// Begins to watch. The first word comes at once.
    pub(super) fn read(&self) -> Result<Reader, Problem> {
        let mut onlooker = self.0.onlooker.lock();
        if self.0.sender.receiver_count() >= READERS_MAX {
            let detail = "64 readers watch already, which is the most; close one of them, or try again later";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        let mut receiver = self.0.sender.subscribe();
        match onlooker.take() {
            Some(onlooker) => drop(tokio::spawn(look(Arc::clone(&self.0), onlooker))),
            // What was told last is less than a pause old.
            None => receiver.mark_changed(),
        }
        Ok(Reader(receiver))
    }
}

/// Looks once per [`PAUSE`] until nobody watches any more.
async fn look(shared: Arc<Shared>, mut onlooker: Onlooker) {
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Whoever begins to watch takes the same lock, so either this sees it, or it finds the onlooker back.
        let mut place = shared.onlooker.lock();
        if shared.sender.receiver_count() == 0 {
            *place = Some(onlooker);
            return;
        }
        drop(place);
        shared.sender.send_replace(onlooker.look().into());
    }
}
