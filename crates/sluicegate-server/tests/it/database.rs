//! Rules in a database: import and export by the command line, the effect on servers, and the permissions of the admin
//! API.

mod admin;
mod command_line;
mod fleet;
mod hostile;
mod outage;
mod schemathesis;

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use sluicegate_testkit::postgres_server::PostgresServer;
use tempfile::TempDir;

use crate::client::{Answer, Connection, post, send};
use crate::server::{Server, sluicegate};

/// The admin token of every server of these tests.
const TOKEN: &str = "database-token-of-tests";
/// A limit that does not refill within a test.
const FILE: &str = "rules: [{ name: first, limits: [{ algorithm: fixed_window, limit: 5, window: 365d }] }]\n";

/// A database for one test.
struct Owned {
    url: String,
    server: Option<PostgresServer>,
    /// The folder for files, including a SQLite database.
    folder: TempDir,
}

impl Owned {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = sqlite_url(&folder.path().join("rules.db"));
        Self { url, server: None, folder }
    }

    fn postgres() -> Self {
        let server = PostgresServer::start();
        Self { url: server.url(), server: Some(server), folder: tempfile::tempdir().expect("a folder") }
    }

    fn postgres_server(&self) -> &PostgresServer {
        self.server.as_ref().expect("this one is PostgreSQL")
    }

    /// A server with its rules in this database. It imports `file` if the database has no rules yet.
    fn serve(&self, file: &str) -> Server {
        // Each server has a file of its own, which stays unchanged.
        let files = std::fs::read_dir(self.folder.path()).expect("a folder").count();
        let path = self.folder.path().join(format!("sluicegate-{files}.yaml"));
        std::fs::write(&path, file).expect("a file");
        let variables = [("SLUICEGATE_DATABASE", self.url.as_str()), ("SLUICEGATE_ADMIN_TOKEN", TOKEN)];
        Server::start_with(&variables, &["--config", path.to_str().expect("text")])
    }
}

fn sqlite_url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

/// Sends a request with the token to the admin API.
fn admin(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    admin_with(server.address("admin"), method, path, &format!("authorization: Bearer {TOKEN}\r\n"), body)
}

/// Sends a request with these header fields to the admin API.
fn admin_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut connection = Connection::open(address);
    let content = if body.is_empty() {
        String::new()
    } else {
        format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
    };
    connection.send(format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{content}{headers}\r\n{body}"
    ));
    connection.answer()
}

/// A rule that allows `limit` requests and does not refill within a test.
fn rule(name: &str, limit: u32) -> String {
    format!(
        r#"{{"name":"{name}","match":{{"resource":"{name}"}},"limits":[{{"algorithm":"fixed_window","limit":{limit},"window":"365d"}}]}}"#
    )
}

/// The limit for requests of `resource`, if a rule of the same name applies to them.
fn limit_of(server: &Server, resource: &str) -> Value {
    let body = format!(r#"{{"resource":"{resource}","identifier":"somebody"}}"#);
    let answer = post(server.address("api"), "/v1/peek", body).json();
    if answer["rule"] == resource { answer["limit"].clone() } else { Value::Null }
}

/// Runs the command line to its end. Returns the exit code and the output.
fn run(arguments: &[&str]) -> (i32, String) {
    let output = sluicegate(arguments).output().expect("it runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).concat();
    (output.status.code().expect("no signal"), text)
}

/// The value of a metric without labels.
fn metric(server: &Server, name: &str) -> String {
    let text = send(server.address("admin"), "GET", "/metrics").body;
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).expect("it is there");
    line.rsplit(' ').next().expect("a value").to_owned()
}
