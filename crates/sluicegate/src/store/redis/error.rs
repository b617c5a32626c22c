//! What servers reply instead of an answer, and what it means: there is never just one "Redis error".

use super::super::{ErrorClass, StoreError};
use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

/// What went wrong with one attempt to deliver a call.
#[derive(Debug)]
pub(super) struct Trouble {
    /// The kind of trouble.
    pub(super) class: ErrorClass,
    /// What happened.
    pub(super) message: String,
    /// Whether the script may have run.
    pub(super) ran: Ran,
    /// Whether it tells anything about the server.
    pub(super) blame: Blame,
}

/// Whether a script may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It did not, and never will.
    No,
    /// Nobody knows.
    Unknown,
}

/// Whom trouble speaks against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The server: other calls to it are likely to fail as well.
    Server,
    /// This call, this key, or ourselves.
    Call,
    /// That the call has several keys: each alone has a server that answers.
    Company,
}

/// How a server turns a call away that could still be answered, here or elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It does not know the script.
    NoScript,
    /// Another server has this slot now.
    Moved(String),
    /// Another server has this key already, and this one still has the slot.
    Ask(String),
}

impl Trouble {
    /// Trouble that speaks against the server.
    pub(super) fn with_server(class: ErrorClass, ran: Ran, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), ran, blame: Blame::Server }
    }

    /// Trouble that speaks against nobody else.
    pub(super) fn with_call(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), ran: Ran::No, blame: Blame::Call }
    }

    /// Trouble as a server reports it.
    pub(super) fn reported(error: &ServerError) -> Self {
        let (class, blame) = class_of(code_of(error));
        // That one slot has no server says nothing about the slots that this server has.
        let blame = if error.details() == Some("Hash slot not served") { Blame::Call } else { blame };
        Self { class, message: text_of(error), ran: Ran::No, blame }
    }

    /// Trouble with a connection, or with what came through it.
    pub(super) fn broken(error: &RedisError) -> Self {
        let (class, blame) = match error.kind() {
            ErrorKind::AuthenticationFailed => (ErrorClass::Refused, Blame::Server),
            ErrorKind::Server(_) | ErrorKind::Extension => class_of(error.code().unwrap_or_default()),
            ErrorKind::Io if error.is_timeout() => (ErrorClass::Timeout, Blame::Server),
            ErrorKind::Io => (ErrorClass::Connection, Blame::Server),
            _ => (ErrorClass::Protocol, Blame::Server),
        };
        Self { class, message: error.to_string(), ran: Ran::Unknown, blame }
    }

    /// True if the call certainly did nothing, and would be answered if it had one key only.
    pub(super) fn is_of_company(&self) -> bool {
        self.blame == Blame::Company && self.ran == Ran::No
    }

    /// The same, as it happened on a server.
    pub(super) fn at(mut self, address: &impl std::fmt::Display) -> Self {
        self.message = format!("{address}: {}", self.message);
        self
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        Self::new(trouble.class, trouble.message)
    }
}

/// How a server turns a call away, if that is what the error says.
pub(super) fn turn_of(error: &ServerError) -> Option<Turn> {
    let elsewhere =
        || error.details().and_then(|detail| detail.split_ascii_whitespace().nth(1)).map(str::to_owned);
    match error.kind()? {
        ServerErrorKind::NoScript => Some(Turn::NoScript),
        ServerErrorKind::Moved => elsewhere().map(Turn::Moved),
        ServerErrorKind::Ask => elsewhere().map(Turn::Ask),
        _ => None,
    }
}

/// How servers since Redis 7 begin to say that a script does what its user has no right to; they have no code for it.
const NO_RIGHT_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// The code of an error. Before Redis 7 the code of a command that failed inside of a script stands in its text.
fn code_of(error: &ServerError) -> &str {
    if error.details().is_some_and(|detail| NO_RIGHT_IN_SCRIPT.iter().any(|start| detail.starts_with(start))) {
        return "NOPERM";
    }
    let inner = error.details().filter(|detail| detail.starts_with("Error running script"));
    match inner.and_then(|detail| detail.split_once(": -")) {
        Some((_, inner)) => inner.split(' ').next().unwrap_or_default(),
        None => error.code(),
    }
}

fn text_of(error: &ServerError) -> String {
    match error.details() {
        Some(detail) => format!("{} {detail}", error.code()),
        None => error.code().to_owned(),
    }
}

fn class_of(code: &str) -> (ErrorClass, Blame) {
    match code {
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF" => {
            (ErrorClass::Unusable, Blame::Server)
        }
        // Keys of a slot that moves are here and there, and whoever is new is nowhere yet.
        "TRYAGAIN" => (ErrorClass::Unusable, Blame::Company),
        "READONLY" => (ErrorClass::ReadOnly, Blame::Server),
        "BUSY" => (ErrorClass::Busy, Blame::Server),
        // The server is quick to say so, and whatever writes nothing is still answered.
        "OOM" => (ErrorClass::Full, Blame::Call),
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => (ErrorClass::Refused, Blame::Server),
        _ => (ErrorClass::Protocol, Blame::Call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn error(line: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_reply_has_its_class() {
        use ErrorClass::{Busy, Full, Protocol, ReadOnly, Refused, Unusable};
        let cases = [
            ("LOADING Redis is loading the dataset in memory", Unusable, Blame::Server),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Unusable,
                Blame::Server,
            ),
            ("CLUSTERDOWN The cluster is down", Unusable, Blame::Server),
            ("CLUSTERDOWN Hash slot not served", Unusable, Blame::Call),
            ("NOREPLICAS Not enough good replicas to write.", Unusable, Blame::Server),
            (
                "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist",
                Unusable,
                Blame::Server,
            ),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unusable, Blame::Company),
            ("READONLY You can't write against a read only replica.", ReadOnly, Blame::Server),
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", Busy, Blame::Server),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:1.",
                Full,
                Blame::Call,
            ),
            (
                "ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -OOM command not allowed",
                Full,
                Blame::Call,
            ),
            ("ERR Error running script (call to f_a): @user_script:1: attempt to index", Protocol, Blame::Call),
            ("NOAUTH Authentication required.", Refused, Blame::Server),
            ("WRONGPASS invalid username-password pair or user is disabled.", Refused, Blame::Server),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Refused, Blame::Server),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
                Refused,
                Blame::Server,
            ),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in the command",
                Refused,
                Blame::Server,
            ),
            (
                "ERR ACL failure in script: User ann has no permissions to run the 'set' command",
                Refused,
                Blame::Server,
            ),
            ("DENIED Redis is running in protected mode", Refused, Blame::Server),
            ("CROSSSLOT Keys in request don't hash to the same slot", Protocol, Blame::Call),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Protocol, Blame::Call),
            ("ERR unknown command 'EVALSHA'", Protocol, Blame::Call),
        ];
        for (line, class, blame) in cases {
            let trouble = Trouble::reported(&error(line));
            assert_eq!((trouble.class, trouble.blame, trouble.ran), (class, blame, Ran::No), "{line}");
            assert_eq!(trouble.message, line);
            assert_eq!(turn_of(&error(line)), None, "{line}");
        }
    }

    #[test]
    fn what_can_still_be_answered_is_no_trouble() {
        let turn = |line| turn_of(&error(line));
        assert_eq!(turn("NOSCRIPT No matching script. Please use EVAL."), Some(Turn::NoScript));
        assert_eq!(turn("MOVED 3999 127.0.0.1:6381"), Some(Turn::Moved("127.0.0.1:6381".to_owned())));
        assert_eq!(turn("ASK 3999 127.0.0.1:6381"), Some(Turn::Ask("127.0.0.1:6381".to_owned())));
        assert_eq!(turn("MOVED 3999"), None);
    }

    #[test]
    fn broken_connections_have_their_class() {
        let check = |kind: std::io::ErrorKind, class| {
            let trouble = Trouble::broken(&RedisError::from(std::io::Error::from(kind)));
            assert_eq!((trouble.class, trouble.ran), (class, Ran::Unknown), "{kind}");
        };
        check(std::io::ErrorKind::TimedOut, ErrorClass::Timeout);
        check(std::io::ErrorKind::UnexpectedEof, ErrorClass::Connection);
        check(std::io::ErrorKind::ConnectionRefused, ErrorClass::Connection);
        check(std::io::ErrorKind::ConnectionReset, ErrorClass::Connection);
        let nonsense = RedisError::from((ErrorKind::Parse, "nonsense"));
        assert_eq!(Trouble::broken(&nonsense).class, ErrorClass::Protocol);
        let refused = RedisError::from((ErrorKind::AuthenticationFailed, "refused"));
        assert_eq!(Trouble::broken(&refused).class, ErrorClass::Refused);
    }
}
