//! The unvalidated values of settings, one [`SettingValues`] per source: flags, environment, configuration file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use super::declared::Setting;

/// The values that one source sets, by the names of the settings.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SettingValues(BTreeMap<&'static str, OsString>);

impl SettingValues {
    /// Adds a value, if there is one.
    #[must_use]
    pub(crate) fn with(mut self, setting: &'static Setting, value: Option<impl Into<OsString>>) -> Self {
        if let Some(value) = value {
            self.0.insert(setting.name, value.into());
        }
        self
    }

    /// Sets a value that is not set yet.
    pub(crate) fn complete(&mut self, setting: &'static Setting, value: Option<&str>) {
        if let Some(value) = value {
            self.0.entry(setting.name).or_insert_with(|| value.into());
        }
    }

    /// The value as text. Every source has checked that it is UTF-8.
    pub(crate) fn text(&self, setting: &Setting) -> Option<&str> {
        self.0.get(setting.name)?.to_str()
    }

    /// The value as a path.
    pub(crate) fn path(&self, setting: &Setting) -> Option<&Path> {
        self.0.get(setting.name).map(OsStr::new).map(Path::new)
    }
}

/// Only the names: a value may be a secret, or a URL that contains one.
impl fmt::Debug for SettingValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
