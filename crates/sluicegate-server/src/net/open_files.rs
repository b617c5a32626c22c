//! How many connections the process can afford.
//!
//! A connection is an open file, and the usual limit of 1,024 is kept for programs that would break
//! on more; we do not, so at start it is raised as far as the system lets us. What remains is
//! shared between the listeners, so that a flood on one leaves the others, above all health and the
//! store, able to work.

use std::num::NonZeroU32;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most one listener serves. A slow-connection attack with 10,000 of them still leaves room for
/// others, and 32 KiB of buffer for each stay under a gigabyte.
pub(crate) const CONNECTIONS_MAX: NonZeroU32 = match NonZeroU32::new(16_384) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// The fewest one listener serves, however low the limit is.
const CONNECTIONS_MIN: u32 = 16;

/// Files for everything but clients: the runtime, the log, the configuration, the store.
const FILES_RESERVED: u64 = 128;

/// Four listeners, and the gateway's connections to its upstreams.
const SHARES: u64 = 5;

/// Raises the limit on open files to the most that is allowed, and returns what holds then.
pub(crate) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let holds = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // Some systems allow less than they say; what was there before is still there.
        Err(_) => limit.current,
    };
    // `None` means that there is no limit.
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
    fn listeners_share_what_is_left() {
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
