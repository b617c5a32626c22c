//! Servers that are measured from outside: start, readiness, resource usage, and end.

use crate::core_bench::now;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The deadline for readiness.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between readiness checks.
const PAUSE: Duration = Duration::from_millis(10);

/// A server process that ends when this value is dropped.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts a peer, which is ready when it accepts connections at all these addresses.
    pub(crate) fn start(mut command: Command, addresses: &[SocketAddr]) -> Result<Self, String> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Self { child: child.map_err(|error| not_started(&command, &error))? };
        let started = now();
        for address in addresses {
            while TcpStream::connect(address).is_err() {
                if started.elapsed() > PATIENCE || server.has_ended() {
                    return Err(format!("{} does not listen on {address}", name(&command)));
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(server)
    }

    /// Starts a server that prints `listening NAME ADDRESS` on stderr, and then `ready`.
    pub(crate) fn start_announcing(mut command: Command) -> Result<(Self, HashMap<String, SocketAddr>), String> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut server = Self { child: child.map_err(|error| not_started(&command, &error))? };
        let stderr = server.child.stderr.take().ok_or("no stderr")?;
        let (lines, mut addresses, mut said) = (lines(stderr), HashMap::new(), Vec::new());
        loop {
            let Ok(line) = lines.recv_timeout(PATIENCE) else {
                return Err(format!("{} was not ready; it said:\n{}", name(&command), said.join("\n")));
            };
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["ready"] => return Ok((server, addresses)),
                ["listening", name, address] => {
                    addresses
                        .insert(name.to_owned(), address.parse().map_err(|_| format!("{line:?}: no address"))?);
                }
                _ => {}
            }
            said.push(line);
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().map_or(true, |status| status.is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn not_started(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run {}: {error}", name(command))
}

/// Reads stderr to the end: a full pipe would stop the server.
fn lines(stderr: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // The receiver is gone once the server is ready.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// A free address at this moment, for programs that cannot choose one themselves.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}

/// The processor time of all threads of a process so far, in microseconds.
pub(crate) fn processor_micros(process: u32) -> Result<f64, String> {
    let broken = |error: std::io::Error| format!("the threads of process {process}: {error}");
    let mut nanos = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).map_err(broken)? {
        let path = thread.map_err(broken)?.path().join("schedstat");
        let text = fs::read_to_string(&path).map_err(broken)?;
        let first = text.split(' ').next().and_then(|text| text.parse::<f64>().ok());
        nanos += first.ok_or_else(|| format!("{} has no time", path.display()))?;
    }
    Ok(nanos / 1_000.0)
}

/// The resident memory of a process, in bytes.
pub(crate) fn resident_bytes(process: u32) -> Result<u64, String> {
    status_bytes(process, "VmRSS:")
}

/// The peak resident memory of a process, in bytes.
pub(crate) fn peak_bytes(process: u32) -> Result<u64, String> {
    status_bytes(process, "VmHWM:")
}

fn status_bytes(process: u32, key: &str) -> Result<u64, String> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find(|line| line.starts_with(key)).ok_or(format!("no {key} in {path}"))?;
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    Ok(kilobytes.ok_or(format!("{key} is not followed by a number"))? * 1_024)
}
