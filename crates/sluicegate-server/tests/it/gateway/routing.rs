//! Which upstream is asked, under which name, and which requests ask nobody.

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
    let ask = |host: &str, path: &str| {
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
        assert_eq!(ask(host, path).header("x-is"), Some(is), "{host}{path}");
    }
    let answer = ask("api.example.com", "/v1/orders?a=1");
    assert!(answer.body.starts_with("GET /orders?a=1 HTTP/1.1\r\n"), "{}", answer.body);
    assert_eq!(header(&answer.body, "host"), Some(api.address.to_string().as_str()));
    assert_eq!(header(&answer.body, "x-forwarded-host"), Some("api.example.com"));
    assert!(ask("api.example.com", "/v1").body.starts_with("GET / HTTP/1.1\r\n"));
    assert_eq!(header(&ask("www.example.com", "/").body, "host"), Some("www.example.com"));
}

#[test]
fn the_upstream_is_asked_for_the_path_that_was_decided() {
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
    for path in ["/a%2f..%2fadmin", "/a\\..\\admin", "/%00", "/%zz", "/a/..;/admin"] {
        assert_eq!(gateway.get(path, &[]).status, 400, "{path}");
    }
    assert!(upstream.heads().is_empty());
    assert!(gateway.get("/a//b/./c/%7Ed?//x=%2e", &[]).body.starts_with("GET /a/b/c/~d?//x=%2e HTTP/1.1\r\n"));
}

#[test]
fn what_is_taken_off_a_path_is_found_as_its_route_is() {
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

/// The upstream sends what it gets to the gateway, as one does whose name resolves to it.
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
fn what_could_be_read_in_two_ways_is_not_sent_on() {
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
        assert!(count >= 4, "{is} was asked {count} times");
    }
}
