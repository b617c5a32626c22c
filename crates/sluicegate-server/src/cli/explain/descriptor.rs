//! `explain` for a descriptor of Envoy: its path through the files of `envoyproxy/ratelimit`, and the limit at the end, or the
//! reason why none applies.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use clap::Args;
use serde::Serialize;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::identity::{Entry, Identity, resource_of};
use sluicegate::rules::envoy::explain::End;
use sluicegate::rules::envoy::{Explanation, Found, How, Step};
use sluicegate::{CheckError, Request};

use super::text;
use crate::config::Config;
use crate::explain::ExplainReport;
use crate::settings::StoreUrl;

#[derive(Clone, Debug, Args)]
pub(super) struct DescriptorArgs {
    /// The entries of a descriptor in their order; with --envoy-ratelimit
    #[arg(long, value_name = "KEY=VALUE,…", requires = "domain", conflicts_with_all = ["resource", "identifier", "path"])]
    pub(super) descriptor: Option<String>,
    /// The domain of a descriptor
    #[arg(long, value_name = "D", requires = "descriptor")]
    domain: Option<String>,
}

/// The reason why a descriptor cannot be explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum DescriptorError {
    #[error(
        "--descriptor: `{0}` is not KEY=VALUE; separate entries with commas, for example path=/login,user=ann"
    )]
    Entry(String),
    #[error("--descriptor needs the files with its limits; give --envoy-ratelimit DIR")]
    NoDirectory,
    #[error(transparent)]
    Wrong(#[from] CheckError),
}

/// The explanation, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DescriptorReport<'a> {
    domain: &'a str,
    entries: Vec<EntryReport<'a>>,
    is_limited: bool,
    /// The outcome as text.
    reason: String,
    /// The limit, if there is one.
    explained: Option<ExplainReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryReport<'a> {
    key: &'a str,
    value: &'a str,
    /// `value`, `pattern` or `key`; `None` if the path ended before this entry.
    matched_by: Option<&'static str>,
    place: Option<String>,
    shared_by: Option<String>,
}

impl DescriptorArgs {
    /// The output, if the arguments contain a descriptor.
    pub(super) fn explain(
        &self,
        config: &Config,
        store: &StoreUrl,
        instances: NonZeroU32,
        is_json: bool,
    ) -> Result<Option<String>, super::Error> {
        let (Some(descriptor), Some(domain)) = (&self.descriptor, &self.domain) else { return Ok(None) };
        let entries = entries(descriptor)?;
        let envoy = config.rules.envoy().ok_or(DescriptorError::NoDirectory)?;
        let Explanation { steps, end } = envoy.explain(domain, &entries);
        let explained = match &end {
            End::Limit(found) => Some(explained(config, store, instances, domain, &entries, found)?),
            _ => None,
        };
        let report = DescriptorReport {
            domain,
            entries: entry_reports(&entries, steps),
            is_limited: explained.is_some(),
            reason: end.to_string(),
            explained,
        };
        Ok(Some(if is_json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { text(&report) }))
    }
}

fn entries(descriptor: &str) -> Result<Vec<Entry<'_>>, DescriptorError> {
    let is_entry = |pair: &'_ str| pair.split_once('=').is_some_and(|(key, _)| !key.is_empty());
    if let Some(invalid) = descriptor.split(',').find(|pair| !is_entry(pair)) {
        return Err(DescriptorError::Entry(invalid.escape_debug().to_string()));
    }
    let pairs = descriptor.split(',').filter_map(|pair| pair.split_once('='));
    Ok(pairs.map(|(key, value)| Entry::new(key, value)).collect())
}

/// The explanation of the limit's rule.
fn explained(
    config: &Config,
    store: &StoreUrl,
    instances: NonZeroU32,
    domain: &str,
    entries: &[Entry<'_>],
    found: &Found<'_>,
) -> Result<ExplainReport, super::Error> {
    let resource = resource_of(entries);
    let request = Request {
        identity: Identity::Named(&found.identifier),
        descriptor: Some(entries),
        rule: Some(found.rule),
        ..Request::new(&resource, "").tenant(domain)
    };
    request.validate().map_err(CheckError::from)?;
    let context = super::context(config, store, instances);
    let mut report = ExplainReport::new(context, &request, SystemClock::new().now())?;
    // The mismatches of all other rules are of no interest here, and there can be thousands.
    report.rules.retain(|rule| rule.matches);
    Ok(report)
}

fn entry_reports<'a>(entries: &[Entry<'a>], steps: Vec<Step>) -> Vec<EntryReport<'a>> {
    let mut steps = steps.into_iter();
    let report = |entry: &Entry<'a>| {
        let step = steps.next();
        EntryReport {
            key: entry.key,
            value: entry.value,
            matched_by: step.as_ref().map(|step| match_name(step.how)),
            shared_by: step.as_ref().and_then(|step| step.shared_by.clone()),
            place: step.map(|step| step.place),
        }
    };
    entries.iter().map(report).collect()
}

const fn match_name(how: How) -> &'static str {
    match how {
        How::Value => "value",
        How::Pattern => "pattern",
        How::Key => "key",
    }
}

fn text(report: &DescriptorReport<'_>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "domain {}", report.domain);
    for EntryReport { key, value, matched_by, place, shared_by } in &report.entries {
        let _ = match (matched_by, place) {
            (Some(matched_by), Some(place)) => {
                let shared = shared_by.as_ref().map_or("", |_| ", one counter for all matching values");
                writeln!(text, "  {key}={value}  matched by {matched_by} at {place}{shared}")
            }
            _ => writeln!(text, "  {key}={value}  not matched"),
        };
    }
    match &report.explained {
        Some(explained) => text + "\n" + &text::text(explained),
        None => text + "\nnot limited: " + &report.reason + "\n",
    }
}
