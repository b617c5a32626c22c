//! The arguments that select a request.

use clap::Args;
use sluicegate::rules::file::value::whole_number;

#[derive(Clone, Debug, Args)]
pub(super) struct Selectors {
    /// Resource
    #[arg(long, value_name = "R")]
    pub(super) resource: String,
    /// Client's identifier
    #[arg(long, value_name = "I")]
    pub(super) identifier: String,
    /// Tenant (default: default)
    #[arg(long, value_name = "T")]
    pub(super) tenant: Option<String>,
    /// Cost (default: the rule's own cost, usually 1)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cost)]
    pub(super) cost: Option<u32>,
    /// Tier of the identity
    #[arg(long, value_name = "X")]
    pub(super) tier: Option<String>,
}

/// Parses a cost, with the error texts of configuration files.
pub(super) fn cost(text: &str) -> Result<u32, String> {
    let units =
        whole_number(text, 0..=u32::MAX.into()).map_err(|error| format!("{}: {}", error.message, error.remedy))?;
    // The range ensures that it fits.
    Ok(u32::try_from(units).unwrap_or(u32::MAX))
}
