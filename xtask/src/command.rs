//! Child processes: shown before they run, timed, and named when they fail.
//!
//! Every command a task runs is printed as `$ command`, so that a step of a long log can be repeated by hand.

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::clock::timed;
use crate::failure::Failure;

/// A command to run: its `Display` form can be pasted into a shell.
#[derive(Debug)]
pub(crate) struct Invocation {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    directory: Option<PathBuf>,
}

impl Invocation {
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new(), directory: None }
    }

    pub(crate) fn cargo() -> Self {
        Self::new("cargo")
    }

    /// Adds the arguments of a fixed text, split at its spaces.
    pub(crate) fn arguments(mut self, text: &str) -> Self {
        self.arguments.extend(text.split_whitespace().map(str::to_owned));
        self
    }

    /// Adds one argument as it is.
    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    pub(crate) fn within(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Shows the command and runs it on the caller's terminal.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        println!("$ {self}");
        let (status, took) = timed(|| self.command().status());
        self.check_status(status, took)?;
        println!("  done in {took:.1?}");
        Ok(())
    }

    /// Shows the command, runs it on the caller's terminal and returns its exit code. Termination by a signal is a failure.
    pub(crate) fn exit_code(&self) -> Result<i32, Failure> {
        println!("$ {self}");
        let (status, took) = timed(|| self.command().status());
        match status.as_ref().ok().and_then(ExitStatus::code) {
            Some(code) => Ok(code),
            None => self.check_status(status, took).map(|()| 0),
        }
    }

    /// Shows and runs the command; prints its standard output line by line and returns it.
    pub(crate) fn run_and_keep(&self) -> Result<String, Failure> {
        self.run_and_keep_stream(|command| command.stdout(Stdio::piped()), |child| child.stdout.take())
    }

    /// The same for a command that reports on standard error.
    pub(crate) fn run_and_keep_errors(&self) -> Result<String, Failure> {
        self.run_and_keep_stream(|command| command.stderr(Stdio::piped()), |child| child.stderr.take())
    }

    fn run_and_keep_stream<S: io::Read>(
        &self,
        piped: impl Fn(&mut Command) -> &mut Command,
        stream: impl Fn(&mut Child) -> Option<S>,
    ) -> Result<String, Failure> {
        println!("$ {self}");
        let mut text = String::new();
        let (status, took) = timed(|| {
            let mut child = piped(&mut self.command()).spawn()?;
            pass_on(stream(&mut child), &mut text)?;
            child.wait()
        });
        self.check_status(status, took)?;
        println!("  done in {took:.1?}");
        Ok(text)
    }

    /// Runs the command without showing it and returns its standard output.
    pub(crate) fn output(&self) -> Result<String, Failure> {
        let (output, took) = timed(|| self.command().stderr(Stdio::inherit()).output());
        let output = output.map_err(|error| self.not_started(&error))?;
        self.check_status(Ok(output.status), took)?;
        String::from_utf8(output.stdout)
            .map_err(|_| Failure::step(format!("`{self}` printed something that is not UTF-8")))
    }

    /// Runs the command without showing it, and returns whether it succeeded. As soon as a line of its standard output
    /// indicates a failure, the command is terminated.
    pub(crate) fn succeeds_without(&self, is_failure: impl Fn(&str) -> bool) -> Result<bool, Failure> {
        let failed = |error: &io::Error| self.not_started(error);
        let mut child =
            self.command().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|e| failed(&e))?;
        let lines = child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
        let has_failed = lines.map_while(Result::ok).any(|line| is_failure(&line));
        if has_failed {
            Self::new("kill").argument(child.id().to_string()).run_silently()?;
        }
        let status = child.wait().map_err(|error| failed(&error))?;
        Ok(status.success() && !has_failed)
    }

    fn run_silently(&self) -> Result<(), Failure> {
        let (status, took) = timed(|| self.command().stdout(Stdio::null()).stderr(Stdio::null()).status());
        self.check_status(status, took)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    fn check_status(&self, status: io::Result<ExitStatus>, took: Duration) -> Result<(), Failure> {
        let status = status.map_err(|error| self.not_started(&error))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::step(format!("`{self}` failed after {took:.1?} with {status}")))
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        Failure::step(format!("`{self}` could not be run: {error}; is `{}` installed?", self.program))
    }
}

fn pass_on(stream: Option<impl io::Read>, text: &mut String) -> io::Result<()> {
    let Some(stream) = stream else {
        return Ok(());
    };
    for line in BufReader::new(stream).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    Ok(())
}

impl fmt::Display for Invocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(formatter, "{name}={} ", quoted(value))?;
        }
        formatter.write_str(&quoted(&self.program))?;
        self.arguments.iter().try_for_each(|word| write!(formatter, " {}", quoted(word)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,@+%".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_would_read_it() {
        let invocation = Invocation::cargo()
            .arguments("test -p sluicegate")
            .argument("it's here")
            .argument("")
            .variable("RUSTFLAGS", "--cfg loom");
        assert_eq!(invocation.to_string(), r"RUSTFLAGS='--cfg loom' cargo test -p sluicegate 'it'\''s here' ''");
    }

    #[test]
    fn a_failing_command_is_named_with_its_status() {
        let failure = Invocation::new("sh").argument("-c").argument("exit 3").run().unwrap_err().to_string();
        assert!(failure.starts_with("`sh -c 'exit 3'` failed after "), "{failure}");
        assert!(failure.ends_with("exit status: 3"), "{failure}");
    }

    #[test]
    fn an_exit_code_is_returned_and_a_signal_is_a_failure() {
        let sh = |script: &str| Invocation::new("sh").argument("-c").argument(script).exit_code();
        assert_eq!((sh("exit 0").unwrap(), sh("exit 4").unwrap()), (0, 4));
        assert!(sh("kill -9 $$").unwrap_err().to_string().contains("signal: 9"));
    }

    #[test]
    fn a_command_ends_with_the_first_line_that_means_failure() {
        let sh = |script: &str| Invocation::new("sh").argument("-c").argument(script);
        let is_failure = |line: &str| line.ends_with("FAILED");
        assert!(sh("echo one; echo two").succeeds_without(is_failure).unwrap());
        assert!(!sh("echo one FAILED; exec sleep 600").succeeds_without(is_failure).unwrap());
        assert!(!sh("exit 1").succeeds_without(is_failure).unwrap());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = Invocation::new("no-such-program").run().unwrap_err().to_string();
        assert!(failure.contains("`no-such-program` installed?"), "{failure}");
    }

    #[test]
    fn forwarded_output_is_also_returned() {
        let printed = Invocation::new("sh").argument("-c").argument("echo one; echo two").run_and_keep().unwrap();
        assert_eq!(printed, "one\ntwo\n");
        let printed =
            Invocation::new("sh").argument("-c").argument("echo one >&2; echo two").run_and_keep_errors().unwrap();
        assert_eq!(printed, "one\n");
    }

    #[test]
    fn a_failure_is_seen_although_the_output_is_kept() {
        assert!(Invocation::new("sh").argument("-c").argument("echo one; exit 1").run_and_keep().is_err());
        assert!(Invocation::new("sh").argument("-c").argument("echo one; exit 1").output().is_err());
    }
}
