//! Each proxy starts, answers as its configuration defines, and ends with the value that owns it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sluicegate_testkit::front_proxy::{ConfigurationFile, FrontProgram, FrontProxy};
use sluicegate_testkit::poll;

fn send(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /teapot HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn starts_answers_and_ends(program: FrontProgram, configure: impl Fn(u16) -> Vec<ConfigurationFile>) {
    let proxy = FrontProxy::start(program, configure);
    let address = proxy.address();
    poll::until_true("the configured answer", Duration::from_secs(30), || {
        send(address).unwrap().starts_with("HTTP/1.1 418")
    });
    drop(proxy);
    assert!(TcpStream::connect(address).is_err(), "{program:?} is still there");
}

#[test]
fn nginx() {
    starts_answers_and_ends(FrontProgram::Nginx, |port| {
        vec![("servers.conf", format!("server {{ listen 127.0.0.1:{port}; return 418; }}"))]
    });
}

#[test]
fn haproxy() {
    starts_answers_and_ends(FrontProgram::Haproxy, |port| {
        let file = format!(
            "defaults\n mode http\n timeout connect 1s\n timeout client 9s\n timeout server 9s\n\
             frontend f\n bind 127.0.0.1:{port}\n http-request return status 418\n"
        );
        vec![("haproxy.cfg", file)]
    });
}

#[test]
fn caddy() {
    starts_answers_and_ends(FrontProgram::Caddy, |port| {
        vec![("site.caddyfile", format!("http://:{port} {{\n\trespond 418\n}}\n"))]
    });
}

/// Traefik cannot answer by itself, so its configuration redirects every request.
#[test]
fn traefik() {
    let proxy = FrontProxy::start(FrontProgram::Traefik, |port| {
        let main = format!(
            "entryPoints: {{ web: {{ address: '127.0.0.1:{port}' }} }}\n\
             providers: {{ file: {{ filename: routes.yml }} }}\n\
             global: {{ checkNewVersion: false, sendAnonymousUsage: false }}\n"
        );
        let routes = "http:\n  \
             routers: { all: { rule: 'PathPrefix(`/`)', service: none, middlewares: [away] } }\n  \
             middlewares: { away: { redirectRegex: { regex: '.*', replacement: 'http://away.test/' } } }\n  \
             services: { none: { loadBalancer: { servers: [] } } }\n";
        vec![("traefik.yml", main), ("routes.yml", routes.to_owned())]
    });
    poll::until_true("the configured answer", Duration::from_secs(30), || {
        send(proxy.address()).unwrap().contains("Location: http://away.test/")
    });
}

/// Envoy's configuration returns a fixed response, because without a matching route Envoy returns only an error.
#[test]
fn envoy() {
    starts_answers_and_ends(FrontProgram::Envoy, |port| {
        let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
        let file = format!(
            "static_resources:
  listeners:
    - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
      filter_chains:
        - filters:
            - name: http
              typed_config:
                '@type': {manager}
                stat_prefix: t
                route_config:
                  virtual_hosts:
                    - {{ name: t, domains: ['*'], routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: 418 }} }}] }}
                http_filters: [{{ name: router, typed_config: {{ '@type': {router} }} }}]
"
        );
        vec![("envoy.yaml", file)]
    });
}

#[test]
#[should_panic(expected = "Nginx has ended; its log:\n")]
fn a_bad_configuration_is_reported_with_the_log() {
    FrontProxy::start(FrontProgram::Nginx, |_| vec![("servers.conf", "nonsense".to_owned())]);
}
