//! The selection of the upstream and its host name, and the requests that reach no upstream.

use super::Gateway;
use super::upstream::{Upstream, header};
use crate::client::Connection;

#[test]
fn host_and_path_choose_the_upstream() {
    let (any, api, below) =
        (Upstream::echo("x-is: any\r\n"), Upstream::echo("x-is: api\r\n"), Upstream::echo("x-is: below\r\n"));
    let section = format!(
        "routes: [{{ path: /**, upstream: 'http://{}' }}, \
         {{ host: api.example.com, path: /v1/**, upstream: 'http://{}', strip_prefix: /v1, preserve_host: false }}, \
         {{ host: '*.example.com', path: /**, upstream: 'http://{}' }}]",
        any.address, api.address, below.address
    );
    let gateway = Gateway::start("routing", &section);
    let send = |host: &str, path: &str| {
        gateway.send(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
    };
    for (host, path, is) in [
        ("t", "/v1/x", "any"),
        ("api.example.com", "/v1/x", "api"),
        ("API.EXAMPLE.COM:8080", "/V1/x", "api"),
        ("api.example.com.", "//v1/./x", "api"),
        ("api.example.com", "/v2", "below"),
        ("www.example.com", "/v1/x", "below"),
        ("example.com", "/", "any"),
    ] {
        assert_eq!(send(host, path).header("x-is"), Some(is), "{host}{path}");
    }
    let answer = send("api.example.com", "/v1/orders?a=1");
    assert!(answer.body.starts_with("GET /orders?a=1 HTTP/1.1\r\n"), "{}", answer.body);
    assert_eq!(header(&answer.body, "host"), Some(api.address.to_string().as_str()));
    assert_eq!(header(&answer.body, "x-forwarded-host"), Some("api.example.com"));
    assert!(send("api.example.com", "/v1").body.starts_with("GET / HTTP/1.1\r\n"));
    assert_eq!(header(&send("www.example.com", "/").body, "host"), Some("www.example.com"));
}

#[test]
fn the_upstream_receives_the_path_of_the_decision() {
    let upstream = Upstream::echo("");
    let section = format!("routes: [{{ path: /**, upstream: 'http://{}' }}]", upstream.address);
    let rules = "rules: [{ name: admin, match: { path: /admin/** }, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }]";
    let gateway = Gateway::with_rules("decided-path", &section, rules);
    for path in [
        "/admin",
        "/admin/x",
        "//admin",
        "/./admin/x",
        "/a/../admin",
        "/%61dmin",
        "/ADMIN/x",
        "/admin;x",
        "/admin/",
        "/a/%2e%2e/admin",
    ] {
        assert_eq!(gateway.get(path, &[]).status, 429, "{path}");
    }
    for path in ["/a%5c..%5cadmin", "/a\\..\\admin", "/%00", "/%zz", "/a/..;/admin"] {
        assert_eq!(gateway.get(path, &[]).status, 400, "{path}");
    }
    assert!(upstream.heads().is_empty());
    assert!(gateway.get("/a//b/./c/%7Ed?//x=%2e", &[]).body.starts_with("GET /a/b/c/~d?//x=%2e HTTP/1.1\r\n"));
}

/// Examples are npm packages, GitLab projects and keys of an object store.
#[test]
fn an_encoded_slash_is_sent_on_as_it_came_and_counts_once() {
    let upstream = Upstream::echo("");
    let section = format!("routes: [{{ path: /**, upstream: 'http://{}' }}]", upstream.address);
    let rules = "rules:
  - { name: all, match: { path: /** }, limits: [{ algorithm: fixed_window, limit: 8, window: 3650d }] }
  - { name: scope, match: { path: /@scope/** }, limits: [{ algorithm: fixed_window, limit: 3, window: 3650d }] }
  - { name: one, match: { resource: '@scope%2fname' }, limits: [{ algorithm: fixed_window, limit: 2, window: 3650d }] }";
    let gateway = Gateway::with_rules("encoded-slash", &section, rules);
    for path in [
        "/@scope%2fname",
        "/@scope%2Fname?a=%2f",
        "/api/v4/projects/group%2Fsub%2Fproject/repository/files/src%2Fmain.rs?ref=a%2Fb",
        "/bucket/a%2F%2Fb%2F",
        "/a%252Fb",
        "/a%2F..%2Fb",
    ] {
        let answer = gateway.get(path, &[]);
        assert!(answer.body.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{answer:?}");
    }
    // The rules of each reading limit the request.
    assert_eq!(gateway.get("/@scope%2Fname", &[]).json()["violated-policies"][0], "one");
    assert_eq!(gateway.get("/@scope/other", &[]).status, 200);
    assert_eq!(gateway.get("/@scope%2Fother", &[]).json()["violated-policies"][0], "scope");
    // A rule that matches both readings is charged once: seven so far.
    assert_eq!(gateway.get("/other%2Fone", &[]).header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(gateway.get("/other%2Fone", &[]).status, 429);
}

#[test]
fn no_encoded_slash_leads_past_a_rule_for_either_reading() {
    let upstream = Upstream::echo("");
    let to = |path: &str, more: &str| format!("{{ path: {path}, upstream: 'http://{}'{more} }}", upstream.address);
    let section = format!(
        "routes: [{}, {}, {}], exempt: [/assets/**, /healthz]",
        to("/**", ""),
        to("/files/**", ""),
        to("/v1/**", ", strip_prefix: /v1")
    );
    let rules = "rules:
  - { name: admin, match: { path: /admin/** }, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }
  - { name: below, match: { path: /v1/admin/** }, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }
  - { name: resource, match: { resource: 'keys.*' }, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }";
    let gateway = Gateway::with_rules("no-bypass", &section, rules);
    for (path, status) in [
        ("/%2Fadmin", 429),
        ("/%2fadmin", 429),
        ("/x%2F..%2Fadmin", 429),
        ("/x/..%2F..%2Fadmin", 429),
        ("/admin%2F", 429),
        ("/admin%2fx", 429),
        // Some applications do not resolve dot segments after decoding.
        ("/admin%2F..%2Fx", 429),
        ("/v1/admin%2F..%2Fx", 429),
        ("/ADMIN%2F..%2fadmin", 429),
        ("/admin/..%2Fx", 429),
        ("/x%2F%2e%2E%2Fadmin", 429),
        ("/x%2F.%2F..%2F%61dmin;y", 429),
        ("/keys%2Fx", 429),
        ("/assets/..%2Fadmin", 429),
        ("/assets%2F..%2Fadmin", 429),
        ("/v1/admin%2Fx", 429),
        ("/v1/x%2F..%2Fadmin", 429),
        // A parameter may end at the encoded slash or at the next one.
        ("/a;x%2F..%2Fadmin", 400),
        ("/%2F..%2F/admin;a%252F%2F..%2F", 400),
        // The dot segments have two possible meanings.
        ("/x%2Fy/../admin", 400),
        ("/x%2Fy/..", 400),
        ("/x%2F..;%2Fadmin", 400),
        // The readings match two routes.
        ("/files%2Fx", 400),
        ("/files/..%2Fx", 400),
        // The upstream would read a path outside the prefix, unlike the rules.
        ("/v1/x%2F..%2F..%2Fv1%2Fother", 400),
        ("/assets/..%2Fhealthz", 200),
        ("/files/a%2Fb", 200),
        ("/v1/a%2Fb", 200),
        ("/x%252Fadmin", 200),
    ] {
        let before = upstream.heads().len();
        assert_eq!(gateway.get(path, &[]).status, status, "{path}");
        assert_eq!(upstream.heads().len() - before, usize::from(status == 200), "{path}");
    }
}

#[test]
fn encoded_slashes_are_400_where_they_are_refused() {
    let upstream = Upstream::echo("");
    let section =
        format!("encoded_slashes: refuse, routes: [{{ path: /**, upstream: 'http://{}' }}]", upstream.address);
    let gateway = Gateway::start("refused-slash", &section);
    for path in ["/a%2fb", "/a%2Fb", "/a%5Cb"] {
        assert_eq!(gateway.get(path, &[]).status, 400, "{path}");
    }
    assert_eq!(gateway.get("/a%252Fb?c=%2F", &[]).status, 200);
    assert_eq!(upstream.heads().len(), 1);
}

#[test]
fn a_stripped_prefix_matches_as_its_route_does() {
    let upstream = Upstream::echo("");
    let section = format!(
        "routes: [{{ path: /public/**, upstream: 'http://{}', strip_prefix: /Public }}]",
        upstream.address
    );
    let gateway = Gateway::start("spelled-otherwise", &section);
    for path in ["/public/a", "/PUBLIC/a", "/public;x/a", "/%70ublic./a"] {
        let answer = gateway.get(path, &[]);
        assert!(answer.body.starts_with("GET /a HTTP/1.1\r\n"), "{path}: {answer:?}");
    }
}

/// The upstream forwards its requests to the gateway, like an upstream with a name that resolves to the gateway.
#[test]
fn a_request_that_comes_back_is_refused() {
    let (tell, told) = std::sync::mpsc::channel::<std::net::SocketAddr>();
    let told = std::sync::Mutex::new(told);
    let upstream = Upstream::start(move |caller, _| {
        let head = caller.read_head().expect("a request");
        let gateway = told.lock().expect("no panic").recv().expect("the gateway is up");
        let mut connection = Connection::open(gateway);
        connection.send(head.replacen("\r\n", "\r\nconnection: close\r\n", 1));
        caller.answer("", &connection.answer().status.to_string());
    });
    let gateway = Gateway::to("loop", upstream.address, "");
    tell.send(gateway.address()).expect("the upstream waits");
    assert_eq!(gateway.get("/a", &[]).body, "508");
    assert_eq!(upstream.heads().len(), 1);
}

#[test]
fn ambiguous_paths_are_not_forwarded() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("ambiguous", upstream.address, "");
    for (request, status) in [
        ("GET /a HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nhost: a\r\nhost: a\r\nconnection: close\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nhost: user@a\r\nconnection: close\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\nconnection: close\r\n\r\n", 400),
        ("GET http://real/a HTTP/1.1\r\nhost: other\r\nconnection: close\r\n\r\n", 400),
        ("TRACE /a HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n", 405),
    ] {
        assert_eq!(gateway.send(request).status, status, "{request}");
    }
    assert!(upstream.heads().is_empty());
    let absolute = gateway.send("GET http://real/a HTTP/1.1\r\nhost: real\r\nconnection: close\r\n\r\n");
    assert!(absolute.body.starts_with("GET /a HTTP/1.1\r\n"), "{absolute:?}");
    assert_eq!(header(&absolute.body, "host"), Some("real"));
}

#[test]
fn upstreams_take_turns_and_one_that_is_gone_is_left_out() {
    let (one, other) = (Upstream::echo("x-is: one\r\n"), Upstream::echo("x-is: other\r\n"));
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
    let section = format!(
        "routes: [{{ path: /**, upstream: ['http://{}', 'http://{gone}', 'http://{}'] }}]",
        one.address, other.address
    );
    let gateway = Gateway::start("turns", &section);
    let answers: Vec<_> = (0..12)
        .map(|_| gateway.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"))
        .collect();
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    for is in ["one", "other"] {
        let count = answers.iter().filter(|answer| answer.header("x-is") == Some(is)).count();
        assert!(count >= 4, "{is} was requested {count} times");
    }
}
