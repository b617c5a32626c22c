//! Support for the configuration of `envoyproxy/ratelimit`: its directory of files or its control plane, and its environment
//! variables as defaults.
//!
//! It is active if a directory or a control plane is named: by `--envoy-ratelimit` or `--envoy-xds`, by
//! `SLUICEGATE_ENVOY_RATELIMIT` or `SLUICEGATE_ENVOY_XDS`, or by that project's own variables: `CONFIG_TYPE=GRPC_XDS_SOTW`
//! for a control plane, else `RUNTIME_ROOT` for a directory. Otherwise its variables are ignored, because names such as
//! `PORT` and `HOST` are too common.

pub(crate) mod directory;
mod duration;
pub(crate) mod headers;
mod log_variables;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod tracing_variables;
mod variables;
pub(crate) mod xds;

use std::path::{Path, PathBuf};

use sluicegate::rules::file::Environment;

use crate::config::Config;
use crate::settings::declared::{ADMIN, API, ENVOY_RATELIMIT, ENVOY_XDS, GATEWAY, STORE};
use crate::settings::{Env, Flags};
pub(crate) use directory::{Directory, DirectoryError};
pub(crate) use log_variables::log_variables;
use variables::SourceKind;
pub(crate) use variables::VariableError;
use variables::Variables;
use xds::XdsSettings;

/// The source of the limits with the settings of the variables.
#[derive(Clone, Debug)]
pub(crate) struct EnvoyRatelimit {
    /// The source.
    pub(crate) source: EnvoySource,
    variables: Variables,
}

/// A source of limits.
#[derive(Clone, Debug)]
pub(crate) enum EnvoySource {
    /// Files.
    Directory(Directory),
    /// A control plane.
    Xds(Box<XdsSettings>),
}

/// A source as the command line and the environment name it.
enum NamedSource {
    Directory(PathBuf),
    Xds(Option<String>),
}

impl EnvoyRatelimit {
    /// The source that the command line or the environment names, if any.
    pub(crate) fn chosen(flags: &Flags, env: &Env) -> Result<Option<Self>, VariableError> {
        Self::named(flags.path(&ENVOY_RATELIMIT), flags.text(&ENVOY_XDS), env.variables())
    }

    /// The directory that `flag` names, or else the source that a variable names.
    pub(crate) fn at(flag: Option<&Path>, environment: &Environment) -> Result<Option<Self>, VariableError> {
        Self::named(flag, None, environment)
    }

    fn named(
        directory: Option<&Path>,
        xds: Option<&str>,
        environment: &Environment,
    ) -> Result<Option<Self>, VariableError> {
        let (source, variables) = match source(directory, xds, environment)? {
            None => return Ok(None),
            Some(NamedSource::Directory(path)) => {
                let variables = Variables::read(environment, SourceKind::Directory)?;
                (EnvoySource::Directory(Directory { path, options: variables.options }), variables)
            }
            Some(NamedSource::Xds(server)) => {
                let kind = if server.is_some() { SourceKind::Xds } else { SourceKind::TheirXds };
                let variables = Variables::read(environment, kind)?;
                let settings = XdsSettings::read(server.as_deref(), environment, variables.options)?;
                (EnvoySource::Xds(Box::new(settings)), variables)
            }
        };
        Ok(Some(Self { source, variables }))
    }

    /// The directory, if the limits come from one.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        match &self.source {
            EnvoySource::Directory(directory) => Some(directory),
            EnvoySource::Xds(_) => None,
        }
    }

    /// The control plane, if the limits come from one.
    pub(crate) fn xds(&self) -> Option<&XdsSettings> {
        match &self.source {
            EnvoySource::Directory(_) => None,
            EnvoySource::Xds(settings) => Some(settings),
        }
    }

    /// Sets the keys of `config` that are unset from the variables.
    pub(crate) fn complete(&self, config: &mut Config) {
        let Variables { api, gateway, admin, store, redis_files, headers, api_tls, .. } = &self.variables;
        config.envoy_headers = headers.clone();
        for (setting, theirs) in [(&API, api), (&GATEWAY, gateway), (&ADMIN, admin), (&STORE, store)] {
            config.settings.values.complete(setting, theirs.as_deref());
        }
        let redis = &mut config.redis;
        redis.ca_file = redis.ca_file.take().or_else(|| redis_files.authorities.clone());
        redis.client_files = redis.client_files.take().or_else(|| redis_files.client.clone());
        let tls = &mut config.listeners.api.tls;
        *tls = tls.take().or_else(|| api_tls.clone());
        config.listeners.prometheus = self.variables.prometheus.clone();
        config.traces = config.traces.take().or_else(|| self.variables.traces.clone());
    }

    /// Logs the variables that are set and have no effect.
    pub(crate) fn warn_of_unused(&self) {
        if !self.variables.unused.is_empty() {
            let variables = self.variables.unused.join(", ");
            tracing::warn!(variables, "these variables of envoyproxy/ratelimit have no meaning here");
        }
    }
}

/// The source with the highest precedence: flags, then Sluicegate's own variables, then those of `envoyproxy/ratelimit`.
fn source(
    directory: Option<&Path>,
    xds: Option<&str>,
    environment: &Environment,
) -> Result<Option<NamedSource>, VariableError> {
    let one = |directory: Option<PathBuf>, xds: Option<String>| match (directory, xds) {
        (Some(_), Some(_)) => {
            let problem = "a control plane and a directory are both set; remove one of the two";
            Err(VariableError::new(ENVOY_XDS.variable, problem))
        }
        (Some(path), None) => Ok(Some(NamedSource::Directory(path))),
        (None, Some(server)) => Ok(Some(NamedSource::Xds(Some(server)))),
        (None, None) => Ok(None),
    };
    let own = |name| variables::text(environment, name);
    let by_flag = one(directory.map(Path::to_owned), xds.map(str::to_owned))?;
    let by_own =
        || one(own(ENVOY_RATELIMIT.variable).map(PathBuf::from), own(ENVOY_XDS.variable).map(str::to_owned));
    let found = if by_flag.is_some() { by_flag } else { by_own()? };
    let theirs = || match variables::chooses_xds(environment) {
        true => Some(NamedSource::Xds(None)),
        false => variables::directory(environment).map(NamedSource::Directory),
    };
    Ok(found.or_else(theirs))
}
