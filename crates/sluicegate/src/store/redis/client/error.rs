//! Errors of script calls: their class, whether the script may have run, and whether the server is at fault.

use crate::store::{ErrorClass, StoreError};
use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

/// The error of one attempt to deliver a call.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    /// Whether the script may have run.
    pub(crate) executed: Executed,
    /// The cause, for the circuit breaker.
    pub(crate) fault: Fault,
}

/// Whether the script may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    /// The script did not run and never will.
    No,
    /// The script may have run.
    Unknown,
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server: other calls to it are likely to fail as well.
    Server,
    /// This call, its keys, or this client.
    Call,
    /// The combination of keys: the server would accept each key alone.
    MultiKey,
}

/// A reply that redirects a call: it can still succeed, here or on another server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The server does not know the script.
    NoScript,
    /// Another server owns the slot now.
    Moved(String),
    /// Another server has the key already, while this one still owns the slot.
    Ask(String),
}

impl CallError {
    /// An error by a fault of the server.
    pub(crate) fn of_server(class: ErrorClass, executed: Executed, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), executed, fault: Fault::Server }
    }

    /// An error of this call only. The script did not run.
    pub(crate) fn of_call(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), executed: Executed::No, fault: Fault::Call }
    }

    /// The server is responsive, but did not execute this call in time.
    pub(crate) fn overloaded(executed: Executed) -> Self {
        let message = "the store answers, but not within the deadline".to_owned();
        Self { class: ErrorClass::Overloaded, message, executed, fault: Fault::Call }
    }

    /// An error reply of the server.
    pub(crate) fn from_reply(error: &ServerError) -> Self {
        let (class, fault) = class_of(code_of(error));
        // A slot without an owner is no fault of this server, which owns other slots.
        let fault = if error.details() == Some("Hash slot not served") { Fault::Call } else { fault };
        Self { class, message: text_of(error), executed: Executed::No, fault }
    }

    /// An error of the connection or of its authentication.
    pub(crate) fn from_connection(error: &RedisError) -> Self {
        let (class, fault) = match error.kind() {
            ErrorKind::AuthenticationFailed => (ErrorClass::Refused, Fault::Server),
            ErrorKind::Server(_) | ErrorKind::Extension => class_of(error.code().unwrap_or_default()),
            ErrorKind::Io if error.is_timeout() => (ErrorClass::Timeout, Fault::Server),
            ErrorKind::Io => (ErrorClass::Connection, Fault::Server),
            _ => (ErrorClass::Protocol, Fault::Server),
        };
        Self { class, message: error.to_string(), executed: Executed::Unknown, fault }
    }

    /// Whether the call certainly did nothing and would succeed with one key only.
    pub(crate) fn is_multi_key(&self) -> bool {
        self.fault == Fault::MultiKey && self.executed == Executed::No
    }

    /// The same error, prefixed with the server's address.
    pub(crate) fn at(mut self, address: &impl std::fmt::Display) -> Self {
        self.message = format!("{address}: {}", self.message);
        self
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        let may_have_charged = error.executed == Executed::Unknown;
        Self { may_have_charged, ..Self::new(error.class, error.message) }
    }
}

/// The redirection in an error reply, if it is one.
pub(crate) fn redirect_of(error: &ServerError) -> Option<Redirect> {
    let elsewhere =
        || error.details().and_then(|detail| detail.split_ascii_whitespace().nth(1)).map(str::to_owned);
    match error.kind()? {
        ServerErrorKind::NoScript => Some(Redirect::NoScript),
        ServerErrorKind::Moved => elsewhere().map(Redirect::Moved),
        ServerErrorKind::Ask => elsewhere().map(Redirect::Ask),
        _ => None,
    }
}

/// How permission errors inside a script begin since Redis 7. They have no error code of their own.
const NO_RIGHT_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// The error code. Before Redis 7, the code of a command that failed inside a script is part of the text.
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

fn class_of(code: &str) -> (ErrorClass, Fault) {
    match code {
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "MISCONF" => {
            (ErrorClass::Unusable, Fault::Server)
        }
        // While a slot migrates, its keys are spread over two servers, and new keys exist on neither.
        "TRYAGAIN" => (ErrorClass::Unusable, Fault::MultiKey),
        "READONLY" => (ErrorClass::ReadOnly, Fault::Server),
        "BUSY" => (ErrorClass::Busy, Fault::Server),
        // The server rejects writes quickly and still executes calls that write nothing.
        "OOM" => (ErrorClass::Full, Fault::Call),
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => (ErrorClass::Refused, Fault::Server),
        _ => (ErrorClass::Protocol, Fault::Call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Value;

    fn server_error(line: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_error_reply_has_its_class() {
        use ErrorClass::{Busy, Full, Protocol, ReadOnly, Refused, Unusable};
        let cases = [
            ("LOADING Redis is loading the dataset in memory", Unusable, Fault::Server),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Unusable,
                Fault::Server,
            ),
            ("CLUSTERDOWN The cluster is down", Unusable, Fault::Server),
            ("CLUSTERDOWN Hash slot not served", Unusable, Fault::Call),
            ("NOREPLICAS Not enough good replicas to write.", Unusable, Fault::Server),
            (
                "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist",
                Unusable,
                Fault::Server,
            ),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unusable, Fault::MultiKey),
            ("READONLY You can't write against a read only replica.", ReadOnly, Fault::Server),
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", Busy, Fault::Server),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:1.",
                Full,
                Fault::Call,
            ),
            (
                "ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -OOM command not allowed",
                Full,
                Fault::Call,
            ),
            ("ERR Error running script (call to f_a): @user_script:1: attempt to index", Protocol, Fault::Call),
            ("NOAUTH Authentication required.", Refused, Fault::Server),
            ("WRONGPASS invalid username-password pair or user is disabled.", Refused, Fault::Server),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Refused, Fault::Server),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
                Refused,
                Fault::Server,
            ),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in the command",
                Refused,
                Fault::Server,
            ),
            (
                "ERR ACL failure in script: User ann has no permissions to run the 'set' command",
                Refused,
                Fault::Server,
            ),
            ("DENIED Redis is running in protected mode", Refused, Fault::Server),
            ("CROSSSLOT Keys in request don't hash to the same slot", Protocol, Fault::Call),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Protocol, Fault::Call),
            ("ERR unknown command 'EVALSHA'", Protocol, Fault::Call),
        ];
        for (line, class, fault) in cases {
            let error = CallError::from_reply(&server_error(line));
            assert_eq!((error.class, error.fault, error.executed), (class, fault, Executed::No), "{line}");
            assert_eq!(error.message, line);
            assert_eq!(redirect_of(&server_error(line)), None, "{line}");
        }
    }

    #[test]
    fn redirections_are_recognized() {
        let redirect = |line| redirect_of(&server_error(line));
        assert_eq!(redirect("NOSCRIPT No matching script. Please use EVAL."), Some(Redirect::NoScript));
        assert_eq!(redirect("MOVED 3999 127.0.0.1:6381"), Some(Redirect::Moved("127.0.0.1:6381".to_owned())));
        assert_eq!(redirect("ASK 3999 127.0.0.1:6381"), Some(Redirect::Ask("127.0.0.1:6381".to_owned())));
        assert_eq!(redirect("MOVED 3999"), None);
    }

    #[test]
    fn connection_errors_have_their_class() {
        let check = |kind: std::io::ErrorKind, class| {
            let error = CallError::from_connection(&RedisError::from(std::io::Error::from(kind)));
            assert_eq!((error.class, error.executed), (class, Executed::Unknown), "{kind}");
        };
        check(std::io::ErrorKind::TimedOut, ErrorClass::Timeout);
        check(std::io::ErrorKind::UnexpectedEof, ErrorClass::Connection);
        check(std::io::ErrorKind::ConnectionRefused, ErrorClass::Connection);
        check(std::io::ErrorKind::ConnectionReset, ErrorClass::Connection);
        let nonsense = RedisError::from((ErrorKind::Parse, "nonsense"));
        assert_eq!(CallError::from_connection(&nonsense).class, ErrorClass::Protocol);
        let refused = RedisError::from((ErrorKind::AuthenticationFailed, "refused"));
        assert_eq!(CallError::from_connection(&refused).class, ErrorClass::Refused);
    }
}
