//! The lines that the server prints before `ready`: the addresses of its listeners, and example commands.

use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::net::Listener;
use crate::telemetry;

/// The lines before `ready`.
pub(super) struct StartupAnnouncement {
    listening: Vec<(&'static str, SocketAddr)>,
    /// The listeners with TLS.
    with_tls: Vec<&'static str>,
    /// Whether the built-in configuration is active. Its key and resource appear in the examples.
    is_demo: bool,
}

impl StartupAnnouncement {
    pub(super) fn of<'l>(listeners: impl Iterator<Item = &'l Listener> + Clone, is_demo: bool) -> Self {
        let with_tls = listeners.clone().filter(|listener| listener.has_tls()).map(Listener::name).collect();
        let listening = listeners.map(|listener| (listener.name(), listener.address())).collect();
        Self { listening, with_tls, is_demo }
    }

    pub(super) fn print(&self) {
        for (name, address) in &self.listening {
            print_line(&format!("listening {name} {address}"));
        }
        for hint in self.hints() {
            print_line(&hint);
        }
    }

    /// Example commands for the enabled listeners.
    fn hints(&self) -> Vec<String> {
        let at = |wanted| {
            let found = self.listening.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, address)| Reachable(*address))
        };
        let scheme = |name| if self.with_tls.contains(&name) { "https" } else { "http" };
        let gateway = at("gateway").filter(|_| self.is_demo).map(|address| {
            format!("try: curl -i -H 'X-API-Key: demo-key' {}://{address}/api/ping", scheme("gateway"))
        });
        let api = at("api").map(|address| {
            let body = if self.is_demo {
                r#"{"resource":"demo","identifier":"alice"}"#
            } else {
                r#"{"resource":"RESOURCE","identifier":"IDENTIFIER"}"#
            };
            let scheme = scheme("api");
            format!("try: curl -s {scheme}://{address}/v1/check -H 'content-type: application/json' -d '{body}'")
        });
        let resp = at("resp").map(|reachable| {
            let address = reachable.local();
            let tls = if self.with_tls.contains(&"resp") { " --tls" } else { "" };
            format!("try: redis-cli{tls} -h {} -p {} CL.THROTTLE alice 15 30 60", address.ip(), address.port())
        });
        let hints: Vec<_> = gateway.into_iter().chain(api).chain(resp).collect();
        if hints.is_empty() {
            return at("admin")
                .map(|address| format!("try: curl -i {}://{address}/readyz", scheme("admin")))
                .into_iter()
                .collect();
        }
        hints
    }
}

/// An address for clients on this machine. The unspecified address becomes loopback.
struct Reachable(SocketAddr);

impl Reachable {
    fn local(&self) -> SocketAddr {
        let ip = match self.0.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        SocketAddr::new(ip, self.0.port())
    }
}

impl fmt::Display for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.local().fmt(f)
    }
}

/// Prints a line to stderr. Scripts wait for these lines, so they are plain text in every log format. Earlier log lines are
/// flushed first, and each line is one write, because another thread writes the log. A closed stderr does not stop the server.
pub(super) fn print_line(line: &str) {
    telemetry::flush();
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(listening: &[(&'static str, &str)], is_demo: bool) -> StartupAnnouncement {
        let parsed = listening.iter().map(|(name, address)| (*name, address.parse().expect("an address")));
        StartupAnnouncement { listening: parsed.collect(), with_tls: vec![], is_demo }
    }

    fn hints(listening: &[(&'static str, &str)]) -> Vec<String> {
        announcement(listening, true).hints()
    }

    #[test]
    fn hints_have_addresses_that_clients_can_use() {
        let ping = |at: &str| format!("try: curl -i -H 'X-API-Key: demo-key' http://{at}/api/ping");
        for (bound, reachable) in [
            ("127.0.0.1:43121", "127.0.0.1:43121"),
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
        ] {
            assert_eq!(hints(&[("gateway", bound)]), [ping(reachable)]);
        }
    }

    #[test]
    fn hints_use_tls_for_listeners_with_tls() {
        let plain = announcement(&[("api", "127.0.0.1:2"), ("resp", "127.0.0.1:4")], false);
        let hints = StartupAnnouncement { with_tls: vec!["api", "resp"], ..plain }.hints();
        assert!(hints[0].starts_with("try: curl -s https://127.0.0.1:2/v1/check"), "{hints:?}");
        assert!(hints[1].starts_with("try: redis-cli --tls -h 127.0.0.1"), "{hints:?}");
    }

    #[test]
    fn hints_have_placeholders_with_a_configuration_file() {
        let hints = |listening: &[_]| announcement(listening, false).hints();
        let check = r#"try: curl -s http://127.0.0.1:2/v1/check -H 'content-type: application/json' -d '{"resource":"RESOURCE","identifier":"IDENTIFIER"}'"#;
        assert_eq!(hints(&[("gateway", "127.0.0.1:1"), ("api", "127.0.0.1:2")]), [check]);
        assert!(hints(&[("gateway", "127.0.0.1:1")]).is_empty());
    }

    #[test]
    fn hints_cover_enabled_listeners_only() {
        let check = r#"try: curl -s http://127.0.0.1:2/v1/check -H 'content-type: application/json' -d '{"resource":"demo","identifier":"alice"}'"#;
        assert_eq!(hints(&[("api", "127.0.0.1:2"), ("admin", "127.0.0.1:3")]), [check]);
        assert_eq!(hints(&[("gateway", "127.0.0.1:1"), ("api", "127.0.0.1:2")]).len(), 2);
        let throttle = "try: redis-cli -h ::1 -p 4 CL.THROTTLE alice 15 30 60";
        assert_eq!(hints(&[("admin", "127.0.0.1:3"), ("resp", "[::]:4")]), [throttle]);
        assert_eq!(hints(&[("admin", "127.0.0.1:3")]), ["try: curl -i http://127.0.0.1:3/readyz"]);
        assert!(hints(&[]).is_empty());
    }
}
