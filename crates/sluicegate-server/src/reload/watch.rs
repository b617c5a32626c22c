//! Wakes the reloader on events in the directory of the configuration file.
//!
//! It watches the directory and not the file: an atomic rename and the swap of a symbolic link, as for ConfigMaps, put
//! another file in its place, and a watch on the old one would miss later changes. Whether an event matters is
//! decided elsewhere. If nothing can be watched, the reloader's periodic checks find changes a little
//! later.

use std::path::Path;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    _watcher: RecommendedWatcher,
}

impl DirectoryWatch {
    /// Calls `wake` after every event that may change the content of `file`. `None` if it cannot be watched, which is
    /// logged.
    pub(super) fn start(file: &Path, wake: impl Fn() + Send + 'static) -> Option<Self> {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let handler = move |event: notify::Result<notify::Event>| {
            // After an error events may be missing, so it is a reason to check, too.
            if event.is_ok_and(|event| !is_change(event.kind)) {
                return;
            }
            wake();
        };
        let watch = || {
            let mut watcher = notify::recommended_watcher(handler)?;
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
            Ok::<_, notify::Error>(watcher)
        };
        match watch() {
            Ok(_watcher) => Some(Self { _watcher }),
            Err(error) => {
                tracing::info!(
                    directory = %directory.display(),
                    %error,
                    "the directory of the configuration file cannot be watched; the file is looked at every second instead"
                );
                None
            }
        }
    }
}

/// Reading the file is an event as well, and must not cause another read.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind, RemoveKind};

    use super::*;

    #[test]
    fn reading_the_file_does_not_wake_the_reloader() {
        use AccessKind::{Any, Close, Open, Read};
        for access in [Any, Read, Open(AccessMode::Any), Open(AccessMode::Read), Close(AccessMode::Read)] {
            assert!(!is_change(EventKind::Access(access)), "{access:?}");
        }
        let written = EventKind::Access(Close(AccessMode::Write));
        let others = [
            EventKind::Create(CreateKind::Any),
            EventKind::Modify(ModifyKind::Any),
            EventKind::Remove(RemoveKind::Any),
            EventKind::Any,
        ];
        assert!(is_change(written) && others.into_iter().all(is_change));
    }
}
