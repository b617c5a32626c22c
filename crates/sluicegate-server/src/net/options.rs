//! The bounds of a listener, each with its reason.

use std::num::NonZeroU32;
use std::time::Duration;

use super::open_files;
use crate::body::MAX_BODY_BYTES;

/// The upper bound of the default cap on connections per address.
const CONNECTIONS_PER_ADDRESS_MAX: u32 = 1_024;

/// The default cap on one address's connections to a listener. It suffices for a client, for many clients behind one
/// address, and for a proxy that is not trusted. It always leaves half of the connections to other addresses.
pub(crate) fn connections_per_address_max(connections_max: NonZeroU32) -> NonZeroU32 {
    NonZeroU32::new((connections_max.get() / 2).min(CONNECTIONS_PER_ADDRESS_MAX)).unwrap_or(NonZeroU32::MIN)
}

/// The bounds and deadlines of a listener. Tests use smaller ones.
#[derive(Clone, Debug)]
pub(crate) struct ListenerOptions {
    /// Connections served at once; [`open_files::connections_max`] computes the default.
    pub(crate) connections_max: NonZeroU32,
    /// From accept to the first byte. hyper has no such bound: its timers start after the protocol's first bytes.
    pub(crate) first_byte: Duration,
    /// From a request's first byte to the end of its head.
    pub(crate) header_read: Duration,
    /// From the end of one response to the first byte of the next request.
    pub(crate) keep_alive_idle: Duration,
    /// A write without progress for this long ends the connection, because the peer does not read. So do HTTP/2 responses
    /// that wait only for the peer.
    pub(crate) write_stall: Duration,
    /// After a response that left part of the request unread, the rest is read and discarded for this long. An immediate
    /// close would reset the connection, and the reset can overtake the response.
    pub(crate) linger: Duration,
    /// How long an idle HTTP/1 connection may still send a request after the drain has begun. A request that was in transit
    /// finds an open socket, and its response closes the connection.
    pub(crate) drain_quiet: Duration,
    /// From GOAWAY to the cut of a connection without requests in flight.
    pub(crate) close_grace: Duration,
    /// From the start of the drain to the cut of all open connections.
    pub(crate) drain: Duration,
    /// Bytes of HTTP/1 read buffer, which bounds a request's head.
    pub(crate) http1_buffer_bytes_max: usize,
    /// Streams one HTTP/2 connection may have open.
    pub(crate) http2_streams_max: u32,
    /// Bytes of one HTTP/2 header list, after decompression.
    pub(crate) http2_header_list_bytes_max: u32,
    /// Bytes that an HTTP/2 peer may send before the server reads them, per connection; a stream gets half. The window
    /// bounds the memory of a connection and still fills a link of 100 Mbit/s at 20 ms.
    pub(crate) http2_window_bytes: u32,
    /// Bytes of unfinished, buffered request bodies that one connection may hold: as much as eight of the longest.
    pub(crate) body_bytes_per_connection_max: u64,
    /// The same for all connections of the listener: little of a server's memory, and far more than clients need that send
    /// without pauses. [`super::bodies`] defines the parts of small bodies and of an address.
    pub(crate) body_bytes_max: u64,
    /// The interval of the pings that detect dead HTTP/2 peers.
    pub(crate) http2_ping_interval: Duration,
    /// The deadline for the reply to such a ping.
    pub(crate) http2_ping_timeout: Duration,
    /// HTTP/2 control frames that one connection may send in one second: resets, settings, acknowledgements, continuations,
    /// priorities, empty DATA, unknown types, HEADERS that begin no request, and pings and window updates beyond the replies
    /// to data. Clients with deadlines cancel requests now and then; the rapid-reset attack does so a hundred thousand
    /// times a second.
    pub(crate) http2_control_frames_per_second_max: u32,
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
            body_bytes_per_connection_max: 8 * MAX_BODY_BYTES,
            body_bytes_max: 64 * MAX_BODY_BYTES,
            http2_ping_interval: Duration::from_secs(20),
            http2_ping_timeout: Duration::from_secs(10),
            http2_control_frames_per_second_max: 1_000,
        }
    }
}
