//! Which request a command is about.

use clap::Args;

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
    #[arg(long, value_name = "N")]
    pub(super) cost: Option<u32>,
    /// The tier of the identity
    #[arg(long, value_name = "X")]
    pub(super) tier: Option<String>,
}
