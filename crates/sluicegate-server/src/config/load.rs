//! Reads a configuration file from disk, up to the size bound.

use super::Config;
use sluicegate::rules::file::tree::BYTES_MAX;
use sluicegate::rules::file::{Environment, Problems};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The operating system reports an error.
    #[error("cannot read the configuration file {path}: {source}; check the path and its permissions")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has problems.
    #[error("the configuration file has mistakes:\n{0}")]
    Mistakes(Problems),
}

/// The text of the file, at most one byte beyond the bound, which suffices to reject a longer one.
pub(crate) fn text(path: &Path) -> Result<Vec<u8>, LoadError> {
    let read = || {
        let mut text = Vec::new();
        File::open(path)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    read().map_err(|source| LoadError::Unreadable { path: shown(path), source })
}

/// Reads and checks the file.
pub(crate) fn config(path: &Path, environment: &Environment) -> Result<Config, LoadError> {
    Config::parse(text(path)?, &shown(path), environment).map_err(LoadError::Mistakes)
}

/// The path for messages, without control characters.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string().chars().flat_map(visible).collect()
}

/// Escapes control characters, which could act on a terminal.
fn visible(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_debug());
    let plain = (!character.is_control()).then_some(character);
    escaped.into_iter().flatten().chain(plain)
}
