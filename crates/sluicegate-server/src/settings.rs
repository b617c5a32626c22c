//! Addresses, store and database: flags take precedence over the environment, that over the file, that over defaults.
//!
//! Unvalidated settings are text from three sources: [`Flags`], [`Env`] and [`FileSettings`]. [`merge`] turns them into
//! valid [`Settings`], or into an error with the source, the value and the remedy. Nothing here reads the environment
//! or a file: `main.rs` and the configuration loader do, so every combination can be tested.

mod listen;
mod store_url;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::brute_force::SECRET_BYTES_MIN;
use crate::database::url::DatabaseUrl;
use crate::secret::Secret;
pub(crate) use listen::{Listen, ListenError};
use sluicegate::rules::file::Environment;
pub(crate) use store_url::StoreUrl;

/// Settings from the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) store: Option<String>,
    pub(crate) gateway: Option<String>,
    pub(crate) api: Option<String>,
    pub(crate) admin: Option<String>,
    pub(crate) resp: Option<String>,
    pub(crate) envoy_ratelimit: Option<PathBuf>,
    pub(crate) envoy_xds: Option<String>,
}

/// Settings from the environment. An empty variable counts as unset: compose files leave unset variables empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env {
    config: Option<PathBuf>,
    store: Option<String>,
    database: Option<String>,
    gateway: Option<String>,
    api: Option<String>,
    admin: Option<String>,
    resp: Option<String>,
    admin_token: Option<Secret>,
    log: Option<String>,
    log_format: Option<String>,
    variables: Variables,
}

/// All variables. Each may be a secret, so `Debug` shows only their number.
#[derive(Clone, Default)]
struct Variables(Environment);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

/// Settings from the configuration file, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSettings {
    pub(crate) store: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) gateway: Option<String>,
    pub(crate) api: Option<String>,
    pub(crate) admin: Option<String>,
    pub(crate) resp: Option<String>,
    /// Whether `admin.tokens` lists any.
    pub(crate) has_admin_tokens: bool,
    /// Whether `admin.require_token` is set.
    pub(crate) requires_admin_token: bool,
}

/// Valid settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The store.
    pub(crate) store: StoreUrl,
    /// The database with the rules; `None` means that the file contains them.
    pub(crate) database: Option<DatabaseUrl>,
    /// The reverse proxy, or the demo application.
    pub(crate) gateway: Listen,
    /// The decision API.
    pub(crate) api: Listen,
    /// Dashboard, admin API, metrics and health.
    pub(crate) admin: Listen,
    /// The Redis protocol.
    pub(crate) resp: Listen,
    /// The token of the environment, with the role `admin`.
    pub(crate) admin_token: Option<Secret>,
}

/// The source of a setting, with the name that the operator uses for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    name: &'static str,
    place: SettingSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettingSource {
    Flag,
    Variable,
    File,
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.place {
            SettingSource::Flag => write!(f, "--{name}"),
            SettingSource::Variable => write!(f, "SLUICEGATE_{}", name.to_ascii_uppercase()),
            SettingSource::File => write!(f, "`{name}` in the configuration file"),
            SettingSource::Default => write!(f, "the default of --{name}"),
        }
    }
}

/// Invalid settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A variable with a value that is not UTF-8.
    #[error("{name}: the value is not valid UTF-8; set it again, or unset it")]
    NotText {
        /// The variable.
        name: &'static str,
    },
    /// A listener's address.
    #[error("{origin}: {source}")]
    Listen {
        /// Where it was set.
        origin: Origin,
        /// The problem.
        source: ListenError,
    },
    /// An invalid store URL.
    #[error("{origin}: {problem}")]
    Store {
        /// Where it was set.
        origin: Origin,
        /// The problem, without secrets.
        problem: String,
    },
    /// An invalid database URL.
    #[error("{origin}: {problem}")]
    Database {
        /// Where it was set.
        origin: Origin,
        /// The problem, without secrets.
        problem: String,
    },
    /// A token with characters that an HTTP header cannot contain.
    #[error(
        "SLUICEGATE_ADMIN_TOKEN: the token has characters that an HTTP header cannot carry; \
         use visible ASCII without spaces, such as the output of `openssl rand -hex 32`"
    )]
    AdminToken,
    /// A token that is too short.
    #[error(
        "SLUICEGATE_ADMIN_TOKEN: the token has {length} characters; use at least {SECRET_BYTES_MIN}, such as the output of \
         `openssl rand -hex 32`"
    )]
    ShortAdminToken {
        /// The number of characters.
        length: usize,
    },
    /// A token is required, and there is none.
    #[error("admin.require_token: there is no token; set SLUICEGATE_ADMIN_TOKEN or list some as `admin.tokens`")]
    NoAdminToken,
    /// An open admin listener without a token.
    #[error(
        "the admin listener would be reachable from other machines at {address} without a token; \
         set SLUICEGATE_ADMIN_TOKEN or list some as `admin.tokens`, or listen on loopback with --admin 127.0.0.1:{}",
        address.port()
    )]
    OpenAdmin {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// Every listener is off.
    #[error(
        "every listener is off, so there is nothing to serve; \
         give --gateway, --api, --admin or --resp an address"
    )]
    NothingToServe,
}

impl Env {
    /// Collects the variables through `lookup`: the environment of the process or of a test.
    pub(crate) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let present = |name| lookup(name).filter(|value| !value.is_empty());
        let text = |name| {
            let text = present(name).map(OsString::into_string);
            text.transpose().map_err(|_| SettingsError::NotText { name })
        };
        let admin_token = text("SLUICEGATE_ADMIN_TOKEN")?;
        if admin_token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(SettingsError::AdminToken);
        }
        Ok(Self {
            config: present("SLUICEGATE_CONFIG").map(PathBuf::from),
            store: text("SLUICEGATE_STORE")?,
            database: text("SLUICEGATE_DATABASE")?,
            gateway: text("SLUICEGATE_GATEWAY")?,
            api: text("SLUICEGATE_API")?,
            admin: text("SLUICEGATE_ADMIN")?,
            resp: text("SLUICEGATE_RESP")?,
            admin_token: admin_token.map(Secret::new),
            log: text("SLUICEGATE_LOG")?,
            log_format: text("SLUICEGATE_LOG_FORMAT")?,
            variables: Variables::default(),
        })
    }

    /// Adds all variables, which a configuration file can use as `${NAME}`.
    pub(crate) fn with_variables(self, variables: Environment) -> Self {
        Self { variables: Variables(variables), ..self }
    }

    /// The variables that a configuration file can use as `${NAME}`.
    pub(crate) fn variables(&self) -> &Environment {
        &self.variables.0
    }

    /// The URL of the database from the environment.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The token for the admin API.
    pub(crate) fn admin_token(&self) -> Option<&Secret> {
        self.admin_token.as_ref()
    }

    /// The configuration file.
    pub(crate) fn config_path(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The log filter.
    pub(crate) fn log(&self) -> Option<&str> {
        self.log.as_deref()
    }

    /// The log format.
    pub(crate) fn log_format(&self) -> Option<&str> {
        self.log_format.as_deref()
    }
}

/// The configuration file to read before settings can be merged.
pub(crate) fn config_path<'a>(flags: &'a Flags, env: &'a Env) -> Option<&'a Path> {
    flags.config.as_deref().or(env.config.as_deref())
}

/// The store, from the source with the highest precedence.
pub(crate) fn store(flags: &Flags, env: &Env, file: &FileSettings) -> Result<StoreUrl, SettingsError> {
    ChosenSetting::first("store", [&flags.store, &env.store, &file.store], "memory").store()
}

/// The database, from the source with the highest precedence.
fn database(env: &Env, file: &FileSettings) -> Result<Option<DatabaseUrl>, SettingsError> {
    let chosen = ChosenSetting::first("database", [&None, &env.database, &file.database], "");
    if chosen.origin.place == SettingSource::Default {
        return Ok(None);
    }
    let origin = chosen.origin;
    DatabaseUrl::parse(chosen.value).map(Some).map_err(|problem| SettingsError::Database { origin, problem })
}

/// Selects the value of every setting and validates it.
pub(crate) fn merge(flags: &Flags, env: &Env, file: &FileSettings) -> Result<Settings, SettingsError> {
    let gateway = [&flags.gateway, &env.gateway, &file.gateway];
    let api = [&flags.api, &env.api, &file.api];
    let admin = [&flags.admin, &env.admin, &file.admin];
    let resp = [&flags.resp, &env.resp, &file.resp];
    let settings = Settings {
        store: store(flags, env, file)?,
        database: database(env, file)?,
        gateway: ChosenSetting::first("gateway", gateway, "127.0.0.1:8080").listen()?,
        api: ChosenSetting::first("api", api, "127.0.0.1:8081").listen()?,
        admin: ChosenSetting::first("admin", admin, "127.0.0.1:8082").listen()?,
        resp: ChosenSetting::first("resp", resp, "off").example("127.0.0.1:6379").listen()?,
        admin_token: env.admin_token.clone(),
    };
    settings.check(file)?;
    Ok(settings)
}

impl Settings {
    /// Checks that involve several settings. An admin listener that other machines can reach needs a token of any role.
    fn check(&self, file: &FileSettings) -> Result<(), SettingsError> {
        let has_admin_tokens = file.has_admin_tokens;
        let length = self.admin_token.as_ref().map(|token| token.reveal().len());
        if let Some(length) = length.filter(|length| *length < SECRET_BYTES_MIN) {
            return Err(SettingsError::ShortAdminToken { length });
        }
        if file.requires_admin_token && self.admin_token.is_none() && !has_admin_tokens {
            return Err(SettingsError::NoAdminToken);
        }
        if let Listen::At(address) = self.admin
            && !address.ip().to_canonical().is_loopback()
            && self.admin_token.is_none()
            && !has_admin_tokens
        {
            return Err(SettingsError::OpenAdmin { address });
        }
        if [self.gateway, self.api, self.admin, self.resp].iter().all(|listen| *listen == Listen::Off) {
            return Err(SettingsError::NothingToServe);
        }
        Ok(())
    }
}

/// The value with the highest precedence, and its source.
struct ChosenSetting<'a> {
    origin: Origin,
    value: &'a str,
    /// A valid value for error messages.
    example: &'static str,
}

impl<'a> ChosenSetting<'a> {
    /// The first value of `[flag, variable, file]` that is set, else the default.
    fn first(name: &'static str, places: [&'a Option<String>; 3], default: &'static str) -> Self {
        let [flag, variable, file] = places;
        let (place, value) =
            [(SettingSource::Flag, flag), (SettingSource::Variable, variable), (SettingSource::File, file)]
                .into_iter()
                .find_map(|(place, value)| Some((place, value.as_deref()?)))
                .unwrap_or((SettingSource::Default, default));
        Self { origin: Origin { name, place }, value, example: default }
    }

    /// Sets another example, for listeners that are off by default.
    fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    fn listen(self) -> Result<Listen, SettingsError> {
        let origin = self.origin;
        let listen = Listen::parse(self.value, self.example);
        listen.map_err(|source| SettingsError::Listen { origin, source })
    }

    fn store(self) -> Result<StoreUrl, SettingsError> {
        let origin = self.origin;
        StoreUrl::parse(self.value).map_err(|problem| SettingsError::Store { origin, problem })
    }
}
