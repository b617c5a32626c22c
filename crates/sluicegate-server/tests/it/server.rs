//! A server process that a test owns.
//!
//! It runs the binary under test on ports of its own, waits for `ready`, and keeps every line of stderr. At the end of
//! the test, even after a panic, it ends the process by its own id.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The longest wait before a test fails. No passing test comes near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Every listener on a port that the kernel assigns.
const FREE_PORTS: [&str; 6] = ["--gateway", "127.0.0.1:0", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// The beginnings of the variables that the server reads. A server of a test sees only those that the test sets.
const VARIABLES: [&str; 4] = ["SLUICEGATE_", "OTEL_", "RUNTIME_ROOT", "CONFIG_TYPE"];

/// A command for the binary under test, in a clean environment.
pub(crate) fn sluicegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    remove_variables(&mut command);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Hides the variables of this process that the server would read.
fn remove_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if VARIABLES.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes())) {
            command.env_remove(name);
        }
    }
}

/// A file for one test, removed at the end.
pub(crate) struct ConfigFile(PathBuf);

impl ConfigFile {
    pub(crate) fn new(test: &str, text: impl AsRef<[u8]>) -> Self {
        let name = format!("sluicegate-{test}-{}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("a temporary file");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        // A failure leaves the file behind, and no other test reads it.
        let _ = fs::remove_file(&self.0);
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    addresses: HashMap<String, SocketAddr>,
}

/// How a server ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// All of stderr, line by line.
    pub(crate) lines: Vec<String>,
}

impl Server {
    /// Starts a server on free ports and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_command(sluicegate(&[&FREE_PORTS, arguments].concat()))
    }

    /// Starts a server on free ports that takes `token` as the admin token.
    pub(crate) fn start_with_token(token: &str) -> Self {
        let mut command = sluicegate(&FREE_PORTS);
        command.env("SLUICEGATE_ADMIN_TOKEN", token);
        Self::start_command(command)
    }

    /// Starts a server on free ports that sees these variables.
    pub(crate) fn start_with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = sluicegate(&[&FREE_PORTS, arguments].concat());
        command.envs(variables.iter().copied());
        Self::start_command(command)
    }

    /// Starts a server on free ports under another program, which becomes it: `faketime -f +1h`, for example.
    pub(crate) fn start_under(wrapper: &[&str], arguments: &[&str]) -> Self {
        let inner = sluicegate(&[&FREE_PORTS, arguments].concat());
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
        remove_variables(&mut command);
        Self::start_command(command)
    }

    /// Starts a server by `command` and waits until it is ready.
    pub(crate) fn start_command(command: Command) -> Self {
        let mut server = Self::launch(command);
        while server.next_line() != "ready" {}
        server
    }

    /// Starts a server on free ports without waiting.
    pub(crate) fn begin(arguments: &[&str]) -> Self {
        Self::launch(sluicegate(&[&FREE_PORTS, arguments].concat()))
    }

    fn launch(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let line = line.expect("stderr is text");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new(), addresses: HashMap::new() }
    }

    fn next_line(&mut self) -> String {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("not the line waited for ({error}); stderr so far: {:#?}", self.seen),
        };
        if let ["listening", name, address] = line.split(' ').collect::<Vec<_>>()[..] {
            let address = address.parse().expect("an address after `listening`");
            self.addresses.insert(name.to_owned(), address);
        }
        self.seen.push(line.clone());
        line
    }

    /// Reads stderr up to the first line that contains `text`, and returns that line.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        loop {
            let line = self.next_line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The address of a listener.
    #[track_caller]
    pub(crate) fn address(&self, name: &str) -> SocketAddr {
        let address = self.addresses.get(name);
        *address.unwrap_or_else(|| panic!("{name} is not listening; stderr: {:#?}", self.seen))
    }

    /// The names of all listeners.
    pub(crate) fn listeners(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.addresses.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The lines of stderr up to `ready`.
    pub(crate) fn lines_to_ready(&self) -> &[String] {
        &self.seen
    }

    /// The number of files that the process has open, sockets included.
    pub(crate) fn open_files(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        files.expect("the process lives").count()
    }

    /// The resident memory of the process.
    pub(crate) fn resident_kilobytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The processor time that the server has used so far, in user and system mode.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("the process lives");
        // The name of the program may contain blanks; it ends with the last parenthesis.
        let (_, fields) = stat.rsplit_once(')').expect("the name of the program");
        let ticks =
            fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("a number"));
        // Linux counts hundredths of a second here.
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// Sends a signal such as `TERM`.
    pub(crate) fn signal(&self, signal: &str) {
        // The shell's own `kill` is available with every shell and needs no unsafe code here.
        let kill = format!("kill -{signal} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(status.success(), "{kill}: {status}");
    }

    /// Waits for the end of the process, which another event must cause.
    pub(crate) fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        // The stream ends after the last line, when the process ends.
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("still running; stderr: {:#?}", self.seen),
            }
        }
        let status = self.child.wait().expect("the child can be waited for");
        Ended { status, lines: std::mem::take(&mut self.seen) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail harmlessly if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
