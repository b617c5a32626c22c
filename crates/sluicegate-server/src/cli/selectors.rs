//! Which request a command is about.

use clap::Args;
use sluicegate::rules::file::value::whole_number;

#[derive(Clone, Debug, Args)]
pub(super) struct Selectors {
    /// What is asked for
    #[arg(long, value_name = "R")]
    pub(super) resource: String,
    /// Who asks
    #[arg(long, value_name = "I")]
    pub(super) identifier: String,
    /// Whose customer it is (default: default)
    #[arg(long, value_name = "T")]
    pub(super) tenant: Option<String>,
    /// How much is asked for (default: the rule's own cost, usually 1)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cost)]
    pub(super) cost: Option<u32>,
    /// The tier of the identity
    #[arg(long, value_name = "X")]
    pub(super) tier: Option<String>,
}

/// Reads a cost, in the words that a file is answered in.
pub(super) fn cost(text: &str) -> Result<u32, String> {
    let units =
        whole_number(text, 0..=u32::MAX.into()).map_err(|wrong| format!("{}: {}", wrong.message, wrong.remedy))?;
    // Within that range it fits.
    Ok(u32::try_from(units).unwrap_or(u32::MAX))
}
