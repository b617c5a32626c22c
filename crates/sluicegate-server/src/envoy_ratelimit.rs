//! Running by the configuration of `envoyproxy/ratelimit`: its directory of files, and its environment variables where ours
//! are not given.
//!
//! It is in use if `--envoy-ratelimit`, `SLUICEGATE_ENVOY_RATELIMIT` or that project's own `RUNTIME_ROOT` names a directory.
//! Otherwise none of its variables means anything here: `PORT` and `HOST` are too common for that.

pub(crate) mod directory;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod variables;

use std::path::{Path, PathBuf};

use sluicegate::rules::file::Environment;

use crate::config::Config;
use crate::settings::{Env, Flags};
pub(crate) use directory::{Directory, DirectoryError};
pub(crate) use variables::VariableError;
use variables::Variables;

/// Our own variable for the directory.
const OWN_VARIABLE: &str = "SLUICEGATE_ENVOY_RATELIMIT";

/// A directory to run by, and what the variables say.
#[derive(Clone, Debug)]
pub(crate) struct EnvoyRatelimit {
    /// The files.
    pub(crate) directory: Directory,
    variables: Variables,
}

impl EnvoyRatelimit {
    /// What the command line and the environment ask for, if they do.
    pub(crate) fn chosen(flags: &Flags, env: &Env) -> Result<Option<Self>, VariableError> {
        Self::at(flags.envoy_ratelimit.as_deref(), env.variables())
    }

    /// The directory that `flag` names, or else a variable.
    pub(crate) fn at(flag: Option<&Path>, environment: &Environment) -> Result<Option<Self>, VariableError> {
        let own = environment.get(OWN_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let path = flag.map(Path::to_owned).or(own).or_else(|| variables::directory(environment));
        let Some(path) = path else { return Ok(None) };
        let variables = Variables::read(environment)?;
        Ok(Some(Self { directory: Directory { path, options: variables.options }, variables }))
    }

    /// Puts what the variables say where `config` says nothing.
    pub(crate) fn complete(&self, config: &mut Config) {
        let Variables { api, gateway, admin, store, redis_files, .. } = &self.variables;
        let settings = &mut config.settings;
        for (setting, theirs) in [
            (&mut settings.api, api),
            (&mut settings.gateway, gateway),
            (&mut settings.admin, admin),
            (&mut settings.store, store),
        ] {
            *setting = setting.take().or_else(|| theirs.clone());
        }
        let redis = &mut config.redis;
        redis.ca_file = redis.ca_file.take().or_else(|| redis_files.authorities.clone());
        redis.client_files = redis.client_files.take().or_else(|| redis_files.client.clone());
    }

    /// Names the variables that are set and mean nothing here.
    pub(crate) fn warn_of_unused(&self) {
        if !self.variables.unused.is_empty() {
            let variables = self.variables.unused.join(", ");
            tracing::warn!(variables, "these variables of envoyproxy/ratelimit have no meaning here");
        }
    }
}
