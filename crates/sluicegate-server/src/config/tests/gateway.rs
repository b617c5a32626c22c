//! The section `gateway`: values and problems.

use super::*;
use crate::config::gateway::{Origins, Preflights};
use sluicegate::authority::HostPattern;
use sluicegate::path::EncodedSlashes;

#[test]
fn every_key_of_a_route_is_read() {
    let gateway = good(
        "gateway:
  routes:
    - { host: API.example.com, path: /api/**, upstream: [https://a, 'https://b:8443'], timeout: 10s, connect_timeout: 1s,
        idle_timeout: 5min, keep_alive: 30s, concurrency: 7, max_body_bytes: 1000, http2: true, preserve_host: false,
        strip_prefix: /api, retry: false, min_body_rate: 0,
        tls: { ca_file: ca.pem, server_name: x, certificate_file: c.pem, key_file: k.pem } }
  exempt: [/healthz]
  preflights: exempt
  encoded_slashes: refuse
  identity_headers: true
  cors: { allow_origins: ['https://app.example.com'], allow_credentials: true }
rules: []",
    )
    .gateway;
    let [route] = &*gateway.routes else { panic!("one route") };
    assert_eq!(route.host, HostPattern::parse("api.example.com"));
    assert_eq!(route.path.text(), "/api/**");
    assert_eq!(
        route.upstreams.iter().map(|url| (url.host(), url.port())).collect::<Vec<_>>(),
        [("a", 443), ("b", 8443)]
    );
    let times = [route.timeout, route.connect_timeout, route.idle_timeout, route.keep_alive];
    assert_eq!(times.map(|time| time.as_secs()), [10, 1, 300, 30]);
    assert_eq!((route.concurrency, route.max_body_bytes, route.http2), (7, Some(1_000), Some(true)));
    assert_eq!(route.min_body_rate, 0);
    assert_eq!((route.preserve_host, route.strip_prefix.as_deref(), route.retry), (false, Some("/api"), false));
    assert!(route.tls.ca_file.is_some() && route.tls.server_name.is_some() && route.tls.client_files.is_some());
    assert!(gateway.exempt.iter().any(|path| path.matches("/healthz")));
    assert_eq!((gateway.preflights, gateway.identity_headers), (Preflights::Exempt, true));
    assert_eq!(gateway.encoded_slashes, EncodedSlashes::Refuse);
    let cors = gateway.cors.expect("there");
    assert_eq!(
        (cors.origins, cors.credentials),
        (Origins::Listed(["https://app.example.com".into()].into()), true)
    );
}

#[test]
fn absent_keys_of_a_route_have_their_defaults() {
    let gateway = good("gateway: { routes: [{ path: /**, upstream: 'http://a' }] }\nrules: []").gateway;
    let [route] = &*gateway.routes else { panic!("one route") };
    let times = [route.timeout, route.connect_timeout, route.idle_timeout, route.keep_alive];
    assert_eq!(times.map(|time| time.as_secs()), [30, 5, 60, 4]);
    assert_eq!((route.concurrency, route.max_body_bytes, route.http2), (4_096, None, None));
    assert_eq!(route.min_body_rate, 240);
    assert_eq!((route.preserve_host, route.strip_prefix.as_deref(), route.retry), (true, None, true));
    assert_eq!((gateway.preflights, gateway.identity_headers, gateway.cors), (Preflights::Count, false, None));
    assert_eq!(gateway.encoded_slashes, EncodedSlashes::Keep);
    assert_eq!(good("rules: []").gateway.encoded_slashes, EncodedSlashes::Keep);
    assert!(good("rules: []").gateway.routes.is_empty());
}

#[test]
fn every_problem_with_a_route_is_reported() {
    let url = "write a scheme, a host and perhaps a port, for example http://127.0.0.1:9000";
    check(
        "gateway: { routes: [{ upstream: [] }] }",
        &[
            "1:21: gateway.routes[0].path: missing key: write which paths it is for, for example /api/**, or /** for all",
            "1:33: gateway.routes[0].upstream: 0 upstreams: write a URL or a list of them, for example \
             [http://10.0.0.1:9000, http://10.0.0.2:9000]",
        ],
    );
    check(
        "gateway: { routes: [{ path: api, upstream: 'ftp://a', host: 'a:80', timeout: 2d }] }",
        &[
            "1:29: gateway.routes[0].path: does not begin with a slash (value api): write a path, for example /api/**",
            &format!(
                "1:44: gateway.routes[0].upstream: not an http:// or https:// URL (value \"ftp://a\"): {url}"
            ),
            "1:61: gateway.routes[0].host: not a host (value \"a:80\"): write a name without a port, \
             for example api.example.com, or *.example.com for all below it",
            "1:78: gateway.routes[0].timeout: out of range (value 2d): use 1ms to 24h",
        ],
    );
    check(
        "gateway: { routes: [{ path: /a, upstream: 'http://a' }, { path: /a, upstream: 'http://b' }] }",
        &["1:57: gateway.routes[1]: a second route for this host and path, first at 1:21: \
           remove one, or list several upstreams in one route"],
    );
    check(
        "gateway: { routes: [{ path: /a/**, upstream: 'http://a' }, { path: /A/**/, upstream: 'http://b' }] }",
        &["1:60: gateway.routes[1]: a second route for this host and path, first at 1:21: \
           remove one, or list several upstreams in one route"],
    );
    for prefix in ["api", "/", "/api/", "/a//b", "/a/../b", "/%61", "/a%2fb", "/a;b"] {
        check(
            &format!("gateway: {{ routes: [{{ path: /**, upstream: 'http://a', strip_prefix: '{prefix}' }}] }}"),
            &[&format!(
                "1:70: gateway.routes[0].strip_prefix: not the beginning of a path (value \"{prefix}\"): write it \
                 without a slash at the end, for example /api"
            )],
        );
    }
    check(
        "gateway: { routes: [{ path: /a, upstream: 'http://a', tls: { key_file: k } }] }",
        &[
            "1:60: gateway.routes[0].tls: one of two files: write `certificate_file` and `key_file`: \
             a certificate is nothing without its key",
            "1:60: gateway.routes[0].tls: an upstream without encryption: write https:// for every upstream of the route",
        ],
    );
    check(
        "gateway: { cors: {}, preflights: maybe, exempt: healthz, encoded_slashes: decode }",
        &[
            "1:18: gateway.cors.allow_origins: missing key: list them, for example [https://app.example.com], \
             or [\"*\"] for all",
            "1:34: gateway.preflights: unknown value (value maybe): use count or exempt",
            "1:49: gateway.exempt: not a list (value healthz): write a list of paths, for example [/healthz]",
            "1:75: gateway.encoded_slashes: unknown value (value decode): use keep or refuse",
        ],
    );
}

#[test]
fn messages_do_not_contain_the_password_of_an_upstream() {
    let problems = parse("gateway: { routes: [{ path: /a, upstream: 'http://user:hunter2@a' }] }\nrules: []");
    let problems = problems.unwrap_err().to_string();
    assert!(problems.contains("a URL with a user") && !problems.contains("hunter2"), "{problems}");
}

#[test]
fn a_wildcard_origin_with_credentials_is_rejected() {
    check(
        "gateway: { cors: { allow_origins: ['*'], allow_credentials: true } }",
        &["1:18: gateway.cors: all origins with cookies: list the origins, or leave `allow_credentials` out"],
    );
}
