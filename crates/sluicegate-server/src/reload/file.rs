//! One look at the configuration file: what it says now, whether that is new, and whether the server could run by it.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::outline::{Changes, Outline};
use crate::config::Config;
use crate::config::load::{self, LoadError};
use crate::settings::{self, Env, Flags, SettingsError};

/// The file, and all that decides together with it.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) flags: Flags,
    pub(crate) env: Env,
}

/// What was in the file, or why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content(Result<[u8; 32], String>);

/// A file that the server can run by.
#[derive(Debug)]
pub(super) struct Loaded {
    /// What it says.
    pub(super) config: Config,
    pub(super) content: Content,
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
    Bad(Content, BadFile),
}

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFile {
    /// It cannot be read, or has mistakes.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// It does not go together with the command line and the environment.
    #[error("{0}")]
    Settings(#[from] SettingsError),
}

impl BadFile {
    /// Each mistake as a line of its own.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Load(LoadError::Mistakes(problems)) => problems.to_string().lines().map(str::to_owned).collect(),
            other => vec![other.to_string()],
        }
    }
}

impl ConfigFile {
    /// The file as it is now.
    pub(super) fn load(&self) -> Result<Loaded, BadFile> {
        let text = load::text(&self.path)?;
        self.read(&text, Content::of(&text))
    }

    /// Looks whether the file is another than at the last look; if `is_asked_for`, it is read all the same.
    pub(super) fn look(&self, last: &Content, is_asked_for: bool) -> Look {
        let (content, text) = match load::text(&self.path) {
            Ok(text) => (Content::of(&text), Ok(text)),
            Err(error) => (Content(Err(error.to_string())), Err(error)),
        };
        if content == *last && !is_asked_for {
            return Look::Same;
        }
        match text.map_err(BadFile::from).and_then(|text| self.read(&text, content.clone())) {
            Ok(loaded) => Look::Good(Box::new(loaded)),
            Err(bad) => Look::Bad(content, bad),
        }
    }

    fn read(&self, text: &[u8], content: Content) -> Result<Loaded, BadFile> {
        let name = load::shown(&self.path);
        let config = Config::parse(text, &name, self.env.variables()).map_err(LoadError::Mistakes)?;
        // What needs a restart must not be what a restart fails by.
        settings::merge(&self.flags, &self.env, &config.settings)?;
        Ok(Loaded { config, content, outline: Outline::of(text) })
    }
}

impl Content {
    fn of(text: &[u8]) -> Self {
        Self(Ok(Sha256::digest(text).into()))
    }
}

impl Loaded {
    /// What is different from `before`.
    pub(super) fn changes(&self, before: &Outline) -> Changes {
        before.changes(&self.outline)
    }
}
