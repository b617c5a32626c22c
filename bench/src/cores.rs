//! CPU pinning: the measured server has the first core for itself, all other processes use the others.

use core_affinity::CoreId;
use std::sync::LazyLock;

/// The cores before any thread was pinned: a pinned thread sees only its own.
static CORES: LazyLock<Vec<CoreId>> = LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Starts a server on the first core. Child processes inherit the core of their thread; afterwards the thread is a
/// client again.
pub(crate) fn on_first<T>(start: impl FnOnce() -> T) -> T {
    if let Some(first) = CORES.first() {
        core_affinity::set_for_current(*first);
    }
    let started = start();
    pin_client(0);
    started
}

/// Pins the calling thread to a core other than the server's.
pub(crate) fn pin_client(thread: usize) {
    if let [_, others @ ..] = CORES.as_slice()
        && !others.is_empty()
    {
        core_affinity::set_for_current(others[thread % others.len()]);
    }
}

/// The core of the thread with this number if no server is measured.
pub(crate) fn nth(thread: usize) -> Option<CoreId> {
    CORES.get(thread % CORES.len().max(1)).copied()
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// The model of the processor, and the number of cores that this process may use.
pub(crate) fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{}, {} cores", model.map_or("unknown processor", |(_, name)| name), CORES.len())
}
