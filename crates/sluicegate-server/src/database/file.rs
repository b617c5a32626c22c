//! File permissions of a SQLite database: it contains hashes of API keys and the audit, so only the server's user may read it.
//!
//! A new file gets mode 0600, whatever the umask is, and SQLite gives its journals (`-wal`, `-shm`) the mode of the
//! file. Existing files are not changed; if other users may read or write them, the log warns.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The mode of a new file: the owner may read and write.
const MODE: u32 = 0o600;
/// All permissions of other users.
const OTHERS: u32 = 0o077;

/// Creates the file if it does not exist, and warns if other users may access it. An error is left to the database, which cannot
/// open the file either.
pub(super) fn prepare(path: &Path) {
    let _ = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    for (path, mode) in loose(path) {
        tracing::warn!(
            path = %path.display(),
            mode = %format!("{mode:04o}"),
            "others on this machine may open a file of the database; run chmod 600 on it"
        );
    }
}

/// The files of the database that other users may access, with their modes.
pub(super) fn loose(path: &Path) -> Vec<(PathBuf, u32)> {
    let mut files = vec![path.to_owned()];
    for suffix in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        files.push(name.into());
    }
    let mode =
        |file: &Path| file.metadata().ok().map(|metadata| Permissions::mode(&metadata.permissions()) & 0o7777);
    let of_others = |file: PathBuf| mode(&file).filter(|mode| mode & OTHERS != 0).map(|mode| (file, mode));
    files.into_iter().filter_map(of_others).collect()
}
