//! Support for the configuration of `envoyproxy/ratelimit`: its directory of files, and its environment variables as
//! defaults.
//!
//! It is active if `--envoy-ratelimit`, `SLUICEGATE_ENVOY_RATELIMIT` or that project's own `RUNTIME_ROOT` names a directory.
//! Otherwise its variables are ignored, because names such as `PORT` and `HOST` are too common.

pub(crate) mod directory;
pub(crate) mod headers;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod variables;

use std::path::Path;

use sluicegate::rules::file::Environment;

use crate::config::Config;
use crate::settings::declared::{ADMIN, API, ENVOY_RATELIMIT, GATEWAY, STORE};
use crate::settings::{Env, Flags};
pub(crate) use directory::{Directory, DirectoryError};
pub(crate) use variables::VariableError;
use variables::Variables;

/// The directory with the settings of the variables.
#[derive(Clone, Debug)]
pub(crate) struct EnvoyRatelimit {
    /// The files.
    pub(crate) directory: Directory,
    variables: Variables,
}

impl EnvoyRatelimit {
    /// The directory that the command line or the environment names, if any.
    pub(crate) fn chosen(flags: &Flags, env: &Env) -> Result<Option<Self>, VariableError> {
        Self::at(flags.path(&ENVOY_RATELIMIT).or(env.path(&ENVOY_RATELIMIT)), env.variables())
    }

    /// The directory `path`, or else that of the variables of `envoyproxy/ratelimit`.
    pub(crate) fn at(path: Option<&Path>, environment: &Environment) -> Result<Option<Self>, VariableError> {
        let path = path.map(Path::to_owned).or_else(|| variables::directory(environment));
        let Some(path) = path else { return Ok(None) };
        let variables = Variables::read(environment)?;
        Ok(Some(Self { directory: Directory { path, options: variables.options }, variables }))
    }

    /// Sets the keys of `config` that are unset from the variables.
    pub(crate) fn complete(&self, config: &mut Config) {
        let Variables { api, gateway, admin, store, redis_files, headers, .. } = &self.variables;
        config.envoy_headers = headers.clone();
        for (setting, theirs) in [(&API, api), (&GATEWAY, gateway), (&ADMIN, admin), (&STORE, store)] {
            config.settings.values.complete(setting, theirs.as_deref());
        }
        let redis = &mut config.redis;
        redis.ca_file = redis.ca_file.take().or_else(|| redis_files.authorities.clone());
        redis.client_files = redis.client_files.take().or_else(|| redis_files.client.clone());
    }

    /// Logs the variables that are set and have no effect.
    pub(crate) fn warn_of_unused(&self) {
        if !self.variables.unused.is_empty() {
            let variables = self.variables.unused.join(", ");
            tracing::warn!(variables, "these variables of envoyproxy/ratelimit have no meaning here");
        }
    }
}
