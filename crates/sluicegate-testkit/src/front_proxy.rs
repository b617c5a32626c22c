//! A real nginx, Caddy, Traefik, Envoy or HAProxy that a test owns: random port, temporary folder, killed on drop.
//!
//! A test brings the part of the configuration that people write; what only a test needs (one process, no state outside
//! the folder, no calls home) is added here. Each runs as a single process, so that nothing of it outlives the kill.

mod program;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

pub use program::FrontProgram;

use crate::poll;
use crate::port;
use crate::process::Process;

/// How long a proxy may take to accept its first connection; Traefik takes the longest, about a second.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often another port is tried when somebody took the chosen one first.
const PORT_ATTEMPTS: u32 = 5;

const LOG: &str = "proxy.log";

/// A proxy that runs as long as this value lives.
#[derive(Debug)]
pub struct FrontProxy {
    process: Process,
    folder: TempDir,
    port: u16,
}

/// A file of a proxy's configuration: its name and its text.
pub type ConfigurationFile = (&'static str, String);

impl FrontProxy {
    /// Runs `program` with the files that `configure` makes for the port it shall listen on, and waits until it accepts
    /// connections there. See [`FrontProgram`] for the names of the files.
    ///
    /// That it accepts does not mean that all of its routes are there yet: Traefik loads them a moment later.
    pub fn start(program: FrontProgram, configure: impl Fn(u16) -> Vec<ConfigurationFile>) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let port = port::free();
            let mut proxy = Self::launch(program, port, &configure(port));
            if proxy.accepts() {
                return proxy;
            }
            // Whoever took the port still has it; else the configuration is to blame.
            let is_port_taken = TcpStream::connect(proxy.address()).is_ok();
            assert!(is_port_taken, "{program:?} has ended; its log:\n{}", proxy.log());
        }
        panic!("{PORT_ATTEMPTS} ports were free and then taken before {program:?} had them")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The id of its one process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    fn launch(program: FrontProgram, port: u16, files: &[ConfigurationFile]) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        for (name, text) in files {
            write(&folder.path().join(name), text);
        }
        for (name, text) in program.own_files() {
            write(&folder.path().join(name), text);
        }
        let log = folder.path().join(LOG);
        let process = Process::spawn(&program.path(), program.arguments(), folder.path(), &log)
            .unwrap_or_else(|error| panic!("{program:?} does not start: {error}"));
        Self { process, folder, port }
    }

    /// Whether it accepts connections before it ends.
    fn accepts(&mut self) -> bool {
        let address = self.address();
        poll::until("the first connection to a proxy", START_LIMIT, || {
            let is_accepted = TcpStream::connect(address).is_ok();
            if self.process.has_ended() {
                return Some(false);
            }
            is_accepted.then_some(true)
        })
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
