//! `sluicegate check`: asks a running server, and says by its exit code what it decided.
//!
//! 0 is allowed, 1 is denied, 2 is everything else: no server, no answer in time, an answer that is no
//! decision. A script that takes "could not decide" for "denied" or for "allowed" does so knowingly.

mod report;

use std::io::Write as _;
use std::process::ExitCode;

use axum::http::StatusCode;
use clap::Args;
use serde::Serialize;
use sluicegate::clock::{Clock as _, SystemClock};

use super::client::{API, Endpoint, Unanswered};
use super::selectors::Selectors;
use report::Answer;

/// The exit code of a denial.
const DENIED: u8 = 1;
/// The exit code when there is no decision.
const UNDECIDED: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    selectors: Selectors,
    /// Only look, charge nothing
    #[arg(long)]
    peek: bool,
    /// The server's api listener
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    api: String,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
enum Undecided {
    /// This machine has no means to ask.
    #[error("cannot ask at all: {0}")]
    NoRuntime(#[from] std::io::Error),
    /// Nobody answered.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// An answer that says why there is no decision.
    #[error("the server answered {status}: {detail}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// What it says, escaped.
        detail: String,
    },
    /// An answer that makes no sense.
    #[error("the answer of {api} (status {status}) is no decision: {reason}; is that a Sluicegate api listener?")]
    Unintelligible {
        /// Where.
        api: String,
        /// Its status.
        status: StatusCode,
        /// What is wrong with it.
        reason: String,
    },
}

/// The body of the question, as `/v1/check` takes it.
#[derive(Serialize)]
struct Question<'a> {
    resource: &'a str,
    identifier: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
}

/// Asks, prints and turns the decision into the exit code.
pub(super) fn run(args: &CheckArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Undecided::from).and_then(|runtime| runtime.block_on(ask(args))) {
        Ok((answer, text)) => {
            let mut output = std::io::stdout().lock();
            // A reader that has gone away changes nothing about the decision.
            let _ = if args.json {
                writeln!(output, "{}", text.trim_end())
            } else {
                write!(output, "{}", answer.describe(args.selectors.cost, SystemClock::new().now()))
            };
            if answer.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) }
        }
        Err(undecided) => {
            let _ = writeln!(std::io::stderr(), "error: {undecided}");
            ExitCode::from(UNDECIDED)
        }
    }
}

async fn ask(args: &CheckArgs) -> Result<(Answer, String), Undecided> {
    let endpoint = Endpoint::parse(API, &args.api)?;
    let Selectors { resource, identifier, tenant, cost, tier } = &args.selectors;
    let question =
        Question { resource, identifier, tenant: tenant.as_deref(), cost: *cost, tier: tier.as_deref() };
    // Strings and numbers always serialise; the default only keeps this total.
    let body = serde_json::to_vec(&question).unwrap_or_default();
    let path = if args.peek { "/v1/peek" } else { "/v1/check" };
    let (status, text) = endpoint.post(path, body).await?;
    let answer = Answer::read(status, &text, &args.api)?;
    Ok((answer, text))
}
