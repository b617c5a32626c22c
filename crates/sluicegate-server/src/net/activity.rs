//! What one connection is doing, and until when it may.
//!
//! The socket reports bytes, the service reports requests, and the connection's task asks for the
//! deadline. The clock is read only when the phase changes.
//!
//! | phase | until | bound |
//! |---|---|---|
//! | connected | the first byte | `first_byte` |
//! | head | the request's head is complete | `header_read` |
//! | busy | every answer is sent | none here: bodies and handlers have their own |
//! | idle | the next byte (HTTP/1) or request (HTTP/2) | `keep_alive_idle` |
//!
//! On HTTP/2 bytes alone prove nothing (pings and window updates are bytes), so there a connection
//! is idle from its preface to its first request and between requests, whatever else it sends. A head that has begun there has
//! `header_read` in any phase: until it ends, nothing else of the peer's can arrive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::frames::Head;
use super::framing::Standing;
use super::options::ListenerOptions;

/// From telling a peer that floods us to go away to cutting it: the word arrives, and not much more.
const FLOOD_GRACE: Duration = Duration::from_secs(1);

const SLOW_HEAD: &str = "it did not finish a request's head";

/// See the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connected,
    Head,
    Busy,
    Idle,
}

/// What to do about a connection whose deadline may have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Look again then.
    Wait(Instant),
    /// Tell the peer, and give it the close grace.
    Close,
    /// Drop it.
    Cut(&'static str),
}

/// Shared by the socket, the service and the task of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    options: Arc<ListenerOptions>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    requests_in_flight: u32,
    /// Requests that were answered, or given up.
    answers: u64,
    /// An answer has handed the connection over to another protocol.
    is_upgraded: bool,
    is_spoiled: bool,
    is_http2: bool,
    /// Since when a head on HTTP/2 has been open.
    http2_head_since: Option<Instant>,
    /// Part of a request's body was never read, so the peer may still be sending it.
    is_body_unread: bool,
    draining_since: Option<Instant>,
    closing_since: Option<Instant>,
    idle_frames: PerSecond,
    /// The peer has sent more frames that bring nothing than anybody needs to.
    is_flooding: bool,
}

impl Activity {
    pub(super) fn new(options: Arc<ListenerOptions>) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            phase: Phase::Connected,
            since: now,
            requests_in_flight: 0,
            answers: 0,
            is_upgraded: false,
            is_spoiled: false,
            is_http2: false,
            http2_head_since: None,
            is_body_unread: false,
            draining_since: None,
            closing_since: None,
            idle_frames: PerSecond { second_began: now, count: 0 },
            is_flooding: false,
        };
        Arc::new(Self { options, state: Mutex::new(state) })
    }

    /// Bytes have arrived. How far the connection is by now is returned.
    pub(super) fn bytes_arrived(&self) -> Standing {
        let mut state = self.lock();
        let starts_head = match state.phase {
            Phase::Connected => true,
            Phase::Idle => !state.is_http2,
            Phase::Head | Phase::Busy => false,
        };
        if starts_head {
            state.enter(Phase::Head);
        }
        Standing { answers: state.answers, is_upgraded: state.is_upgraded }
    }

    /// Bytes have arrived that belong to no request, and are no longer what they were.
    pub(super) fn bytes_spoiled(&self) {
        self.lock().is_spoiled = true;
    }

    /// An answer would hand the connection over to another protocol. False if it cannot: bytes of it came before anybody
    /// had agreed to it, so nobody can be given them.
    pub(super) fn upgrade(&self) -> bool {
        let mut state = self.lock();
        state.is_upgraded = !state.is_spoiled;
        state.is_upgraded
    }

    /// The bytes so far are the whole HTTP/2 preface.
    pub(super) fn speaks_http2(&self) {
        let mut state = self.lock();
        state.is_http2 = true;
        state.enter(Phase::Idle);
    }

    /// Frames have arrived that bring nothing.
    pub(super) fn idle_frames_arrived(&self, count: u32) {
        let mut state = self.lock();
        let in_this_second = state.idle_frames.add(count, Instant::now());
        state.is_flooding |= in_this_second > self.options.http2_idle_frames_per_second_max;
    }

    /// A head on HTTP/2 has begun or ended.
    pub(super) fn http2_head(&self, head: Head) {
        self.lock().http2_head_since = match head {
            Head::Began => Some(Instant::now()),
            Head::Ended => None,
        };
    }

    /// A request's head is complete. The request is in flight until the returned value is dropped.
    pub(super) fn request_began(self: &Arc<Self>) -> InFlight {
        let mut state = self.lock();
        state.requests_in_flight += 1;
        state.is_body_unread = false;
        state.phase = Phase::Busy;
        drop(state);
        InFlight { activity: Arc::clone(self), is_answered: false }
    }

    /// A handler was done with a request's body before the body was done.
    pub(super) fn body_left_unread(&self) {
        self.lock().is_body_unread = true;
    }

    /// The listener drains: from now on answers close their connection.
    pub(super) fn drain(&self) {
        self.lock().draining_since.get_or_insert_with(Instant::now);
    }

    /// Whether an answer given now is the last one of an HTTP/1 connection: the listener drains, or the rest
    /// of the request is in the way of the next one.
    pub(super) fn is_last_answer(&self) -> bool {
        let state = self.lock();
        state.draining_since.is_some() || state.is_body_unread
    }

    /// The peer has been told that the connection closes.
    pub(super) fn closing(&self) {
        self.lock().closing_since.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.lock().is_http2
    }

    /// Whether closing the socket at once could lose an answer: the peer is still sending.
    pub(super) fn may_have_unread_bytes(&self) -> bool {
        let state = self.lock();
        state.is_body_unread || (state.phase == Phase::Head && !state.is_http2)
    }

    /// Ready with the present deadline if it comes before `armed`, when the timer would fire.
    pub(super) fn due_before(&self, armed: Instant) -> Poll<Instant> {
        let state = self.lock();
        let deadline = if state.is_flooding {
            Some(state.closing_since.map_or(state.since, |closing| closing + FLOOD_GRACE))
        } else {
            state.deadline(&self.options)
        };
        match deadline {
            Some(deadline) if deadline < armed => Poll::Ready(deadline),
            _ => Poll::Pending,
        }
    }

    /// What is due at `now`.
    pub(super) fn due(&self, now: Instant) -> Due {
        let state = self.lock();
        let options = &*self.options;
        if state.is_flooding {
            return match state.closing_since.map(|closing| closing + FLOOD_GRACE) {
                None => Due::Close,
                Some(deadline) if now < deadline => Due::Wait(deadline),
                Some(_) => Due::Cut("it sent too many frames that bring nothing in a second"),
            };
        }
        // Without a deadline, the latest moment at which an idle connection could be due, were it idle from now on.
        let deadline = state.deadline(options).unwrap_or(now + options.keep_alive_idle);
        if now < deadline {
            return Due::Wait(deadline);
        }
        match state.phase {
            _ if state.http2_head_deadline(options).is_some_and(|head| head <= now) => Due::Cut(SLOW_HEAD),
            Phase::Connected => Due::Cut("it sent nothing"),
            Phase::Head | Phase::Busy => Due::Cut(SLOW_HEAD),
            Phase::Idle if state.closing_since.is_some() => Due::Cut("it did not close"),
            Phase::Idle => Due::Close,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; a poisoned state would still be a valid one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }

    /// When the present phase, or a head within it, has lasted too long.
    fn deadline(&self, options: &ListenerOptions) -> Option<Instant> {
        let phase = (self.phase != Phase::Busy).then(|| self.phase_deadline(options));
        phase.into_iter().chain(self.http2_head_deadline(options)).min()
    }

    fn http2_head_deadline(&self, options: &ListenerOptions) -> Option<Instant> {
        self.http2_head_since.map(|since| since + options.header_read)
    }

    fn phase_deadline(&self, options: &ListenerOptions) -> Instant {
        let quiet = |bound: Duration| {
            let drained = self.draining_since.map(|since| since + options.drain_quiet);
            let usual = self.since + bound;
            drained.map_or(usual, |drained| drained.min(usual))
        };
        match (self.phase, self.closing_since) {
            (Phase::Head | Phase::Busy, _) => self.since + options.header_read,
            (_, Some(closing)) => closing + options.close_grace,
            (Phase::Connected, None) => quiet(options.first_byte),
            (Phase::Idle, None) => quiet(options.keep_alive_idle),
        }
    }
}

/// Something counted in the current second.
#[derive(Debug)]
struct PerSecond {
    second_began: Instant,
    count: u32,
}

impl PerSecond {
    /// Adds some; how many there are in this second.
    fn add(&mut self, count: u32, now: Instant) -> u32 {
        if now - self.second_began >= Duration::from_secs(1) {
            *self = Self { second_began: now, count: 0 };
        }
        self.count = self.count.saturating_add(count);
        self.count
    }
}

/// A request that has not been fully answered yet.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    is_answered: bool,
}

impl InFlight {
    /// The handler has answered; only the answer's body may still be on its way.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
        self.activity.lock().answers += 1;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.requests_in_flight = state.requests_in_flight.saturating_sub(1);
        if state.requests_in_flight == 0 {
            state.enter(Phase::Idle);
        }
        if !self.is_answered {
            state.answers += 1;
        }
    }
}
