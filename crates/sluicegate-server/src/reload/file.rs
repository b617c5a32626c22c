//! One look at the configuration: what its file says now, and the directory of `envoyproxy/ratelimit` if the server runs by
//! one; whether any of it is new, and whether the server could run by it.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::outline::{Changes, Outline};
use crate::config::load::{self, LoadError};
use crate::config::{Config, NO_FILE};
use crate::envoy_ratelimit::directory::FileText;
use crate::envoy_ratelimit::{DirectoryError, EnvoyRatelimit};
use crate::settings::{self, Env, Flags, SettingsError};

/// The file, and all that decides together with it.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    /// The file; there may be none where there is a directory.
    pub(crate) path: Option<PathBuf>,
    /// The directory of `envoyproxy/ratelimit`.
    pub(crate) envoy: Option<EnvoyRatelimit>,
    pub(crate) flags: Flags,
    pub(crate) env: Env,
}

/// What was in the file, or why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen(Result<[u8; 32], String>);

/// A file that the server can run by.
#[derive(Debug)]
pub(super) struct Loaded {
    /// What it says.
    pub(super) config: Config,
    pub(super) seen: Seen,
    pub(super) outline: Outline,
}

/// What a look at the file came to.
#[derive(Debug)]
pub(super) enum Look {
    /// Nobody touched it since the last look.
    Same,
    /// It is new, and good.
    Good(Box<Loaded>),
    /// It is new, and of no use.
    Bad(Seen, BadFile),
}

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFile {
    /// It cannot be read, or has mistakes.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The directory beside it is of no use.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// It does not go together with the command line and the environment.
    #[error("{0}")]
    Settings(#[from] SettingsError),
}

/// All texts that make a configuration.
#[derive(Debug)]
struct Texts {
    file: Vec<u8>,
    directory: Vec<FileText>,
}

impl BadFile {
    /// Each mistake as a line of its own.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Load(LoadError::Mistakes(problems)) => problems.to_string().lines().map(str::to_owned).collect(),
            Self::Directory(error) => error.lines(),
            other => vec![other.to_string()],
        }
    }
}

impl ConfigFile {
    /// The configuration as it is now.
    pub(super) fn load(&self) -> Result<Loaded, BadFile> {
        let texts = self.texts()?;
        self.read(&texts, Seen::of(&texts))
    }

    /// Looks whether the configuration is another than at the last look; if `is_asked_for`, it is read all the same.
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

    /// Everything in whose directory changes may happen.
    pub(super) fn watched(&self) -> impl Iterator<Item = PathBuf> {
        // Whatever is in the directory stands for all of it.
        let inside = self.envoy.as_ref().map(|envoy| envoy.directory.path.join("any"));
        self.path.clone().into_iter().chain(inside)
    }

    fn texts(&self) -> Result<Texts, BadFile> {
        let file = self.path.as_deref().map_or_else(|| Ok(NO_FILE.into()), load::text)?;
        let directory = self.envoy.as_ref().map_or_else(|| Ok(Vec::new()), |envoy| envoy.directory.texts())?;
        Ok(Texts { file, directory })
    }

    fn read(&self, texts: &Texts, seen: Seen) -> Result<Loaded, BadFile> {
        let name = self.path.as_deref().map(load::shown).unwrap_or_default();
        let mut config = Config::parse(&texts.file, &name, self.env.variables()).map_err(LoadError::Mistakes)?;
        let mut outline = Outline::of(&texts.file);
        if let Some(envoy) = &self.envoy {
            let limits = envoy.directory.compile(&texts.directory).map_err(DirectoryError::from)?;
            outline.add_rules(limits.described());
            config.rules = config.rules.with_envoy(limits).map_err(DirectoryError::from)?;
            envoy.complete(&mut config);
        }
        // What needs a restart must not be what a restart fails by.
        settings::merge(&self.flags, &self.env, &config.settings)?;
        Ok(Loaded { config, seen, outline })
    }
}

impl Seen {
    fn of(texts: &Texts) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: &[u8]| {
            // Where one ends and the next begins must be told apart, too.
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
    /// What is different from `before`.
    pub(super) fn changes(&self, before: &Outline) -> Changes {
        before.changes(&self.outline)
    }
}
