//! Follows the tour of the README: saves the files, starts the servers and runs the commands in a shell. The output
//! must equal the output on the page.
//!
//! Only the addresses differ, because the test owns its servers. The binary under test replaces `cargo run --release`.
//! `…` on the page matches any text.

pub(crate) mod page;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use sluicegate_testkit::redis_server::RedisServer;

use self::page::{Step, is_shown, statuses, steps};
use crate::server::{PATIENCE, Server};

/// Commands that this test skips, because `cargo xtask test` covers them.
const ELSEWHERE: [&str; 2] = ["cargo xtask test", "cargo run --release -q -p sluicegate --example embed"];

/// The command that starts the server.
const SERVE: &str = "cargo run --release";

/// The flags of the listeners, and their default addresses on the page.
const LISTENERS: [(&str, &str); 3] =
    [("gateway", "127.0.0.1:8080"), ("api", "127.0.0.1:8081"), ("admin", "127.0.0.1:8082")];

#[test]
fn every_command_of_the_readme_prints_the_shown_output() {
    let mut tour = Tour::begin();
    let mut commands = 0;
    for step in steps(include_str!("../../../../README.md")) {
        match step {
            Step::Save { name, text } => tour.save(&name, &text),
            Step::Type { command, shown } => {
                tour.type_in(&command, &shown);
                commands += 1;
            }
        }
    }
    // A parser error could yield an empty tour, which would always pass.
    assert!(commands >= 15 && tour.servers >= 5, "{commands} commands, {} servers", tour.servers);
}

/// The folder of the tour and the processes in it.
struct Tour {
    folder: tempfile::TempDir,
    /// Addresses on the page, each with its address in this test.
    addresses: Vec<(String, String)>,
    running: Vec<(String, Server)>,
    redis: Option<RedisServer>,
    application: Option<Application>,
    servers: usize,
}

impl Tour {
    fn begin() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, addresses: Vec::new(), running: Vec::new(), redis: None, application: None, servers: 0 }
    }

    fn save(&mut self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), self.here(text)).expect("a file");
    }

    fn type_in(&mut self, command: &str, shown: &[String]) {
        let command = command.split("  #").next().unwrap_or_default().trim_end().trim_end_matches(" &");
        if ELSEWHERE.contains(&command) {
            return;
        }
        if let Some(port) = command.strip_prefix("redis-server --port ") {
            let redis = self.redis.insert(RedisServer::start());
            self.addresses.push((format!("127.0.0.1:{port}"), redis.address().to_string()));
        } else if let Some(words) = command.strip_prefix("python3 -m http.server ") {
            let (port, rest) = words.split_once(' ').expect("a port");
            let application = self.application.insert(Application::start(self.folder.path(), rest));
            self.addresses.push((format!("127.0.0.1:{port}"), application.address.to_string()));
        } else {
            match command.strip_prefix(SERVE).map(|rest| rest.trim_start().trim_start_matches("-- ")) {
                Some(arguments) if arguments.is_empty() || arguments.starts_with("--") => {
                    self.serve(arguments, shown);
                }
                _ => self.run(command, shown),
            }
        }
    }

    /// Starts a server in place of one on the same address.
    fn serve(&mut self, arguments: &str, shown: &[String]) {
        let arguments = self.here(arguments);
        let mut words: Vec<&str> = arguments.split_whitespace().collect();
        let mut at = LISTENERS.map(|(name, usual)| (name, usual.to_owned()));
        for (name, address) in &mut at {
            let flag = format!("--{name}");
            if let Some(place) = words.iter().position(|word| *word == flag) {
                words.remove(place);
                *address = words.remove(place).to_owned();
            }
        }
        let config = words.iter().position(|word| *word == "--config").map(|place| place + 1);
        let path = config.map(|place| self.folder.path().join(words[place]).to_string_lossy().into_owned());
        if let (Some(place), Some(path)) = (config, &path) {
            words[place] = path;
        }
        self.running.retain(|(gateway, _)| *gateway != at[0].1);
        let server = Server::start(&words);
        self.addresses
            .extend(at.iter().map(|(name, on_page)| (on_page.clone(), server.address(name).to_string())));
        let shown = shown.iter().map(|line| self.here(line)).collect::<Vec<_>>();
        let printed = server.lines_to_ready().join("\n");
        assert!(is_shown(&printed, &shown), "it prints\n{printed}\nand not\n{shown:#?}");
        self.running.push((at[0].1.clone(), server));
        self.servers += 1;
    }

    /// Runs a command to its end. A command that shows a momentary state may run again.
    fn run(&self, command: &str, shown: &[String]) {
        if shown.len() == 1 && statuses(&shown[0]).is_some() {
            return self.run_statuses(command, &shown[0]);
        }
        let started = Instant::now();
        let first = self.printed_by(command);
        let mut printed = first.clone();
        while !is_shown(&printed, shown) {
            assert!(started.elapsed() < PATIENCE, "`{command}` prints\n{first}\nand not\n{shown:#?}");
            printed = self.printed_by(command);
        }
    }

    /// The statuses of successive requests. Meanwhile a bucket refills by at most one per second.
    fn run_statuses(&self, command: &str, shown: &str) {
        let started = Instant::now();
        let printed = self.printed_by(command);
        let seconds = usize::try_from(started.elapsed().as_secs()).expect("not that long");
        let (printed, shown) = (statuses(&printed).expect("statuses"), statuses(shown).expect("statuses"));
        let passed = |all: &[u16]| all.iter().filter(|status| **status == 200).count();
        assert_eq!(printed.len(), shown.len(), "{command}");
        let range = passed(&shown)..=passed(&shown) + seconds;
        assert!(range.contains(&passed(&printed)), "`{command}` prints {printed:?} and not {shown:?}");
        assert!(printed.iter().all(|status| shown.contains(status)), "`{command}` prints {printed:?}");
    }

    fn printed_by(&self, command: &str) -> String {
        let binary = env!("CARGO_BIN_EXE_sluicegate");
        let mut command = self.here(command).replace(&format!("{SERVE} -q -- "), &format!("{binary} "));
        if command.contains(" check --") {
            command += &self.here(" --api http://127.0.0.1:8081");
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(self.folder.path()).stdin(Stdio::null());
        let output = shell.output().expect("a shell");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").replace('\r', "");
        let (printed, complaint) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "`{command}` fails: {}\n{printed}{complaint}", output.status);
        printed
    }

    /// The text with the addresses of the page replaced by those of the test.
    fn here(&self, text: &str) -> String {
        let latest = self.addresses.iter().rev();
        latest.fold(text.to_owned(), |text, (on_page, here)| text.replace(on_page, here))
    }
}

/// Python's own web server, ended by its process id.
struct Application {
    child: Child,
    address: SocketAddr,
}

impl Application {
    /// Starts the program with these arguments on a free port, which it prints.
    fn start(folder: &Path, words: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "0"]).args(words.split(' ')).current_dir(folder);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("python3 starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let port = line.split(" port ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let port: u16 = port.unwrap_or_else(|| panic!("no port in {line:?}"));
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // Both fail harmlessly if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
