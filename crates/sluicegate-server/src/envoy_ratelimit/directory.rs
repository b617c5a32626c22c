//! The directory: every `*.yaml` and `*.yml` directly in it, in the order of their names.
//!
//! It is read completely or not at all. The watcher reads the texts, and compiles them only if they have changed.

use std::io;
use std::path::{Path, PathBuf};

use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions, Mistakes};
use sluicegate::rules::{RuleSet, RuleSetError};

use crate::config::load::{self, LoadError};

/// The most files: one per domain, and there are far fewer domains than limits.
pub(crate) const FILES_MAX: usize = 1_000;

/// A file's name for error messages, and its text.
pub(crate) type FileText = (String, Vec<u8>);

/// A directory of configuration files.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The options for its files.
    pub(crate) options: EnvoyOptions,
}

/// An error of the directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// It cannot be listed.
    #[error(
        "cannot read the directory {path}: {source}; give the one that holds the files of envoyproxy/ratelimit"
    )]
    Unreadable {
        /// The directory.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// It has no files.
    #[error("the directory {path} holds no configuration; put at least one *.yaml or *.yml file directly in it")]
    Empty {
        /// The directory.
        path: String,
    },
    /// It has too many files.
    #[error("the directory {path} holds {count} files; use at most {FILES_MAX}")]
    TooMany {
        /// The directory.
        path: String,
        /// The number of files.
        count: usize,
    },
    /// One of its files cannot be read.
    #[error("{0}")]
    File(#[from] LoadError),
    /// Its files have errors.
    #[error("the configuration of envoyproxy/ratelimit has mistakes:\n{0}")]
    Mistakes(#[from] Mistakes),
    /// Its limits conflict with the other rules.
    #[error("the limits of envoyproxy/ratelimit do not go together with the other rules: {0}")]
    Rules(#[from] RuleSetError),
}

impl DirectoryError {
    /// Each error as a line of its own.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Mistakes(mistakes) => mistakes.to_string().lines().map(str::to_owned).collect(),
            other => vec![other.to_string()],
        }
    }
}

impl Directory {
    /// `rules` plus those of the directory as it is now.
    pub(crate) fn load(&self, rules: RuleSet) -> Result<RuleSet, DirectoryError> {
        Ok(rules.with_envoy(self.compile(&self.texts()?)?)?)
    }

    /// The parsed files.
    pub(crate) fn compile(&self, texts: &[FileText]) -> Result<EnvoyConfig, Mistakes> {
        EnvoyConfig::read(texts.iter().map(|(name, text)| (name, text)), &self.options)
    }

    /// The files as they are now.
    pub(crate) fn texts(&self) -> Result<Vec<FileText>, DirectoryError> {
        let path = || load::shown(&self.path);
        let files = files(&self.path).map_err(|source| DirectoryError::Unreadable { path: path(), source })?;
        match files.len() {
            0 => return Err(DirectoryError::Empty { path: path() }),
            count if count > FILES_MAX => return Err(DirectoryError::TooMany { path: path(), count }),
            _ => {}
        }
        files.iter().map(|file| Ok((load::shown(file), load::text(file)?))).collect()
    }
}

/// The paths of the files, sorted by name. Hidden files are skipped: editors and ConfigMaps create them.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        // A symbolic link counts as its target.
        if is_yaml && !is_hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}
