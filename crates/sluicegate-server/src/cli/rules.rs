//! `sluicegate rules import`, `export` and `diff`: from a file to a database, and back.
//!
//! An import makes the database hold what the file says, in one step: entries that the file does not have are removed.
//! Of tenants, overrides and keys, a list that the file does not have at all is left as it is. Servers that use the
//! database see the change as any other.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::rules::file::tree::BYTES_MAX;

use super::Error;
use crate::config::load;
use crate::content::change::{Changed, Refusal};
use crate::content::{self, Content, Keys, Kind};
use crate::database::url::DatabaseUrl;
use crate::database::{Database, DatabaseError};
use crate::settings::Env;

/// Who made the change, in the audit.
const ACTOR: &str = "rules import";

#[derive(Debug, Subcommand)]
pub(super) enum RulesCommand {
    /// Make the database hold what the file says
    Import {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        at: At,
    },
    /// Print what the database holds, as a file
    Export {
        #[command(flatten)]
        at: At,
        /// Leave the API keys out: there may be more than a file can hold
        #[arg(long)]
        without_keys: bool,
    },
    /// Say what an import of the file would change: exit code 0 nothing, 1 something
    Diff {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Args)]
pub(super) struct At {
    /// sqlite://PATH or postgres://… [env: SLUICEGATE_DATABASE]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

/// Why there is nothing to do.
#[derive(Debug, thiserror::Error)]
enum RulesError {
    #[error("no database is named; give --database, or set SLUICEGATE_DATABASE")]
    NoDatabase,
    #[error("--database: {0}")]
    Url(String),
    #[error("{file}, together with what stays in the database, cannot be used:\n{refusal}")]
    Refused { file: String, refusal: Refusal },
    #[error(
        "the file would have {bytes} bytes, and one that can be read has at most {BYTES_MAX}; \
         leave the API keys out with --without-keys"
    )]
    TooLarge { bytes: usize },
}

/// Does what the command says.
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

impl At {
    async fn open(&self, env: &Env) -> Result<Database, Error> {
        let url = self.database.as_deref().or(env.database()).ok_or(RulesError::NoDatabase)?;
        let url = DatabaseUrl::parse(url).map_err(RulesError::Url)?;
        Ok(Database::open(&url).await?)
    }
}

async fn import(file: &Path, at: &At, env: &Env) -> Result<ExitCode, Error> {
    let wanted = load::config(file, env.variables())?.content;
    let database = at.open(env).await?;
    let changed = database.change(ACTOR, now(), |content| Ok(taken_over(content, &wanted))).await;
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

async fn diff(file: &Path, at: &At, env: &Env) -> Result<ExitCode, Error> {
    let wanted = load::config(file, env.variables())?.content;
    let mut content = at.open(env).await?.content().await?;
    let changed = taken_over(&mut content, &wanted);
    write!(std::io::stdout(), "{}", lines(&changed))?;
    Ok(if changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn taken_over(content: &mut Content, wanted: &Content) -> Vec<Changed> {
    content.take_over(wanted, |kind| match kind {
        Kind::Setting | Kind::Rule => true,
        Kind::Tenant | Kind::Override | Kind::Key => wanted.speaks_of(kind),
    })
}

/// One line for each entry that differs, and both bodies of one that is changed.
fn lines(changed: &[Changed]) -> String {
    let mut text = String::new();
    for each in changed {
        let sign = match each.action() {
            "create" => '+',
            "delete" => '-',
            _ => '~',
        };
        let name = content::shown(&each.name);
        // A text takes whatever is written to it.
        let _ = writeln!(text, "{sign} {} {name}", each.kind.word());
        if let (Some(before), Some(after)) = (&each.before, &each.after) {
            let _ = writeln!(text, "  - {before}\n  + {after}");
        }
    }
    text
}

/// In milliseconds since 1970.
fn now() -> i64 {
    i64::try_from(SystemClock::new().now().as_micros() / 1_000).unwrap_or(i64::MAX)
}
