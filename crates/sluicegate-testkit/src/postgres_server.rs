//! A real PostgreSQL server that a test owns: random port, temporary folder, killed on drop.
//!
//! PostgreSQL refuses to run as root, so if the tests run as root, the server runs as the unprivileged Unix user with
//! the id 65534. Unexpected events panic with the server's own log. The fixture does not connect to the server as a
//! client: that is left to the code under test.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::poll;
use crate::port::free as free_port;
use crate::process::Process;

/// The time limit for a server to accept clients; even a busy machine needs only a fraction of it.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The number of start attempts: another process may have taken the port, or parts of a killed server may still be
/// exiting.
const START_ATTEMPTS: u32 = 20;
/// The id of the unprivileged user and group on Debian and most other systems.
const NOBODY: u32 = 65_534;
const VARIABLE: &str = "SLUICEGATE_TEST_POSTGRES";
const READY: &str = "database system is ready to accept connections";
const LOG: &str = "server.log";

/// A server that runs as long as this value lives.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    /// `None` between a kill and the next start.
    process: Mutex<Option<Process>>,
}

impl PostgresServer {
    /// Starts an empty server and waits until it is ready.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("sluicegate-postgres-").tempdir();
        let folder = folder.unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let server = Self { programs: programs(), port: free_port(), folder, process: Mutex::new(None) };
        if is_root(server.folder.path()) {
            chown(server.folder.path(), Some(NOBODY), Some(NOBODY))
                .unwrap_or_else(|error| panic!("the folder cannot be given to nobody: {error}"));
        }
        server.initialize();
        server.launch();
        server
    }

    /// The URL for clients, as the owner of the database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Kills the server without a clean shutdown (SIGKILL). Afterwards its port is closed.
    pub fn kill(&self) {
        self.process.lock().take();
    }

    /// Starts it again on the same port with the data in its folder, and waits until it accepts clients.
    pub fn launch(&self) {
        for _ in 0..START_ATTEMPTS {
            let before = self.log().len();
            let mut process = self.spawn();
            let has_started = poll::until("PostgreSQL, ready or ended", START_LIMIT, || {
                let is_ready = self.log().get(before..).is_some_and(|news| news.contains(READY));
                if is_ready { Some(true) } else { process.has_ended().then_some(false) }
            });
            if has_started {
                *self.process.lock() = Some(process);
                return;
            }
        }
        panic!("PostgreSQL did not start {START_ATTEMPTS} times; its log:\n{}", self.log())
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    fn initialize(&self) {
        let (program, arguments) = self.invocation("initdb");
        let data =
            ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D"];
        let output = Command::new(program)
            .args(arguments)
            .args(data)
            .arg(self.data())
            .current_dir(self.folder.path())
            .output()
            .unwrap_or_else(|error| panic!("initdb cannot be run: {error}"));
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn spawn(&self) -> Process {
        let (program, mut arguments) = self.invocation("postgres");
        let (data, port) = (self.data().display().to_string(), self.port.to_string());
        let folder = format!("unix_socket_directories={}", self.folder.path().display());
        // Test data need not survive a power failure.
        let settings = ["listen_addresses=127.0.0.1", &folder, "fsync=off", "max_connections=50"];
        arguments.extend(["-D".to_owned(), data, "-p".to_owned(), port]);
        arguments.extend(settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let log = self.folder.path().join(LOG);
        Process::spawn(&program, &arguments, self.folder.path(), &log)
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()))
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The command for a program under a user that PostgreSQL accepts; `setpriv` switches to it.
    fn invocation(&self, name: &str) -> (PathBuf, Vec<String>) {
        let program = self.programs.join(name);
        if !is_root(Path::new("/proc/self")) {
            return (program, Vec::new());
        }
        let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
        let arguments = user.into_iter().chain(["--".to_owned(), program.display().to_string()]).collect();
        ("setpriv".into(), arguments)
    }
}

/// Whether this path is owned by root.
fn is_root(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|of| of.uid() == 0)
}

/// The folder of the programs: the one named in the environment, or the newest that Debian installed.
fn programs() -> PathBuf {
    if let Some(named) = variable(VARIABLE) {
        let named = PathBuf::from(named);
        assert!(named.join("postgres").is_file(), "{VARIABLE} names {}, which has no postgres", named.display());
        return named;
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.map(|entry| entry.path()).filter(|path| path.join("bin/postgres").is_file());
    newest.max_by_key(number).map(|path| path.join("bin")).unwrap_or_else(|| {
        panic!(
            "PostgreSQL is not installed: `cargo xtask test --only postgres` installs it, or set {VARIABLE} to the \
             folder of its programs"
        )
    })
}

#[expect(clippy::disallowed_methods, reason = "the test runner says in the environment where its programs are")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
