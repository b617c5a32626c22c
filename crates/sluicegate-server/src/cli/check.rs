//! `sluicegate check`: requests a decision from a running server.
//!
//! The exit code is 0 for allowed, 1 for denied, and 2 if there is no decision: no server, a timeout, or an invalid response. A
//! script must choose explicitly to treat "could not decide" as one of the others.

mod report;

use std::io::Write as _;
use std::process::ExitCode;

use axum::http::StatusCode;
use clap::Args;
use serde::Serialize;
use sluicegate::clock::{Clock as _, SystemClock};

use super::client::{API, ClientError, Endpoint};
use super::selectors::Selectors;
use report::CheckResponse;

/// The exit code of a denial.
const DENIED: u8 = 1;
/// The exit code if there is no decision.
const UNDECIDED: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    selectors: Selectors,
    /// Do not charge the request
    #[arg(long)]
    peek: bool,
    /// The server's api listener
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    api: String,
    /// Print the server's response as received
    #[arg(long)]
    json: bool,
}

/// The reason why there is no decision.
#[derive(Debug, thiserror::Error)]
enum Undecided {
    /// The asynchronous runtime cannot start.
    #[error("cannot start the client: {0}")]
    NoRuntime(#[from] std::io::Error),
    /// There is no response.
    #[error(transparent)]
    NoResponse(#[from] ClientError),
    /// A response with an error status.
    #[error("the server answered {status}: {detail}")]
    Status {
        /// The status.
        status: StatusCode,
        /// The detail, escaped.
        detail: String,
    },
    /// A response that is not a decision.
    #[error(
        "the response of {api} (status {status}) is not a decision: {reason}; is that a Sluicegate api listener?"
    )]
    InvalidResponse {
        /// The URL.
        api: String,
        /// The status.
        status: StatusCode,
        /// The problem with the response.
        reason: String,
    },
}

/// The body of a request to `/v1/check`.
#[derive(Serialize)]
struct CheckBody<'a> {
    resource: &'a str,
    identifier: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
}

/// Runs the command and returns its exit code.
pub(super) fn run(args: &CheckArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Undecided::from).and_then(|runtime| runtime.block_on(request(args))) {
        Ok((decision, text)) => {
            let mut output = std::io::stdout().lock();
            // A closed pipe does not change the decision.
            let _ = if args.json {
                writeln!(output, "{}", text.trim_end())
            } else {
                write!(output, "{}", decision.describe(args.selectors.cost, SystemClock::new().now()))
            };
            if decision.allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) }
        }
        Err(undecided) => {
            let _ = writeln!(std::io::stderr(), "error: {undecided}");
            ExitCode::from(UNDECIDED)
        }
    }
}

async fn request(args: &CheckArgs) -> Result<(CheckResponse, String), Undecided> {
    let endpoint = Endpoint::parse(API, &args.api)?;
    let Selectors { resource, identifier, tenant, cost, tier } = &args.selectors;
    let body = CheckBody { resource, identifier, tenant: tenant.as_deref(), cost: *cost, tier: tier.as_deref() };
    // Serialising strings and numbers cannot fail.
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let path = if args.peek { "/v1/peek" } else { "/v1/check" };
    let (status, text) = endpoint.post(path, body).await?;
    let decision = CheckResponse::parse(status, &text, &args.api)?;
    Ok((decision, text))
}
