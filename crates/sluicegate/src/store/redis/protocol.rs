//! The protocol between the store and its Lua scripts: key names, script arguments and replies.
//!
//! | module | content |
//! |---|---|
//! | [`key`] | the name of a subject's key |
//! | [`planned_charge`] | an owned copy of a charge, for calls that outlive their request |
//! | [`arguments`] | from charges to script arguments |
//! | [`scripts`] | the scripts themselves (`lua/`) |
//! | [`reply`], [`replay`] | from a reply to verdicts, computed by the core |
//! | [`calendar_window`] | the estimate of the server's time that calendar limits need |

pub(crate) mod arguments;
pub(crate) mod calendar_window;
pub mod key;
pub(crate) mod planned_charge;
pub(crate) mod replay;
pub(crate) mod reply;
pub(crate) mod scripts;
