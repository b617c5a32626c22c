//! A real Redis or Valkey server that a test owns: random port, temporary folder, killed on drop.
//!
//! The test kit connects over a Unix socket with a user of its own, independent of the TLS, passwords, rights and
//! proxies under test. Every call blocks until the server has really executed it. Unexpected events panic with the
//! server's own log.

mod certificates;
mod options;
mod program;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{
    Client, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
};
use tempfile::TempDir;

pub use certificates::{Certificates, ClientCertificates};
pub use options::Options;
pub(crate) use options::{ADMINISTRATOR, ANY_PASSWORD, Role};
pub use program::Program;

use crate::poll;
use crate::port::free as free_port;
use crate::process::Process;
use options::{ACCESS_CONTROL_FILE, ADMINISTRATION_SOCKET};

/// The time limit for a server to answer its first command; even a busy machine needs only a fraction of it.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The time limit of a command of the test kit, so that a test on a stopped server fails instead of hanging.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// The number of ports to try if another process takes the chosen one first.
const PORT_ATTEMPTS: u32 = 20;

const CONFIGURATION: &str = "server.conf";
const LOG: &str = "server.log";

/// A server that runs as long as this value lives.
#[derive(Debug)]
pub struct RedisServer {
    options: Options,
    port: u16,
    folder: TempDir,
    /// `None` between a kill and the next start.
    process: Mutex<Option<Process>>,
}

enum Start {
    Ready,
    PortTaken,
    Failed(&'static str),
}

impl RedisServer {
    /// Starts an empty Redis.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// Starts a server with these options and waits until it is ready.
    pub fn with(options: &Options) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let server = Self::prepare(options.clone());
            server.launch();
            match server.first_answer() {
                Start::Ready => return server,
                Start::PortTaken => {}
                Start::Failed(how) => panic!("the server {how}; its log:\n{}", server.log()),
            }
        }
        panic!("{PORT_ATTEMPTS} ports were free and then taken before the server had them")
    }

    /// The URL for clients, with the password of the default user if there is one.
    pub fn url(&self) -> String {
        let password = self.options.password.as_ref().map_or(String::new(), |password| format!(":{password}@"));
        format!("{}://{password}{}", self.scheme(), self.address())
    }

    /// The URL for clients that connect as another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}://{user}:{password}@{}", self.scheme(), self.address())
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port on which it listens, the same over all restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its working folder: data files, configuration, log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path(LOG)).unwrap_or_default()
    }

    /// Its process id; panics when it is not running.
    pub fn process_id(&self) -> u32 {
        self.running(Process::id)
    }

    /// Whether the server is neither killed nor paused.
    pub fn is_running(&self) -> bool {
        self.process.lock().as_ref().is_some_and(|process| !process.is_paused())
    }

    /// Processor time it has used since its last start.
    pub fn processor_time(&self) -> Duration {
        self.running(Process::processor_time)
    }

    /// The memory it holds, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.running(Process::resident_bytes)
    }

    /// Kills the server without a clean shutdown (SIGKILL). Afterwards its port is closed.
    pub fn kill(&self) {
        self.process.lock().take();
    }

    /// Pauses the server with all connections open (SIGSTOP) until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.running(Process::pause);
    }

    /// Resumes the server (SIGCONT).
    pub fn resume(&self) {
        self.running(Process::resume);
    }

    /// Kills the server and restarts it on the same port with the data in its folder, which is empty by default.
    pub fn restart(&self) {
        self.kill();
        self.launch();
        self.wait_until_ready();
    }

    /// Kills the server and restarts it on the same port without any data.
    pub fn restart_empty(&self) {
        self.kill();
        self.forget_data();
        self.launch();
        self.wait_until_ready();
    }

    /// Starts a killed server without waiting: it may still be loading its data.
    pub fn launch(&self) {
        let program = self.options.program.path();
        let configuration = self.path(CONFIGURATION);
        let mut arguments = vec![configuration.to_str().unwrap_or(CONFIGURATION)];
        if self.options.role == Role::Sentinel {
            arguments.push("--sentinel");
        }
        let process = Process::spawn(&program, &arguments, self.folder(), &self.path(LOG))
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        *self.process.lock() = Some(process);
    }

    /// Returns when the server answers and has loaded its data.
    pub fn wait_until_ready(&self) {
        match self.first_answer() {
            Start::Ready => {}
            Start::PortTaken => {
                panic!("port {} was taken while the server was away; its log:\n{}", self.port, self.log())
            }
            Start::Failed(how) => panic!("the server {how}; its log:\n{}", self.log()),
        }
    }

    /// Runs a command and converts its reply to this type.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words)
            .unwrap_or_else(|error| panic!("`{}` on port {}: {error}", words.join(" "), self.port))
    }

    /// Runs a command that may fail.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut self.connection()?)
    }

    /// A connection with all rights, for many commands in sequence. It ends when the server is killed.
    pub fn connection(&self) -> RedisResult<Connection> {
        let address = ConnectionAddr::Unix(self.path(ADMINISTRATION_SOCKET));
        let mut settings = RedisConnectionInfo::default();
        if self.options.role != Role::Sentinel {
            settings = settings.set_username(ADMINISTRATOR).set_password(ANY_PASSWORD);
        }
        let client = Client::open(address.into_connection_info()?.set_redis_settings(settings))?;
        let connection = client.get_connection_with_timeout(COMMAND_LIMIT)?;
        connection.set_read_timeout(Some(COMMAND_LIMIT))?;
        Ok(connection)
    }

    /// The number of script calls that the server has executed.
    pub fn script_calls(&self) -> u64 {
        let stats: String = self.command(&["INFO", "commandstats"]);
        let of = |name: &str| -> u64 {
            let line = stats.lines().find_map(|line| line.strip_prefix(name));
            // A command that was never called has no line.
            line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
        };
        of("cmdstat_evalsha:calls=") + of("cmdstat_eval:calls=")
    }

    /// One field of `INFO`, for instance `master_link_status`; `None` where the server does not have it.
    pub fn info(&self, field: &str) -> Option<String> {
        let report: String = self.command(&["INFO", "everything"]);
        field_of(&report, field)
    }

    fn prepare(options: Options) -> Self {
        let folder = TempDir::new().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let port = free_port();
        let server = Self { options, port, folder, process: Mutex::new(None) };
        server.write(CONFIGURATION, &server.options.file(port, server.folder()));
        if let Some(list) = server.options.access_control() {
            server.write(ACCESS_CONTROL_FILE, &list);
        }
        server
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    fn first_answer(&self) -> Start {
        poll::until("the first answer of a server", START_LIMIT, || {
            let ended = self.process.lock().as_mut().is_none_or(Process::has_ended);
            if ended {
                let taken = self.log().contains("Address already in use");
                return Some(if taken { Start::PortTaken } else { Start::Failed("ended at once") });
            }
            self.try_command::<String>(&["PING"]).is_ok().then_some(Start::Ready)
        })
    }

    /// Removes everything except the files that configure the server.
    fn forget_data(&self) {
        let keep = [CONFIGURATION, LOG, ACCESS_CONTROL_FILE];
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !keep.iter().any(|name| entry.file_name() == *name)) {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
        }
    }

    fn running<T>(&self, ask: impl FnOnce(&Process) -> T) -> T {
        let process = self.process.lock();
        let process = process.as_ref().unwrap_or_else(|| panic!("the server on port {} was killed", self.port));
        ask(process)
    }

    fn scheme(&self) -> &'static str {
        if self.options.tls.is_some() { "rediss" } else { "redis" }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

/// The value of `name:value` in the lines of a report.
pub(crate) fn field_of(report: &str, name: &str) -> Option<String> {
    report.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field == name).then(|| value.trim().to_owned())
    })
}
