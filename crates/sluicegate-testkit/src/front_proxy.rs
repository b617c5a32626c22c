//! A real nginx, Caddy, Traefik, Envoy or HAProxy that a test owns: random port, temporary folder, killed on drop.
//!
//! A test supplies the part of the configuration that users write. This module adds the settings that only a test
//! needs: one process, no state outside the folder, no telemetry. Each proxy runs as a single process, so that the kill
//! leaves nothing behind.

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

/// The time limit for a proxy to accept its first connection. Traefik is the slowest and takes about a second.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The number of ports to try if another process takes the chosen one first.
const PORT_ATTEMPTS: u32 = 5;

const LOG: &str = "proxy.log";

/// A proxy that runs as long as this value lives.
#[derive(Debug)]
pub struct FrontProxy {
    process: Process,
    folder: TempDir,
    port: u16,
}

/// A configuration file of a proxy: its name and its text.
pub type ConfigurationFile = (&'static str, String);

impl FrontProxy {
    /// Starts `program` and waits until it accepts connections. `configure` returns the configuration files for the
    /// port to listen on; [`FrontProgram`] lists their names.
    ///
    /// An accepted connection does not mean that all routes are loaded: Traefik loads them a moment later.
    pub fn start(program: FrontProgram, configure: impl Fn(u16) -> Vec<ConfigurationFile>) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let port = port::free();
            let mut proxy = Self::launch(program, port, &configure(port));
            if proxy.accepts() {
                return proxy;
            }
            // If another process took the port, the port still accepts connections. Otherwise the configuration is
            // wrong.
            let is_port_taken = TcpStream::connect(proxy.address()).is_ok();
            assert!(is_port_taken, "{program:?} has ended; its log:\n{}", proxy.log());
        }
        panic!("{PORT_ATTEMPTS} ports were free and then taken before {program:?} had them")
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The id of its only process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Its output so far.
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

    /// Whether the proxy accepts a connection before it exits.
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
