//! The script, and how it is told the time in tests.

use super::call::Script;
use std::sync::LazyLock;

/// The script's text. Its files share their local names, so that nothing is global; `lua/charge.lua` says what it takes
/// and answers. What precedes it, if anything, is an argument.
macro_rules! text {
    ($($before:expr)?) => {
        concat!(
            $($before,)?
            include_str!("lua/charge.lua"),
            include_str!("lua/bucket.lua"),
            include_str!("lua/windows.lua"),
            include_str!("lua/log.lua"),
            include_str!("lua/keys.lua"),
            include_str!("lua/decide.lua"),
        )
    };
}

/// Decides by the server's clock.
pub(super) static CHARGE: LazyLock<Script> = LazyLock::new(|| Script::new(text!()));

/// Decides by a clock of the caller's: the same text, with something before it that answers when the server is asked
/// for the time, and takes the time from one argument more.
pub(super) static CHARGE_AT: LazyLock<Script> =
    LazyLock::new(|| Script::new(text!(include_str!("lua/callers_clock.lua"))));
