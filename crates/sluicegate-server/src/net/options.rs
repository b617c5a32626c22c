//! The bounds of a listener, each with its reason.

use std::num::NonZeroU32;
use std::time::Duration;

use super::open_files;

/// How many of a listener's connections one address may have where nothing else is said: plenty for a client, a crowd of
/// clients behind one address, or a proxy that is not trusted; and never so many that nothing is left for others.
pub(crate) fn connections_per_address_max(connections_max: NonZeroU32) -> NonZeroU32 {
    NonZeroU32::new((connections_max.get() / 2).min(1_024)).unwrap_or(NonZeroU32::MIN)
}

/// Everything about a listener that a test may want to be smaller or shorter.
#[derive(Clone, Debug)]
pub(crate) struct ListenerOptions {
    /// Connections served at once; [`open_files::connections_max`] says how many are sensible.
    pub(crate) connections_max: NonZeroU32,
    /// From accept to the first byte. hyper has no such bound: it waits for the protocol's first
    /// bytes before any of its timers run.
    pub(crate) first_byte: Duration,
    /// From a request's first byte to the end of its head.
    pub(crate) header_read: Duration,
    /// From the end of one answer to the first byte of the next request.
    pub(crate) keep_alive_idle: Duration,
    /// A write that makes no progress for so long ends the connection: the peer does not read.
    pub(crate) write_stall: Duration,
    /// After an answer that left part of the request unread, this long the rest is read and thrown
    /// away. Closing at once would reset the connection, and the reset can overtake the answer.
    pub(crate) linger: Duration,
    /// How long an idle HTTP/1 connection may still send a request once the drain has begun. A
    /// request that was under way meets an open socket, and its answer says that the connection
    /// closes.
    pub(crate) drain_quiet: Duration,
    /// From being told to close (GOAWAY) to being cut, for a connection without requests in flight.
    pub(crate) close_grace: Duration,
    /// From the start of the drain to cutting what is still open.
    pub(crate) drain: Duration,
    /// Bytes of HTTP/1 read buffer, which bounds a request's head.
    pub(crate) http1_buffer_bytes_max: usize,
    /// Streams one HTTP/2 connection may have open.
    pub(crate) http2_streams_max: u32,
    /// Bytes of one HTTP/2 header list, after decompression.
    pub(crate) http2_header_list_bytes_max: u32,
    /// Bytes an HTTP/2 peer may send ahead of our reading, per connection; a stream gets half. It
    /// bounds memory per connection and still fills a link of 100 Mbit/s at 20 ms.
    pub(crate) http2_window_bytes: u32,
    /// Pings that find dead HTTP/2 peers: sent this often …
    pub(crate) http2_ping_interval: Duration,
    /// … and answered within this time.
    pub(crate) http2_ping_timeout: Duration,
    /// HTTP/2 frames that bring nothing, of which one connection may send so many in one second: resets, pings,
    /// settings. Clients with deadlines give requests up now and then; the rapid-reset attack does so a hundred
    /// thousand times a second.
    pub(crate) http2_idle_frames_per_second_max: u32,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            connections_max: open_files::CONNECTIONS_MAX,
            first_byte: Duration::from_secs(5),
            header_read: Duration::from_secs(5),
            keep_alive_idle: Duration::from_secs(60),
            write_stall: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            drain_quiet: Duration::from_millis(500),
            close_grace: Duration::from_secs(5),
            drain: Duration::from_secs(8),
            http1_buffer_bytes_max: 32 * 1_024,
            http2_streams_max: 100,
            http2_header_list_bytes_max: 16 * 1_024,
            http2_window_bytes: 256 * 1_024,
            http2_ping_interval: Duration::from_secs(20),
            http2_ping_timeout: Duration::from_secs(10),
            http2_idle_frames_per_second_max: 1_000,
        }
    }
}
