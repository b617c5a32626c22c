//! The flags of settings, rendered from their [declarations](crate::settings::declared).

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::settings::declared::{ENVOY_RATELIMIT, ENVOY_XDS, SETTINGS, Setting, SettingForm};
use crate::settings::{Flags, SettingValues};

/// Selects the settings that are flags of a command.
pub(super) trait FlagSelection {
    /// Whether the command has a flag for this setting, if any command has.
    fn includes(setting: &'static Setting) -> bool;
}

/// All flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllFlags;

impl FlagSelection for AllFlags {
    fn includes(_: &'static Setting) -> bool {
        true
    }
}

/// The flags of a command, and their values.
#[derive(Clone, Debug)]
pub(super) struct SettingFlags<S> {
    values: SettingValues,
    selection: PhantomData<S>,
}

impl<S: FlagSelection> SettingFlags<S> {
    /// The given values.
    pub(super) fn values(&self) -> &Flags {
        &self.values
    }

    /// The settings with a flag, and the placeholders of their values.
    fn settings() -> impl Iterator<Item = (&'static Setting, &'static str)> {
        let included = SETTINGS.iter().copied().filter(|setting| S::includes(setting));
        included.filter_map(|setting| Some((setting, setting.flag?)))
    }
}

impl<S: FlagSelection> Args for SettingFlags<S> {
    fn augment_args(command: Command) -> Command {
        Self::settings().fold(command, |command, (setting, placeholder)| command.arg(flag(setting, placeholder)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: FlagSelection> FromArgMatches for SettingFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self { values: SettingValues::default(), selection: PhantomData };
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (setting, _) in Self::settings() {
            let values = std::mem::take(&mut self.values);
            self.values = match setting.form {
                SettingForm::Path => values.with(setting, matches.get_one::<PathBuf>(setting.name)),
                SettingForm::Text | SettingForm::Secret => {
                    values.with(setting, matches.get_one::<String>(setting.name))
                }
            };
        }
        Ok(())
    }
}

fn flag(setting: &'static Setting, placeholder: &'static str) -> Arg {
    let flag = Arg::new(setting.name).long(setting.name).value_name(placeholder).help(setting.help());
    let flag = match setting.form {
        SettingForm::Path => flag.value_parser(value_parser!(PathBuf)),
        SettingForm::Text | SettingForm::Secret => flag.value_parser(value_parser!(String)),
    };
    let flag = match setting.name == ENVOY_XDS.name {
        true => flag.conflicts_with(ENVOY_RATELIMIT.name),
        false => flag,
    };
    match setting.long_help() {
        Some(text) => flag.long_help(text),
        None => flag,
    }
}
