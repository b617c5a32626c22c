//! Addresses, store and database: flags take precedence over the environment, that over the file, that over defaults.
//!
//! Each setting has one [declaration](declared). Unvalidated values come from three sources: [`Flags`], [`Env`] and
//! [`FileSettings`]. [`merge`] turns them into valid [`Settings`], or into an error with the source, the value and the
//! remedy. Nothing here reads the environment or a file: `main.rs` and the configuration loader do, so every combination
//! can be tested.

pub(crate) mod declared;
mod listen;
mod store_url;
#[cfg(test)]
mod tests;
mod values;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use crate::brute_force::SECRET_BYTES_MIN;
use crate::database::url::DatabaseUrl;
use crate::secret::Secret;
use declared::{ADMIN, ADMIN_TOKEN, API, CONFIG, DATABASE, GATEWAY, RESP, SETTINGS, STORE, Setting, SettingForm};
pub(crate) use listen::{Listen, ListenError};
use sluicegate::rules::file::Environment;
pub(crate) use store_url::StoreUrl;
pub(crate) use values::SettingValues;

/// Settings from the command line.
pub(crate) type Flags = SettingValues;

/// Settings from the environment. An empty variable counts as unset: compose files leave unset variables empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env {
    values: SettingValues,
    admin_token: Option<Secret>,
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
    pub(crate) values: SettingValues,
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    setting: &'static Setting,
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
        let Setting { name, variable, .. } = self.setting;
        match self.place {
            SettingSource::Flag => write!(f, "--{name}"),
            SettingSource::Variable => f.write_str(variable),
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
        let mut values = SettingValues::default();
        for setting in SETTINGS {
            let value = lookup(setting.variable).filter(|value| !value.is_empty());
            let is_text = value.as_ref().is_none_or(|value| value.to_str().is_some());
            if !is_text && setting.form != SettingForm::Path {
                return Err(SettingsError::NotText { name: setting.variable });
            }
            values = values.with(setting, value);
        }
        let admin_token = values.text(&ADMIN_TOKEN).map(str::to_owned);
        if admin_token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(SettingsError::AdminToken);
        }
        Ok(Self { values, admin_token: admin_token.map(Secret::new), variables: Variables::default() })
    }

    /// Adds all variables, which a configuration file can use as `${NAME}`.
    pub(crate) fn with_variables(self, variables: Environment) -> Self {
        Self { variables: Variables(variables), ..self }
    }

    /// The variables that a configuration file can use as `${NAME}`.
    pub(crate) fn variables(&self) -> &Environment {
        &self.variables.0
    }

    /// A setting from the environment, as text.
    pub(crate) fn text(&self, setting: &Setting) -> Option<&str> {
        self.values.text(setting)
    }

    /// A setting from the environment, as a path.
    pub(crate) fn path(&self, setting: &Setting) -> Option<&Path> {
        self.values.path(setting)
    }

    /// The token for the admin API.
    pub(crate) fn admin_token(&self) -> Option<&Secret> {
        self.admin_token.as_ref()
    }
}

/// The configuration file to read before settings can be merged.
pub(crate) fn config_path<'a>(flags: &'a Flags, env: &'a Env) -> Option<&'a Path> {
    flags.path(&CONFIG).or(env.path(&CONFIG))
}

/// The store, from the source with the highest precedence.
pub(crate) fn store(flags: &Flags, env: &Env, file: &FileSettings) -> Result<StoreUrl, SettingsError> {
    let chosen = ChosenSetting::first(&STORE, flags, env, file);
    let origin = chosen.origin;
    StoreUrl::parse(chosen.value).map_err(|problem| SettingsError::Store { origin, problem })
}

/// The database, from the source with the highest precedence.
fn database(flags: &Flags, env: &Env, file: &FileSettings) -> Result<Option<DatabaseUrl>, SettingsError> {
    let chosen = ChosenSetting::first(&DATABASE, flags, env, file);
    if chosen.origin.place == SettingSource::Default {
        return Ok(None);
    }
    let origin = chosen.origin;
    DatabaseUrl::parse(chosen.value).map(Some).map_err(|problem| SettingsError::Database { origin, problem })
}

/// Selects the value of every setting and validates it.
pub(crate) fn merge(flags: &Flags, env: &Env, file: &FileSettings) -> Result<Settings, SettingsError> {
    let listen = |setting| ChosenSetting::first(setting, flags, env, file).listen();
    let settings = Settings {
        store: store(flags, env, file)?,
        database: database(flags, env, file)?,
        gateway: listen(&GATEWAY)?,
        api: listen(&API)?,
        admin: listen(&ADMIN)?,
        resp: listen(&RESP)?,
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
}

impl<'a> ChosenSetting<'a> {
    /// The value of the first source that sets one, else the default.
    fn first(setting: &'static Setting, flags: &'a Flags, env: &'a Env, file: &'a FileSettings) -> Self {
        let sources = [
            (SettingSource::Flag, flags),
            (SettingSource::Variable, &env.values),
            (SettingSource::File, &file.values),
        ];
        let chosen = sources.into_iter().find_map(|(place, values)| Some((place, values.text(setting)?)));
        let default = || (SettingSource::Default, setting.default.unwrap_or_default());
        let (place, value) = chosen.unwrap_or_else(default);
        Self { origin: Origin { setting, place }, value }
    }

    fn listen(self) -> Result<Listen, SettingsError> {
        let origin = self.origin;
        let listen = Listen::parse(self.value, origin.setting.example);
        listen.map_err(|source| SettingsError::Listen { origin, source })
    }
}
