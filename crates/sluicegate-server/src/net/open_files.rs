//! The connection limit of each listener, from the process's limit on open files.
//!
//! A connection is an open file. The usual soft limit of 1,024 exists for programs that break with more, so the server
//! raises it to the hard limit at the start. The listeners share the files, so a flood on one of them leaves files for the
//! others and for the store.

use std::num::NonZeroU32;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::declared::LISTENERS;

/// The most connections of one listener. A slow-connection attack with 10,000 of them still leaves room for others, and
/// 32 KiB of buffer for each stay under a gigabyte.
pub(crate) const CONNECTIONS_MAX: NonZeroU32 = match NonZeroU32::new(16_384) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// The fewest connections of one listener, however low the limit is.
const CONNECTIONS_MIN: u32 = 16;

/// Files of the runtime, the log, the configuration and the store.
const FILES_RESERVED: u64 = 128;

/// The listeners (the one for metrics alone has few connections), and the gateway's connections to its upstreams.
const SHARES: u64 = LISTENERS.len() as u64 + 1;

/// Raises the soft limit on open files to the hard limit. Returns the limit in force afterwards.
pub(crate) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let holds = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // Some systems allow less than the hard limit; the old limit stays in force.
        Err(_) => limit.current,
    };
    // `None` is no limit.
    holds.unwrap_or(u64::MAX)
}

/// Connections for each listener under a limit of `open_files`.
pub(crate) fn connections_max(open_files: u64) -> NonZeroU32 {
    let share = open_files.saturating_sub(FILES_RESERVED) / SHARES;
    let share = u32::try_from(share).unwrap_or(u32::MAX).max(CONNECTIONS_MIN);
    NonZeroU32::new(share).map_or(CONNECTIONS_MAX, |share| share.min(CONNECTIONS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_share_the_files_beyond_the_reserve() {
        for (open_files, expected) in
            [(0, 16), (128, 16), (1_024, 179), (65_536, 13_081), (524_288, 16_384), (u64::MAX, 16_384)]
        {
            assert_eq!(connections_max(open_files).get(), expected, "{open_files}");
        }
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let before = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(raise_limit() >= before);
    }
}
