//! The error type of tasks: one sentence, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// The reason a task could not finish; printed once, by `main`.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

#[derive(Debug)]
enum Kind {
    /// The command line is invalid; nothing was run.
    Usage,
    /// A step failed.
    Step,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, message: message.into() }
    }

    pub(crate) fn step(message: impl Into<String>) -> Self {
        Self { kind: Kind::Step, message: message.into() }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Usage => ExitCode::from(2),
            Kind::Step => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}
