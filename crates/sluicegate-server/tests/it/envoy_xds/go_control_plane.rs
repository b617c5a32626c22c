//! go-control-plane, the library that Envoy Gateway and Envoy AI Gateway embed, as the control plane.
//!
//! It is built from `tests/go_control_plane` where Go is installed and its modules can be fetched. Elsewhere the test says that
//! it did not run; the control plane of the test kit covers the same exchanges everywhere.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::{FREE_PORTS, QUICK, statuses};
use crate::server::{PATIENCE, Server, sluicegate};

/// The program, or the reason why it cannot be built here.
fn program() -> Result<PathBuf, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go_control_plane");
    let target = PathBuf::from(env!("CARGO_BIN_EXE_sluicegate"));
    let program = target.ancestors().nth(2).expect("target/debug/sluicegate").join("tools/go-control-plane");
    let go = |arguments: &[&str]| -> std::io::Result<Output> {
        Command::new("go").args(arguments).current_dir(&sources).stdin(Stdio::null()).output()
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    match go(&["mod", "download"]) {
        Err(error) => return Err(format!("Go cannot be started: {error}")),
        Ok(output) if !output.status.success() => return Err(format!("no modules: {}", said(&output))),
        Ok(_) => {}
    }
    let built = go(&["build", "-mod=readonly", "-buildvcs=false", "-o", program.to_str().expect("text"), "."]);
    let built = built.expect("Go, which has just run");
    assert!(built.status.success(), "{}", said(&built));
    Ok(program)
}

/// A running control plane.
struct GoControlPlane {
    child: Child,
    lines: Receiver<String>,
    address: SocketAddr,
}

impl GoControlPlane {
    fn start(program: &Path, address: &str) -> Self {
        let mut command = Command::new(program);
        let mut child =
            command.arg(address).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut started = Self { child, lines, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let line = started.line("listening ");
        started.address = line.parse().expect("an address");
        started
    }

    /// The rest of the next line with this beginning.
    fn line(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no `{start}`: {error}"));
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    fn request(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let request: Value = serde_json::from_str(&self.line("request ")).expect("JSON");
            if is_it(&request) {
                return request;
            }
        }
    }

    fn push(&mut self, version: &str, domains: &Value) {
        let command = json!({ "push": version, "domains": domains });
        let mut input = self.child.stdin.as_ref().expect("piped");
        writeln!(input, "{command}").expect("it reads");
    }

    /// Waits for the ACK of a version.
    fn acknowledged(&self, version: &str) {
        self.request(|request| request["version"] == version && request["error"] == "" && request["nonce"] != "");
    }
}

impl Drop for GoControlPlane {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A domain with a limit of `user` in this unit; 4 is a day.
fn domain(requests: u32, unit: u32) -> Value {
    json!({ "user": { "unit": unit, "requests": requests } })
}

#[test]
fn go_control_plane_is_followed_through_mistakes_and_restarts() {
    let program = match program() {
        Ok(program) => program,
        Err(reason) => {
            println!("did not run: {reason}");
            return;
        }
    };
    let mut plane = GoControlPlane::start(&program, "127.0.0.1:0");
    let address = plane.address.to_string();
    let mut command = sluicegate(&FREE_PORTS);
    command.args(["--envoy-xds", &address]).envs(QUICK).env("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit");
    let server = Server::start_command(command);
    let first = plane.request(|_| true);
    assert_eq!((&first["node"], &first["version"]), (&json!("envoy-ratelimit"), &json!("")));
    plane.push("1", &json!({ "edge": domain(2, 4), "other": domain(1, 4) }));
    plane.acknowledged("1");
    assert_eq!(statuses(&server, "edge", "ann", 3), [200, 200, 429]);

    plane.push("2", &json!({ "edge": domain(3, 4), "other": domain(5, 77) }));
    let nack = plane.request(|request| request["error"] != "");
    assert!(
        nack["error"].as_str().is_some_and(|error| error.starts_with("domain other:#1: descriptors[0]")),
        "{nack}"
    );
    assert_eq!(nack["version"], "1");
    assert_eq!(statuses(&server, "edge", "ann", 2), [200, 429]);
    assert_eq!(statuses(&server, "other", "ann", 2), [200, 429], "the last good form");

    // The controller restarts, and its versions begin again.
    drop(plane);
    let mut plane = GoControlPlane::start(&program, &address);
    plane.push("1", &json!({ "edge": domain(4, 4) }));
    let first = plane.request(|_| true);
    assert_eq!((&first["version"], &first["nonce"]), (&json!(""), &json!("")));
    plane.acknowledged("1");
    assert_eq!(statuses(&server, "edge", "ann", 2), [200, 429]);
    assert_eq!(statuses(&server, "other", "ann", 2), [200, 200], "removed");
    plane.push("2", &json!({}));
    plane.acknowledged("2");
    assert_eq!(statuses(&server, "edge", "ann", 2), [200, 200]);
}
