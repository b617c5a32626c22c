//! The supported commands: names, arity, and their description for clients.

use super::reply::Replies;

/// The commands of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Auth,
    Client,
    Command,
    Delete,
    Echo,
    Hello,
    Info,
    Ping,
    Quit,
    Reset,
    Select,
    Check,
    Report,
    Throttle,
}

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) verb: Verb,
    /// In lower case.
    pub(super) name: &'static str,
    /// The number of words, the name included; negative for a minimum.
    arity: i64,
    flags: &'static [&'static str],
    /// The first key, the last key, and the step; the last may count from the end.
    keys: [i64; 3],
    group: &'static str,
    summary: &'static str,
}

const NO_KEYS: [i64; 3] = [0, 0, 0];
const HANDSHAKE: &[&str] = &["loading", "stale", "fast", "no_auth"];
const PLAIN: &[&str] = &["loading", "stale"];
const WRITE: &[&str] = &["write", "fast"];

/// All commands, sorted by name.
pub(super) const COMMANDS: &[Command] = &[
    command(Verb::Auth, "auth", -2, HANDSHAKE, NO_KEYS, "connection", "Authenticates the connection."),
    command(
        Verb::Throttle,
        "cl.throttle",
        -5,
        WRITE,
        [1, 1, 1],
        "sluicegate",
        "Takes a quantity from the token bucket of a key: key max_burst count period [quantity].",
    ),
    command(Verb::Client, "client", -2, PLAIN, NO_KEYS, "connection", "Names and describes the connection."),
    command(Verb::Command, "command", -1, PLAIN, NO_KEYS, "server", "Describes the commands."),
    command(Verb::Delete, "del", -2, WRITE, [1, -1, 1], "generic", "Forgets the buckets of CL.THROTTLE keys."),
    command(Verb::Echo, "echo", 2, PLAIN, NO_KEYS, "connection", "Returns the given string."),
    command(Verb::Hello, "hello", -1, HANDSHAKE, NO_KEYS, "connection", "Chooses the protocol version."),
    command(Verb::Info, "info", -1, PLAIN, NO_KEYS, "server", "Describes the server."),
    command(Verb::Ping, "ping", -1, PLAIN, NO_KEYS, "connection", "Answers, so that one sees that it does."),
    command(Verb::Quit, "quit", -1, HANDSHAKE, NO_KEYS, "connection", "Closes the connection."),
    command(Verb::Reset, "reset", 1, HANDSHAKE, NO_KEYS, "connection", "Makes the connection as good as new."),
    command(Verb::Select, "select", 2, PLAIN, NO_KEYS, "connection", "Takes 0, the only database."),
    command(
        Verb::Check,
        "sg.check",
        -3,
        WRITE,
        NO_KEYS,
        "sluicegate",
        "Asks the configured rules: resource identifier [COST n] [TENANT t] [TIER x] [PEEK].",
    ),
    command(
        Verb::Report,
        "sg.report",
        -3,
        WRITE,
        NO_KEYS,
        "sluicegate",
        "Charges usage in full under the configured rules: resource identifier [COST n] [TENANT t] [TIER x].",
    ),
];

const fn command(
    verb: Verb,
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: [i64; 3],
    group: &'static str,
    summary: &'static str,
) -> Command {
    Command { verb, name, arity, flags, keys, group, summary }
}

/// The command of that name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Command {
    /// Whether a command may have this many words, its name included.
    pub(super) fn takes(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// Whether it is allowed before authentication.
    pub(super) fn needs_no_password(&self) -> bool {
        matches!(self.verb, Verb::Auth | Verb::Hello | Verb::Quit | Verb::Reset)
    }

    /// Writes its entry of `COMMAND`: ten fields, of which the last four stay empty.
    pub(super) fn write_info(&self, replies: &mut Replies) {
        replies.array(10);
        replies.bulk(self.name);
        replies.integer(self.arity);
        replies.array(self.flags.len());
        self.flags.iter().for_each(|flag| replies.simple(flag));
        self.keys.iter().for_each(|&place| replies.integer(place));
        for _ in 0..4 {
            replies.array(0);
        }
    }

    /// Writes its entry of `COMMAND DOCS`: the name and a summary.
    pub(super) fn write_docs(&self, replies: &mut Replies) {
        replies.bulk(self.name);
        replies.map(3);
        for (field, value) in [("summary", self.summary), ("since", "0.1.0"), ("group", self.group)] {
            replies.bulk(field);
            replies.bulk(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case_and_listed_in_order() {
        assert_eq!(find(b"Cl.ThRoTtLe").map(|command| command.verb), Some(Verb::Throttle));
        assert!(find(b"get").is_none() && find(b"").is_none() && find(b"ping\0").is_none());
        assert!(COMMANDS.is_sorted_by(|left, right| left.name < right.name));
    }

    #[test]
    fn the_number_of_words_is_exact_or_at_least() {
        let takes = |name: &str, words| find(name.as_bytes()).expect("a command").takes(words);
        assert!(takes("echo", 2) && !takes("echo", 1) && !takes("echo", 3));
        assert!(takes("del", 2) && takes("del", 1_024) && !takes("del", 1));
        assert!(takes("ping", 1));
    }
}
