//! Who runs where: the server that is measured has the first core for itself, everybody else has the others.

use core_affinity::CoreId;
use std::sync::LazyLock;

/// The cores, as they were before any thread was put on one: a thread on one core sees only that one.
static CORES: LazyLock<Vec<CoreId>> = LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Starts a server on the first core. What a thread starts runs where the thread runs; afterwards the thread is a
/// client again.
pub(crate) fn on_first<T>(start: impl FnOnce() -> T) -> T {
    if let Some(first) = CORES.first() {
        core_affinity::set_for_current(*first);
    }
    let started = start();
    pin_client(0);
    started
}

/// Puts the calling thread on a core that is not the server's.
pub(crate) fn pin_client(thread: usize) {
    if let [_, others @ ..] = CORES.as_slice()
        && !others.is_empty()
    {
        core_affinity::set_for_current(others[thread % others.len()]);
    }
}

/// The core on which the thread with this number runs when no server is measured.
pub(crate) fn nth(thread: usize) -> Option<CoreId> {
    CORES.get(thread % CORES.len().max(1)).copied()
}

/// How busy the machine is, averaged over the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// What the machine calls its processor, and how many of its cores this process has.
pub(crate) fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{}, {} cores", model.map_or("unknown processor", |(_, name)| name), CORES.len())
}
