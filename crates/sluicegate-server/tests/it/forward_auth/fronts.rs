//! The proxies, with the configurations of the page and the addresses of a test.

use std::net::SocketAddr;

use sluicegate_testkit::front_proxy::{FrontProgram, FrontProxy};

use super::page::{at, block};

/// The addresses on the page.
const API: &str = "127.0.0.1:8081";
const APPLICATION: &str = "127.0.0.1:3000";

/// A proxy, and its differences from the others.
pub(super) struct Front {
    /// Starts it in front of the application, with Sluicegate's api listener beside it.
    pub(super) start: fn(api: SocketAddr, application: SocketAddr) -> FrontProxy,
    /// Whether it can report the limits of allowed requests to clients.
    pub(super) tells_limits: bool,
    /// Its status without Sluicegate.
    pub(super) status_without_sluicegate: u16,
}

pub(super) const NGINX: Front = Front { start: nginx, tells_limits: true, status_without_sluicegate: 503 };
pub(super) const CADDY: Front = Front { start: caddy, tells_limits: true, status_without_sluicegate: 502 };
pub(super) const TRAEFIK: Front = Front { start: traefik, tells_limits: false, status_without_sluicegate: 500 };
pub(super) const HAPROXY: Front = Front { start: haproxy, tells_limits: true, status_without_sluicegate: 503 };

fn nginx(api: SocketAddr, application: SocketAddr) -> FrontProxy {
    FrontProxy::start(FrontProgram::Nginx, |port| {
        let (api, application) = (api.to_string(), application.to_string());
        let listen = format!("listen 127.0.0.1:{port};");
        let replaced = [(API, api.as_str()), (APPLICATION, &application), ("listen 8000;", &listen)];
        vec![("servers.conf", at(block("nginx", "nginx", 0), &replaced))]
    })
}

fn caddy(api: SocketAddr, application: SocketAddr) -> FrontProxy {
    FrontProxy::start(FrontProgram::Caddy, |port| {
        let (api, application) = (api.to_string(), application.to_string());
        // Without a name before the port, Caddy listens on all addresses, as on the page.
        let listen = format!(":{port} {{");
        let replaced = [(API, api.as_str()), (APPLICATION, &application), (":8000 {", &listen)];
        vec![("site.caddyfile", at(block("Caddy", "caddyfile", 0), &replaced))]
    })
}

fn traefik(api: SocketAddr, application: SocketAddr) -> FrontProxy {
    FrontProxy::start(FrontProgram::Traefik, |port| {
        let (api, application) = (api.to_string(), application.to_string());
        let listen = format!("127.0.0.1:{port}");
        let main = at(block("Traefik", "yaml", 0), &[(":8000", &listen)]);
        let quiet = "global:\n  checkNewVersion: false\n  sendAnonymousUsage: false\n";
        let shop = at(block("Traefik", "yaml", 1), &[(API, &api), (APPLICATION, &application)]);
        vec![("traefik.yml", format!("{main}{quiet}")), ("shop.yml", shop)]
    })
}

fn haproxy(api: SocketAddr, application: SocketAddr) -> FrontProxy {
    FrontProxy::start(FrontProgram::Haproxy, |port| {
        let (api, application) = (api.to_string(), application.to_string());
        let script = at(block("HAProxy", "lua", 0), &[(API, &api)]);
        let bind = format!("bind 127.0.0.1:{port}");
        let replaced = [
            (APPLICATION, application.as_str()),
            ("bind :8000", &bind),
            ("/etc/haproxy/sluicegate.lua", "sluicegate.lua"),
        ];
        vec![("sluicegate.lua", script), ("haproxy.cfg", at(block("HAProxy", "haproxy", 0), &replaced))]
    })
}
