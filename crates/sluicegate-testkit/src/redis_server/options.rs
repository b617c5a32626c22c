//! The options of a server, and the configuration file built from them.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::certificates::{Certificates, ClientCertificates};
use super::program::Program;
use crate::port::free as free_port;

/// The user of the test kit's own commands. It needs no password and has all rights, so that a test can change
/// passwords and rights without locking out the kit.
pub(crate) const ADMINISTRATOR: &str = "testkit";
/// The administrator's password: the server accepts any.
pub(crate) const ANY_PASSWORD: &str = "any";
const ADMINISTRATOR_RIGHTS: &str = "on nopass ~* &* +@all";

/// The socket for the test kit's own commands: never with TLS, never behind a proxy.
pub(super) const ADMINISTRATION_SOCKET: &str = "administration.sock";

/// The options of a server; the default is an empty Redis without persistence.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(super) program: Program,
    pub(super) role: Role,
    pub(super) password: Option<String>,
    pub(super) tls: Option<(Arc<Certificates>, ClientCertificates)>,
    users: Vec<String>,
    settings: Vec<(String, String)>,
}

/// The role of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Stores keys.
    Data,
    /// Stores keys as a node of a cluster.
    ClusterNode,
    /// Monitors other servers.
    Sentinel,
}

impl Options {
    /// A server of this program.
    pub fn new(program: Program) -> Self {
        Self { program, role: Role::Data, password: None, tls: None, users: Vec::new(), settings: Vec::new() }
    }

    /// Adds a line of the configuration file, for instance `maxmemory` with `2mb`. A later line wins.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The password of the default user; [`url`](super::RedisServer::url) then contains it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user, in the syntax of an access control list: `alice on >secret ~rl:* +@all`. Users are stored in an
    /// `aclfile`, so `ACL LOAD` and `ACL SAVE` work.
    pub fn user(mut self, line: &str) -> Self {
        self.users.push(line.to_owned());
        self
    }

    /// Accepts only TLS on the port. The program must be built with TLS support, as Debian's Redis is.
    pub fn tls(mut self, certificates: &Arc<Certificates>, clients: ClientCertificates) -> Self {
        self.tls = Some((Arc::clone(certificates), clients));
        self
    }

    /// A replica of the server on this port of 127.0.0.1.
    pub fn replica_of(self, port: u16) -> Self {
        self.set("replicaof", &format!("127.0.0.1 {port}"))
    }

    pub(crate) fn program(&self) -> Program {
        self.program
    }

    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The configuration file of a server that listens on `port`.
    pub(super) fn file(&self, port: u16, folder: &Path) -> String {
        let mut file = Lines::default();
        file.line("bind", "127.0.0.1");
        file.line("dir", &quoted(folder));
        file.line("protected-mode", "no");
        file.line("unixsocket", &quoted(&folder.join(ADMINISTRATION_SOCKET)));
        self.listen(&mut file, port);
        if self.role != Role::Sentinel {
            self.keep_nothing(&mut file);
            self.let_in(&mut file, folder);
        }
        self.settings.iter().for_each(|(name, value)| file.line(name, value));
        file.0
    }

    /// The access control list, if there are users.
    pub(super) fn access_control(&self) -> Option<String> {
        if self.users.is_empty() {
            return None;
        }
        let mut list = Lines::default();
        list.line("user", &format!("{ADMINISTRATOR} {ADMINISTRATOR_RIGHTS}"));
        let secret = self.password.as_ref().map_or("nopass".to_owned(), |password| format!(">{password}"));
        list.line("user", &format!("default on {secret} ~* &* +@all"));
        self.users.iter().for_each(|user| list.line("user", user));
        Some(list.0)
    }

    fn listen(&self, file: &mut Lines, port: u16) {
        let Some((certificates, clients)) = &self.tls else {
            file.line("port", &port.to_string());
            return;
        };
        let asked = match clients {
            ClientCertificates::Required => "yes",
            ClientCertificates::NotAsked => "no",
        };
        file.line("port", "0");
        file.line("tls-port", &port.to_string());
        file.line("tls-ca-cert-file", &quoted(&certificates.authority()));
        file.line("tls-cert-file", &quoted(&certificates.server()));
        file.line("tls-key-file", &quoted(&certificates.server_key()));
        file.line("tls-auth-clients", asked);
        file.line("tls-replication", "yes");
        if self.role == Role::ClusterNode {
            file.line("tls-cluster", "yes");
        }
    }

    fn keep_nothing(&self, file: &mut Lines) {
        file.line("save", "\"\"");
        // By default a primary waits five seconds for further replicas before it serves the first.
        file.line("repl-diskless-sync-delay", "0");
        // Replication is independent of the passwords that a test sets.
        file.line("masteruser", ADMINISTRATOR);
        file.line("masterauth", ANY_PASSWORD);
        if self.role == Role::ClusterNode {
            file.line("cluster-enabled", "yes");
            // The default is ten thousand above the other port, which may be taken or out of range.
            file.line("cluster-port", &free_port().to_string());
        }
    }

    fn let_in(&self, file: &mut Lines, folder: &Path) {
        if self.access_control().is_some() {
            file.line("aclfile", &quoted(&folder.join(ACCESS_CONTROL_FILE)));
            return;
        }
        file.line("user", &format!("{ADMINISTRATOR} {ADMINISTRATOR_RIGHTS}"));
        if let Some(password) = &self.password {
            file.line("requirepass", password);
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(Program::Redis)
    }
}

pub(super) const ACCESS_CONTROL_FILE: &str = "users.acl";

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{name} {value}");
    }
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}
