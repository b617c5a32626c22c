//! `sluicegate rules import`, `export` and `diff`: transfer between a file and a database.
//!
//! An import replaces the contents of the database by those of the file in one transaction, and removes entries that the file
//! does not contain. If the file has no list of tenants, overrides or keys at all, that list stays unchanged in the database.
//! Servers with this database follow the change as any other.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::rules::file::tree::BYTES_MAX;

use super::Error;
use crate::config::load;
use crate::database::url::DatabaseUrl;
use crate::database::{Database, DatabaseError};
use crate::rule_documents::change::{AppliedChange, ChangeError};
use crate::rule_documents::{self, Keys, Kind, RuleDocuments};
use crate::rule_source::millis;
use crate::settings::Env;
use crate::settings::declared::DATABASE;

/// The actor of the change in the audit log.
const ACTOR: &str = "rules import";

#[derive(Debug, Subcommand)]
pub(super) enum RulesCommand {
    /// Replace the contents of the database by the file
    Import {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        at: DatabaseArgs,
    },
    /// Print the contents of the database as a file
    Export {
        #[command(flatten)]
        at: DatabaseArgs,
        /// Omit the API keys: there may be more than fit into a file
        #[arg(long)]
        without_keys: bool,
    },
    /// Show the changes that an import of the file would make: exit code 0 for none, 1 for some
    Diff {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        at: DatabaseArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    #[arg(long, value_name = "URL", help = format!("sqlite://PATH or postgres://… [env: {}]", DATABASE.variable))]
    database: Option<String>,
}

/// The reason why a command cannot run.
#[derive(Debug, thiserror::Error)]
enum RulesError {
    #[error("no database is named; give --database, or set SLUICEGATE_DATABASE")]
    NoDatabase,
    #[error("--database: {0}")]
    Url(String),
    #[error("{file} and the remaining contents of the database are invalid together:\n{refusal}")]
    Refused { file: String, refusal: ChangeError },
    #[error(
        "the file would have {bytes} bytes, and the limit is {BYTES_MAX}; \
         omit the API keys with --without-keys"
    )]
    TooLarge { bytes: usize },
}

/// Runs the command.
pub(super) fn run(command: &RulesCommand, env: &Env) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            RulesCommand::Import { file, at } => import(file, at, env).await,
            RulesCommand::Export { at, without_keys } => {
                let keys = if *without_keys { Keys::LeftOut } else { Keys::Included };
                export(&at.open(env).await?, keys).await
            }
            RulesCommand::Diff { file, at } => diff(file, at, env).await,
        }
    })
}

impl DatabaseArgs {
    async fn open(&self, env: &Env) -> Result<Database, Error> {
        let url = self.database.as_deref().or(env.text(&DATABASE)).ok_or(RulesError::NoDatabase)?;
        let url = DatabaseUrl::parse(url).map_err(RulesError::Url)?;
        Ok(Database::open(&url).await?)
    }
}

async fn import(file: &Path, at: &DatabaseArgs, env: &Env) -> Result<ExitCode, Error> {
    let wanted = load::config(file, env.variables())?.content;
    let database = at.open(env).await?;
    let changed =
        database.change(ACTOR, millis(SystemClock::new().now()), |content| Ok(merged(content, &wanted))).await;
    let committed = changed.map_err(|error| match error {
        DatabaseError::Refused(refusal) => Error::from(RulesError::Refused { file: load::shown(file), refusal }),
        error => error.into(),
    })?;
    let (changes, revision) = (committed.changed.len(), committed.content.revision);
    writeln!(std::io::stdout(), "{}: imported, {changes} changes, revision {revision}", load::shown(file))?;
    Ok(ExitCode::SUCCESS)
}

async fn export(database: &Database, keys: Keys) -> Result<ExitCode, Error> {
    let text = database.content().await?.file(keys);
    if text.len() > BYTES_MAX {
        return Err(RulesError::TooLarge { bytes: text.len() }.into());
    }
    write!(std::io::stdout(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

async fn diff(file: &Path, at: &DatabaseArgs, env: &Env) -> Result<ExitCode, Error> {
    let wanted = load::config(file, env.variables())?.content;
    let mut content = at.open(env).await?.content().await?;
    let changed = merged(&mut content, &wanted);
    write!(std::io::stdout(), "{}", lines(&changed))?;
    Ok(if changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn merged(content: &mut RuleDocuments, wanted: &RuleDocuments) -> Vec<AppliedChange> {
    content.take_over(wanted, |kind| match kind {
        Kind::Setting | Kind::Rule => true,
        Kind::Tenant | Kind::Override | Kind::Key => wanted.covers(kind),
    })
}

/// A line for each difference, and both versions of each changed entry.
fn lines(changed: &[AppliedChange]) -> String {
    let mut text = String::new();
    for each in changed {
        let sign = match each.action() {
            "create" => '+',
            "delete" => '-',
            _ => '~',
        };
        let name = rule_documents::shown(&each.name);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sign} {} {name}", each.kind.word());
        if let (Some(before), Some(after)) = (&each.before, &each.after) {
            let _ = writeln!(text, "  - {before}\n  + {after}");
        }
    }
    text
}
