//! The phase of one connection, and its deadline.
//!
//! The socket reports bytes, the service reports requests, and the connection's task queries the deadline. The clock is
//! read only when the phase changes.
//!
//! | phase | until | bound |
//! |---|---|---|
//! | connected | the first byte | `first_byte` |
//! | head | the request's head is complete | `header_read` |
//! | busy | every response is sent | `write_stall` of waiting for the peer alone; every byte of a response body returns a part of it |
//! | idle | the next byte (HTTP/1) or request (HTTP/2) | `keep_alive_idle` |
//!
//! On HTTP/2 bytes alone prove nothing, because pings and window updates are bytes. So an HTTP/2 connection is idle from its
//! preface to its first request and between requests. A head that has begun there must end within `header_read` in any
//! phase: until it ends, the peer can send nothing else.
//!
//! A peer that does not read blocks the socket, which has [its own deadline](super::io). On HTTP/2 it can also block
//! responses by flow control while its connection looks alive. So a response is *untaken* from the moment hyper receives a
//! chunk of it until hyper requests the next chunk. While responses are untaken, bytes of bodies must move at a
//! [minimum rate](response_credit): pings, acknowledgements and heads do not count. The peer starts with a credit of
//! `write_stall`. Time without untaken responses also restores the credit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::http1_framing::ResponseProgress;
use super::http2_abuse::{FrameCounts, Head};
use super::options::ListenerOptions;
use crate::body::response_credit;

/// From the GOAWAY to a flooding peer to the cut: enough for the GOAWAY to arrive.
const FLOOD_GRACE: Duration = Duration::from_secs(1);

/// A peer may reply to every DATA frame with two window updates and a ping. The smallest DATA frame that needs a reply has
/// one byte after its nine bytes of header.
const BYTES_PER_FLOW_FRAME: u64 = 3;
/// The most replies that a peer may have outstanding.
const FLOW_ALLOWANCE_MAX: u32 = 65_536;

/// A request has one HEADERS frame, and may have another with trailers.
const HEAD_FRAMES_PER_REQUEST: u32 = 2;
/// The most HEADERS frames that requests pay for in advance.
const HEAD_ALLOWANCE_MAX: u32 = 1_024;

const UNREAD_ANSWERS: &str = "it does not read its answers, or too slowly";
const SLOW_HEAD: &str = "it did not finish a request's head";

/// The phases of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connected,
    Head,
    Busy,
    Idle,
}

/// The action for a connection whose deadline may have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Check again at this time.
    Wait(Instant),
    /// Announce the close to the peer, and wait for the close grace.
    Close,
    /// Drop the connection, for this reason.
    Cut(&'static str),
}

/// Shared by the socket, the service and the task of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    options: Arc<ListenerOptions>,
    state: Mutex<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    requests_in_flight: u32,
    /// Responses whose next chunk waits for the peer.
    untaken_responses: u32,
    /// The moment from which uninterrupted waiting would have used as much credit as the peer has used.
    credit_used_since: Instant,
    /// When the credit is full again, if no response becomes untaken.
    credit_full_at: Instant,
    /// Requests that were answered or aborted.
    answers: u64,
    /// A response has switched the connection to another protocol.
    is_upgraded: bool,
    is_spoiled: bool,
    is_http2: bool,
    /// When the open HTTP/2 head began.
    http2_head_since: Option<Instant>,
    /// Part of a request's body was not read, so the peer may still be sending it.
    is_body_unread: bool,
    draining_since: Option<Instant>,
    closing_since: Option<Instant>,
    control_frames: PerSecond,
    /// Frames that the peer may still send in reply to sent data.
    flow_allowance: u32,
    /// HEADERS frames that the requests so far have paid for.
    head_allowance: u32,
    /// Bytes of outstanding acknowledgements, which earn the peer no allowance.
    acknowledgement_bytes: u64,
    /// The peer has sent more control frames than any client needs to.
    is_flooding: bool,
}

impl Activity {
    pub(super) fn new(options: Arc<ListenerOptions>) -> Arc<Self> {
        let now = Instant::now();
        let state = ConnectionState {
            phase: Phase::Connected,
            since: now,
            requests_in_flight: 0,
            untaken_responses: 0,
            credit_used_since: now,
            credit_full_at: now,
            answers: 0,
            is_upgraded: false,
            is_spoiled: false,
            is_http2: false,
            http2_head_since: None,
            is_body_unread: false,
            draining_since: None,
            closing_since: None,
            control_frames: PerSecond { second_began: now, count: 0 },
            flow_allowance: 0,
            // A peer may open all its streams at once.
            head_allowance: options.http2_streams_max.min(HEAD_ALLOWANCE_MAX),
            acknowledgement_bytes: 0,
            is_flooding: false,
        };
        Arc::new(Self { options, state: Mutex::new(state) })
    }

    /// Records that bytes arrived. Returns the responses so far.
    pub(super) fn bytes_arrived(&self) -> ResponseProgress {
        let mut state = self.lock();
        let starts_head = match state.phase {
            Phase::Connected => true,
            Phase::Idle => !state.is_http2,
            Phase::Head | Phase::Busy => false,
        };
        if starts_head {
            state.enter(Phase::Head);
        }
        ResponseProgress { answers: state.answers, is_upgraded: state.is_upgraded }
    }

    /// Records that the framing guard poisoned a byte.
    pub(super) fn bytes_spoiled(&self) {
        self.lock().is_spoiled = true;
    }

    /// Records a switch to another protocol. False if it is impossible: bytes of the new protocol came before the response,
    /// and the framing guard has poisoned them.
    pub(super) fn upgrade(&self) -> bool {
        let mut state = self.lock();
        state.is_upgraded = !state.is_spoiled;
        state.is_upgraded
    }

    /// Records the complete HTTP/2 preface.
    pub(super) fn speaks_http2(&self) {
        let mut state = self.lock();
        state.is_http2 = true;
        state.enter(Phase::Idle);
    }

    /// Records received frames. Returns true if too many of them are unpaid; then nothing more of the peer is
    /// read.
    pub(super) fn frames_arrived(&self, arrived: FrameCounts) -> bool {
        let FrameCounts { control_frames, head_frames, flow_frames, acknowledgement_bytes, .. } = arrived;
        let mut state = self.lock();
        let unsolicited = spend(&mut state.flow_allowance, flow_frames);
        let unpaid = spend(&mut state.head_allowance, head_frames);
        state.acknowledgement_bytes += u64::from(acknowledgement_bytes);
        let frames = control_frames.saturating_add(unsolicited).saturating_add(unpaid);
        let in_this_second = state.control_frames.add(frames, Instant::now());
        state.is_flooding |= in_this_second > self.options.http2_control_frames_per_second_max;
        state.is_flooding
    }

    /// Records `count` bytes sent over HTTP/2, of which `body_bytes` belong to response bodies.
    pub(super) fn bytes_sent(&self, count: usize, body_bytes: usize) {
        let mut state = self.lock();
        if body_bytes > 0 && (state.untaken_responses > 0 || state.phase == Phase::Idle) {
            let (now, credit) = (Instant::now(), response_credit(body_bytes as u64));
            let later = |since: Instant| since.checked_add(credit).map_or(now, |later| later.min(now));
            state.credit_used_since = later(state.credit_used_since);
            // The last chunk of a response may be in transit for long. A peer that reads it fast enough is not idle.
            if state.phase == Phase::Idle {
                state.since = later(state.since);
            }
        }
        let count = count as u64;
        let acknowledged = count.min(state.acknowledgement_bytes);
        state.acknowledgement_bytes -= acknowledged;
        let earned = u32::try_from((count - acknowledged) / BYTES_PER_FLOW_FRAME).unwrap_or(u32::MAX);
        state.flow_allowance = state.flow_allowance.saturating_add(earned).min(FLOW_ALLOWANCE_MAX);
    }

    /// Records the beginning or end of an HTTP/2 head.
    pub(super) fn http2_head(&self, head: Head) {
        self.lock().http2_head_since = match head {
            Head::Began => Some(Instant::now()),
            Head::Ended => None,
        };
    }

    /// Records a complete request head. The request is in flight until the returned value is dropped.
    pub(crate) fn request_began(self: &Arc<Self>) -> InFlight {
        let mut state = self.lock();
        state.requests_in_flight += 1;
        state.head_allowance = (state.head_allowance + HEAD_FRAMES_PER_REQUEST).min(HEAD_ALLOWANCE_MAX);
        state.is_body_unread = false;
        state.phase = Phase::Busy;
        drop(state);
        InFlight { activity: Arc::clone(self), is_answered: false, is_untaken: false }
    }

    /// Records that a handler dropped a request's body before its end.
    pub(super) fn body_left_unread(&self) {
        self.lock().is_body_unread = true;
    }

    /// Records that the listener drains: from now on responses close their connection.
    pub(super) fn drain(&self) {
        self.lock().draining_since.get_or_insert_with(Instant::now);
    }

    /// Whether a response now is the last one of an HTTP/1 connection: the listener drains, or the unread rest of the request
    /// blocks the next one.
    pub(crate) fn is_last_answer(&self) -> bool {
        let state = self.lock();
        state.draining_since.is_some() || state.is_body_unread
    }

    /// Records that the close was announced to the peer.
    pub(super) fn closing(&self) {
        self.lock().closing_since.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.lock().is_http2
    }

    /// Whether an immediate close could lose a response, because the peer is still sending.
    pub(super) fn may_have_unread_bytes(&self) -> bool {
        let state = self.lock();
        state.is_body_unread || (state.phase == Phase::Head && !state.is_http2)
    }

    /// Ready with the current deadline if it precedes `armed`, the time of the timer.
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

    /// The action at `now`.
    pub(super) fn due(&self, now: Instant) -> Due {
        let state = self.lock();
        let options = &*self.options;
        if state.is_flooding {
            return match state.closing_since.map(|closing| closing + FLOOD_GRACE) {
                None => Due::Close,
                Some(deadline) if now < deadline => Due::Wait(deadline),
                Some(_) => Due::Cut("it sent too many control frames in a second"),
            };
        }
        // Without a deadline: the earliest deadline of a connection that becomes idle now.
        let deadline = state.deadline(options).unwrap_or(now + options.keep_alive_idle);
        if now < deadline {
            return Due::Wait(deadline);
        }
        match state.phase {
            _ if state.http2_head_deadline(options).is_some_and(|head| head <= now) => Due::Cut(SLOW_HEAD),
            _ if state.unread_deadline(options).is_some_and(|unread| unread <= now) => Due::Cut(UNREAD_ANSWERS),
            Phase::Connected => Due::Cut("it sent nothing"),
            Phase::Head | Phase::Busy => Due::Cut(SLOW_HEAD),
            Phase::Idle if state.closing_since.is_some() => Due::Cut("it did not close"),
            Phase::Idle => Due::Close,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        // No code panics while it holds the lock, and a poisoned state would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionState {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }

    /// Records one more response whose next chunk waits for the peer.
    fn response_untaken(&mut self) {
        if self.untaken_responses == 0 {
            let now = Instant::now();
            let used = self.credit_full_at.saturating_duration_since(now);
            self.credit_used_since = now.checked_sub(used).unwrap_or(now);
        }
        self.untaken_responses += 1;
    }

    /// Records that a response no longer waits for the peer.
    fn response_taken(&mut self) {
        self.untaken_responses = self.untaken_responses.saturating_sub(1);
        if self.untaken_responses == 0 {
            let now = Instant::now();
            self.credit_full_at = now + now.saturating_duration_since(self.credit_used_since);
        }
    }

    /// The earliest deadline of the phase, of an open head and of untaken responses.
    fn deadline(&self, options: &ListenerOptions) -> Option<Instant> {
        let phase = (self.phase != Phase::Busy).then(|| self.phase_deadline(options));
        let within = [self.http2_head_deadline(options), self.unread_deadline(options)];
        phase.into_iter().chain(within.into_iter().flatten()).min()
    }

    fn unread_deadline(&self, options: &ListenerOptions) -> Option<Instant> {
        (self.untaken_responses > 0).then(|| self.credit_used_since + options.write_stall)
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

/// Subtracts `count` from an allowance. Returns the part that exceeds it.
fn spend(allowance: &mut u32, count: u32) -> u32 {
    let paid = count.min(*allowance);
    *allowance -= paid;
    count - paid
}

/// A count within the current second.
#[derive(Debug)]
struct PerSecond {
    second_began: Instant,
    count: u32,
}

impl PerSecond {
    /// Adds to the count, and returns the sum of this second.
    fn add(&mut self, count: u32, now: Instant) -> u32 {
        if now - self.second_began >= Duration::from_secs(1) {
            *self = Self { second_began: now, count: 0 };
        }
        self.count = self.count.saturating_add(count);
        self.count
    }
}

/// A request whose response is not complete.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    is_answered: bool,
    is_untaken: bool,
}

impl InFlight {
    /// Records the handler's response. Only its body may still be in transit.
    pub(crate) fn answered(&mut self, has_body: bool) {
        self.is_answered = true;
        let mut state = self.activity.lock();
        state.answers += 1;
        if has_body && state.is_http2 {
            self.is_untaken = true;
            state.response_untaken();
        }
    }

    /// Records that hyper requested a chunk of the response. Without a chunk the response does not wait for the peer.
    pub(super) fn chunk_requested(&mut self, has_chunk: bool) {
        if self.is_untaken == has_chunk {
            return;
        }
        let mut state = self.activity.lock();
        if !state.is_http2 {
            return;
        }
        self.is_untaken = has_chunk;
        if has_chunk {
            state.response_untaken();
        } else {
            state.response_taken();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.requests_in_flight = state.requests_in_flight.saturating_sub(1);
        if self.is_untaken {
            state.response_taken();
        }
        if state.requests_in_flight == 0 {
            state.enter(Phase::Idle);
        }
        if !self.is_answered {
            state.answers += 1;
        }
    }
}
