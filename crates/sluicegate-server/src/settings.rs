//! Where the server listens and what it stores in: flags over environment over file over defaults.
//!
//! As typed, settings are text from three places ([`Flags`], [`Env`], [`FileSettings`]); [`merge`]
//! makes of them [`Settings`] that cannot be wrong, or an error that names the place, the value and
//! the remedy. Nothing here reads the environment or a file: `main.rs` does the one, the
//! configuration loader the other, so every combination can be tested.

mod listen;
mod store_url;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

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
}

/// Settings from the environment. An empty variable counts as unset, as compose files leave them
/// so.
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

/// All variables. Any of them may be a secret, so they do not print themselves.
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
}

/// Everything settled.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where state lives.
    pub(crate) store: StoreUrl,
    /// Where rules are, if not in the file.
    pub(crate) database: Option<DatabaseUrl>,
    /// The reverse proxy, or the demo application.
    pub(crate) gateway: Listen,
    /// The decision API.
    pub(crate) api: Listen,
    /// Health.
    pub(crate) admin: Listen,
    /// The protocol of Redis.
    pub(crate) resp: Listen,
    /// What changes need; without one there are no changes.
    pub(crate) admin_token: Option<Secret>,
}

/// One place a setting can come from, as the user would name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    name: &'static str,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Flag,
    Variable,
    File,
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.place {
            Place::Flag => write!(f, "--{name}"),
            Place::Variable => write!(f, "SLUICEGATE_{}", name.to_ascii_uppercase()),
            Place::File => write!(f, "`{name}` in the configuration file"),
            Place::Default => write!(f, "the default of --{name}"),
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A variable whose value is not UTF-8.
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
        /// What is wrong with it.
        source: ListenError,
    },
    /// A store that is none.
    #[error("{origin}: {problem}")]
    Store {
        /// Where it was set.
        origin: Origin,
        /// What is wrong with it, without anything secret.
        problem: String,
    },
    /// A database that is none.
    #[error("{origin}: {problem}")]
    Database {
        /// Where it was set.
        origin: Origin,
        /// What is wrong with it, without anything secret.
        problem: String,
    },
    /// A token that no header could carry.
    #[error(
        "SLUICEGATE_ADMIN_TOKEN: the token has characters that an HTTP header cannot carry; \
         use visible ASCII without spaces, such as the output of `openssl rand -hex 32`"
    )]
    AdminToken,
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
    /// Collects the variables through `lookup`, which is the environment or a test's.
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

    /// The same, with every variable that a configuration file may name as `${NAME}`.
    pub(crate) fn with_variables(self, variables: Environment) -> Self {
        Self { variables: Variables(variables), ..self }
    }

    /// What a configuration file may name as `${NAME}`.
    pub(crate) fn variables(&self) -> &Environment {
        &self.variables.0
    }

    /// Where rules are, as the environment says it.
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

    /// The form of the log.
    pub(crate) fn log_format(&self) -> Option<&str> {
        self.log_format.as_deref()
    }
}

/// The configuration file to read before settings can be merged.
pub(crate) fn config_path<'a>(flags: &'a Flags, env: &'a Env) -> Option<&'a Path> {
    flags.config.as_deref().or(env.config.as_deref())
}

/// Decides where state lives.
pub(crate) fn store(flags: &Flags, env: &Env, file: &FileSettings) -> Result<StoreUrl, SettingsError> {
    Chosen::first("store", [&flags.store, &env.store, &file.store], "memory").store()
}

/// Decides where rules are.
fn database(env: &Env, file: &FileSettings) -> Result<Option<DatabaseUrl>, SettingsError> {
    let chosen = Chosen::first("database", [&None, &env.database, &file.database], "");
    if chosen.origin.place == Place::Default {
        return Ok(None);
    }
    let origin = chosen.origin;
    DatabaseUrl::parse(chosen.value).map(Some).map_err(|problem| SettingsError::Database { origin, problem })
}

/// Decides every setting.
pub(crate) fn merge(flags: &Flags, env: &Env, file: &FileSettings) -> Result<Settings, SettingsError> {
    let gateway = [&flags.gateway, &env.gateway, &file.gateway];
    let api = [&flags.api, &env.api, &file.api];
    let admin = [&flags.admin, &env.admin, &file.admin];
    let resp = [&flags.resp, &env.resp, &file.resp];
    let settings = Settings {
        store: store(flags, env, file)?,
        database: database(env, file)?,
        gateway: Chosen::first("gateway", gateway, "127.0.0.1:8080").listen()?,
        api: Chosen::first("api", api, "127.0.0.1:8081").listen()?,
        admin: Chosen::first("admin", admin, "127.0.0.1:8082").listen()?,
        resp: Chosen::first("resp", resp, "off").example("127.0.0.1:6379").listen()?,
        admin_token: env.admin_token.clone(),
    };
    settings.check(file.has_admin_tokens)?;
    Ok(settings)
}

impl Settings {
    /// What no single setting can tell. With a token of any role, whoever has none reads nothing from afar.
    fn check(&self, has_admin_tokens: bool) -> Result<(), SettingsError> {
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

/// The value that wins, and where it was set.
struct Chosen<'a> {
    origin: Origin,
    value: &'a str,
    /// What errors show as a value that would do.
    example: &'static str,
}

impl<'a> Chosen<'a> {
    /// The first that is set of `[flag, variable, file]`, or else the default.
    fn first(name: &'static str, places: [&'a Option<String>; 3], default: &'static str) -> Self {
        let [flag, variable, file] = places;
        let (place, value) = [(Place::Flag, flag), (Place::Variable, variable), (Place::File, file)]
            .into_iter()
            .find_map(|(place, value)| Some((place, value.as_deref()?)))
            .unwrap_or((Place::Default, default));
        Self { origin: Origin { name, place }, value, example: default }
    }

    /// The same with another example, for what is off by default.
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
