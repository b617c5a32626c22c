//! One check of the configuration: the content of the file and, if configured, of the directory of `envoyproxy/ratelimit`;
//! whether it has changed, and whether it is valid for this server.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::outline::{Changes, Outline};
use crate::config::load::{self, LoadError};
use crate::config::{Config, NO_FILE};
use crate::envoy_ratelimit::directory::FileText;
use crate::envoy_ratelimit::{Directory, DirectoryError, EnvoyRatelimit};
use crate::settings::{self, Env, Flags, SettingsError};

/// The file, and all other inputs of the configuration.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    /// The file; optional if there is a directory or a control plane.
    pub(crate) path: Option<PathBuf>,
    /// The directory or the control plane of `envoyproxy/ratelimit`.
    pub(crate) envoy: Option<EnvoyRatelimit>,
    pub(crate) flags: Flags,
    pub(crate) env: Env,
}

/// The content of the file, or its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen(Result<[u8; 32], String>);

/// A valid configuration.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The parsed file.
    pub(super) config: Config,
    pub(super) seen: Seen,
    pub(super) outline: Outline,
}

/// The result of a check.
#[derive(Debug)]
pub(super) enum Look {
    /// Unchanged since the last check.
    Same,
    /// New and valid.
    Good(Box<Loaded>),
    /// New and invalid.
    Bad(Seen, BadFile),
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFile {
    /// The file is unreadable, or has errors.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The directory has errors.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// It conflicts with the command line or the environment.
    #[error("{0}")]
    Settings(#[from] SettingsError),
}

/// All texts of a configuration.
#[derive(Debug)]
struct Texts {
    file: Vec<u8>,
    directory: Vec<FileText>,
}

impl BadFile {
    /// Each error as a line of its own.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Load(LoadError::Mistakes(problems)) => problems.to_string().lines().map(str::to_owned).collect(),
            Self::Directory(error) => error.lines(),
            other => vec![other.to_string()],
        }
    }
}

impl ConfigFile {
    /// The current configuration.
    pub(super) fn load(&self) -> Result<Loaded, BadFile> {
        let texts = self.texts()?;
        self.read(&texts, Seen::of(&texts))
    }

    /// Checks whether the configuration has changed since the last check; with `is_asked_for`, it is always read.
    pub(super) fn look(&self, last: &Seen, is_asked_for: bool) -> Look {
        let (seen, texts) = match self.texts() {
            Ok(texts) => (Seen::of(&texts), Ok(texts)),
            Err(error) => (Seen(Err(error.to_string())), Err(error)),
        };
        if seen == *last && !is_asked_for {
            return Look::Same;
        }
        match texts.and_then(|texts| self.read(&texts, seen.clone())) {
            Ok(loaded) => Look::Good(Box::new(loaded)),
            Err(bad) => Look::Bad(seen, bad),
        }
    }

    /// All paths whose directories are to be watched.
    pub(super) fn watched(&self) -> impl Iterator<Item = PathBuf> {
        // One path inside the directory stands for all of it.
        let inside = self.directory().map(|directory| directory.path.join("any"));
        self.path.clone().into_iter().chain(inside)
    }

    fn directory(&self) -> Option<&Directory> {
        self.envoy.as_ref()?.directory()
    }

    fn texts(&self) -> Result<Texts, BadFile> {
        let file = self.path.as_deref().map_or_else(|| Ok(NO_FILE.into()), load::text)?;
        let directory = self.directory().map_or_else(|| Ok(Vec::new()), Directory::texts)?;
        Ok(Texts { file, directory })
    }

    fn read(&self, texts: &Texts, seen: Seen) -> Result<Loaded, BadFile> {
        let name = self.path.as_deref().map(load::shown).unwrap_or_default();
        let mut config = Config::parse(&texts.file, &name, self.env.variables()).map_err(LoadError::Mistakes)?;
        let mut outline = Outline::of(&texts.file);
        if let Some(directory) = self.directory() {
            let limits = directory.compile(&texts.directory).map_err(DirectoryError::from)?;
            outline.add_rules(limits.described());
            config.rules = config.rules.with_envoy(limits).map_err(DirectoryError::from)?;
        }
        self.envoy.iter().for_each(|envoy| envoy.complete(&mut config));
        // A reload must not accept keys with which the next start would fail.
        settings::merge(&self.flags, &self.env, &config.settings)?;
        Ok(Loaded { config, seen, outline })
    }
}

impl Seen {
    fn of(texts: &Texts) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: &[u8]| {
            // The boundaries of the texts are part of the digest, too.
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        };
        add(&texts.file);
        for (name, text) in &texts.directory {
            add(name.as_bytes());
            add(text);
        }
        Self(Ok(digest.finalize().into()))
    }
}

impl Loaded {
    /// The differences from `before`.
    pub(super) fn changes(&self, before: &Outline) -> Changes {
        before.changes(&self.outline)
    }
}
