//! Suggestions for a person at a terminal, and as rules for a configuration file.

use std::fmt::Write as _;

use super::{Suggestion, Tried};
use crate::cli::simulate::words::percent;

/// Appends all suggestions.
pub(crate) fn append(text: &mut String, suggestions: &[Suggestion]) {
    for suggestion in suggestions {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "\nrule {}, limit {}: what each size would have denied",
            suggestion.rule,
            suggestion.limit + 1
        );
        table(text, suggestion);
        match &suggestion.yaml {
            Some(yaml) => {
                let _ = write!(text, "suggested:\nrules:\n{yaml}");
            }
            None => text.push_str("no size that was tried denies so little; raise the limit and try again\n"),
        }
    }
}

fn table(text: &mut String, suggestion: &Suggestion) {
    let names = suggestion.table.iter().map(|tried| tried.limit.len()).max().unwrap_or_default();
    for tried in &suggestion.table {
        let requests = percent(tried.denied, suggestion.requests);
        let identities = percent(tried.identities_denied, suggestion.identities);
        let _ = writeln!(
            text,
            "  {:names$}  {:>12} requests {requests:>8}  {:>10} identities {identities:>8}{}",
            tried.limit,
            tried.denied,
            tried.identities_denied,
            marks(tried)
        );
    }
}

fn marks(tried: &Tried) -> String {
    let marks = [(tried.is_current, "now"), (tried.is_knee, "knee"), (tried.is_suggested, "suggested")];
    let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
    if marks.is_empty() { String::new() } else { format!("  <- {}", marks.join(", ")) }
}
