//! One server with all front doors open, an application behind its gateway, and persistent connections.

use std::net::SocketAddr;

use axum::Router;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::client::{Answer, Connection, Session, post_with};
use crate::resp::Client;
use crate::same_answer::serve;
use crate::server::Server;

const TOKEN: &str = "oracle-token-of-tests";
pub(super) const AUTHORIZATION: &str = "authorization: Bearer oracle-token-of-tests\r\n";

/// The identity of a key, and its tier.
const TENANTS: [&str; 2] = ["default", "acme"];
const IDENTIFIERS: [&str; 4] = ["ann", "bob", "vip-1", "vip-2"];
const TIERS: [Option<&str>; 4] = [None, Some("free"), Some("pro"), Some("admin")];

/// A server and its front doors.
pub(super) struct Scene {
    server: Server,
    directory: TempDir,
    upstream: SocketAddr,
    pub(super) api: Session,
    pub(super) resp: Client,
}

/// The key of an identity.
pub(super) fn key(tenant: &str, identifier: &str, tier: Option<&str>) -> String {
    format!("{tenant}-{identifier}-{}", tier.unwrap_or("none"))
}

impl Scene {
    pub(super) fn start(store: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let upstream = serve(Router::new().fallback(async || "the application's"));
        let path = directory.path().join("sluicegate.yaml");
        std::fs::write(&path, configuration(upstream, "tiers: [free, pro, admin]\nrules: []\n")).expect("a file");
        let path = path.to_str().expect("a path of text");
        let arguments = ["--config", path, "--store", store, "--resp", "127.0.0.1:0"];
        let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", TOKEN)], &arguments);
        let (api, resp) = (Session::open(server.address("api")), Client::connect(&server));
        Self { server, directory, upstream, api, resp }
    }

    /// Reloads the server with these rules.
    pub(super) fn reload(&self, rules: &str) {
        let (path, aside) = (self.directory.path().join("sluicegate.yaml"), self.directory.path().join("aside"));
        std::fs::write(&aside, configuration(self.upstream, rules)).expect("a file");
        std::fs::rename(aside, path).expect("the same directory");
        let answer = post_with(self.server.address("admin"), "/admin/v1/reload", AUTHORIZATION, "");
        assert_eq!(answer.status, 200, "{answer:?}\n{rules}");
    }

    /// One request on a connection of its own, with lines such as `"x: y\r\n"`.
    pub(super) fn get(&self, listener: &str, path: &str, lines: &str) -> Answer {
        let mut connection = Connection::open(self.server.address(listener));
        connection.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{lines}\r\n"));
        connection.answer()
    }
}

/// A configuration with the keys of all identities.
fn configuration(upstream: SocketAddr, rules: &str) -> String {
    let everybody = TENANTS
        .iter()
        .flat_map(|tenant| IDENTIFIERS.iter().map(move |identifier| (tenant, identifier)))
        .flat_map(|(tenant, identifier)| TIERS.iter().map(move |tier| (tenant, identifier, *tier)));
    let keys: String = everybody
        .map(|(tenant, identifier, tier)| {
            let digest = Sha256::digest(key(tenant, identifier, tier));
            let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let tier = tier.map(|tier| format!(", tier: {tier}")).unwrap_or_default();
            format!("      - {{ sha256: '{hash}', identifier: {identifier}, tenant: {tenant}{tier} }}\n")
        })
        .collect();
    format!(
        "resp: {{ deadline: 10s }}\ntrusted_proxies: [127.0.0.1]\ntrusted_header: x-forwarded-for\nidentity:\n  - api_key:\n      keys:\n{keys}\
         gateway: {{ routes: [{{ path: /**, upstream: 'http://{upstream}' }}] }}\n{rules}"
    )
}
