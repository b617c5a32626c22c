//! From a path to the text of a configuration file, no longer than a good one can be.

use super::Config;
use sluicegate::rules::file::tree::BYTES_MAX;
use sluicegate::rules::file::{Environment, Problems};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// It cannot be read.
    #[error("cannot read the configuration file {path}: {source}; check the path and its permissions")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It can be read, and has mistakes.
    #[error("the configuration file has mistakes:\n{0}")]
    Mistakes(Problems),
}

/// The file's text; one byte more than allowed is enough to tell that it is too long.
pub(crate) fn text(path: &Path) -> Result<Vec<u8>, LoadError> {
    let read = || {
        let mut text = Vec::new();
        File::open(path)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    read().map_err(|source| LoadError::Unreadable { path: shown(path), source })
}

/// Reads the file as a configuration.
pub(crate) fn config(path: &Path, environment: &Environment) -> Result<Config, LoadError> {
    Config::parse(text(path)?, &shown(path), environment).map_err(LoadError::Mistakes)
}

/// The path as messages call it.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string().chars().flat_map(visible).collect()
}

/// Control characters in a path must not act on the reader's terminal.
fn visible(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_debug());
    let plain = (!character.is_control()).then_some(character);
    escaped.into_iter().flatten().chain(plain)
}
