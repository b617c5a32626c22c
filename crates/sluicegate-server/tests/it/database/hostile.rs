//! Requests that must be rejected: wrong tokens, tokens without permission, cross-site requests, hostile bodies.

use super::*;

const TENANT: &str = r#"{"name":"t"}"#;

#[test]
fn changes_need_a_token_and_enough_of_a_role() {
    let database = Owned::sqlite();
    let hash = "93e88bf5ac4c09d4da6dbf1ecb0c3d9aa6f7e7a4b9cba5f9f1b0ed9c6f8b4bf4";
    let file = format!(
        "admin: {{ tokens: [ {{ name: eyes, role: read, env: EYES }}, {{ name: hands, role: operate, env: HANDS }}, \
         {{ name: other, role: admin, sha256: {hash} }} ] }}\nrules: []\n"
    );
    let config = crate::server::ConfigFile::new("roles", file);
    let variables = [
        ("SLUICEGATE_DATABASE", database.url.as_str()),
        ("SLUICEGATE_ADMIN_TOKEN", TOKEN),
        ("EYES", "eyes-token-of-tests"),
        ("HANDS", "hands-token-of-tests"),
    ];
    let server = Server::start_with(&variables, &["--config", config.path()]);
    let with = |token: &str, method: &str, path: &str, body: &str| {
        let header = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        admin_with(server.address("admin"), method, path, &header, body)
    };
    for (token, tenants, rules) in [
        ("", 401, 401),
        ("wrong", 401, 401),
        ("eyes-token-of-tests", 403, 403),
        ("hands-token-of-tests", 201, 403),
    ] {
        assert_eq!(with(token, "POST", "/admin/v1/tenants", TENANT).status, tenants, "{token}");
        assert_eq!(with(token, "POST", "/admin/v1/rules", &rule("r", 1)).status, rules, "{token}");
        assert_eq!(with(token, "POST", "/admin/v1/keys", r#"{"identifier":"i"}"#).status, rules, "{token}");
    }
    assert_eq!(with(TOKEN, "POST", "/admin/v1/rules", &rule("r", 1)).status, 201);
    for (token, status) in
        [("", 200), ("eyes-token-of-tests", 200), ("hands-token-of-tests", 200), (TOKEN, 200), ("wrong", 401)]
    {
        assert_eq!(with(token, "GET", "/admin/v1/rules", "").status, status, "{token}");
    }
    let told = with("", "GET", "/admin/v1/audit", "").json();
    assert_eq!((&told["entries"][1]["actor"], &told["entries"][0]["actor"]), (&"hands".into(), &"admin".into()));
}

#[test]
fn without_a_configured_token_nothing_can_be_changed() {
    let server = Server::start(&[]);
    let answer =
        admin_with(server.address("admin"), "POST", "/admin/v1/tenants", "authorization: Bearer x\r\n", TENANT);
    assert!(answer.status == 403 && answer.body.contains("SLUICEGATE_ADMIN_TOKEN"), "{answer:?}");
}

#[test]
fn guesses_of_tokens_are_429_and_lock_no_client_out() {
    let database = Owned::sqlite();
    let server = database.serve("rules: []");
    let guess = |index: u32| {
        let header = format!("authorization: Bearer guess-{index}\r\n");
        admin_with(server.address("admin"), "GET", "/admin/v1/rules", &header, "").status
    };
    let statuses: Vec<u16> = (0..13).map(guess).collect();
    assert_eq!(statuses[..10], [401; 10], "{statuses:?}");
    assert!(statuses[10..].contains(&429), "{statuses:?}");
    let right = format!("authorization: Bearer {TOKEN}\r\n");
    let rights = || admin_with(server.address("admin"), "GET", "/admin/v1/rules", &right, "").status;
    assert_eq!((guess(31), rights()), (429, 200), "a right token is taken");
    assert_eq!(guess(32), 429, "and ends nothing for the guesser");
    // The block applies to one address only.
    let mut elsewhere = Connection::open_from(std::net::Ipv4Addr::new(127, 0, 0, 9), server.address("admin"));
    elsewhere.send(format!(
        "GET /admin/v1/rules HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    ));
    assert_eq!(elsewhere.answer().status, 200);
}

/// A proxy on this machine forwards requests of remote clients.
#[test]
fn forwarded_requests_are_not_local() {
    let database = Owned::sqlite();
    let server = database.serve("rules: []");
    let read = |field: &str| admin_with(server.address("admin"), "GET", "/admin/v1/rules", field, "").status;
    assert_eq!(read(""), 200);
    for field in [
        "x-forwarded-for: 203.0.113.9",
        "X-Forwarded-Proto: https",
        "x_forwarded_for: 203.0.113.9",
        "forwarded: for=203.0.113.9",
        "via: 1.1 proxy",
        "x-real-ip: 203.0.113.9",
        "X.Forwarded.For: 203.0.113.9",
        "X-Forwarded: for=203.0.113.9",
        "X-Client-IP: 203.0.113.9",
        "X_Cluster_Client_IP: 203.0.113.9",
        "True-Client-IP: 203.0.113.9",
        "CF-Connecting-IP: 203.0.113.9",
        "X-Envoy-External-Address: 203.0.113.9",
        "CDN-Loop: cdn.example",
    ] {
        assert_eq!(read(&format!("{field}\r\n")), 401, "{field}");
        assert_eq!(read(&format!("{field}\r\nauthorization: Bearer {TOKEN}\r\n")), 200, "{field}");
    }
    drop(server);
    let closed = database.serve("admin: { require_token: true }\nrules: []");
    let read = |field: &str| admin_with(closed.address("admin"), "GET", "/admin/v1/rules", field, "").status;
    assert_eq!((read(""), read(&format!("authorization: Bearer {TOKEN}\r\n"))), (401, 200));
}

#[test]
fn pages_of_other_sites_neither_read_nor_change_anything() {
    let database = Owned::sqlite();
    let server = database.serve(FILE);
    let address = server.address("admin");
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    // A foreign host name that resolves to this machine (DNS rebinding) is not trusted, so such a request needs a
    // token.
    for (host, status) in [
        ("evil.example", 401),
        ("evil.example:8082", 401),
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:1", 200),
    ] {
        for path in ["/admin/v1/rules", "/admin/v1/top", "/admin/v1/audit", "/metrics"] {
            let mut connection = Connection::open(address);
            connection.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
            assert_eq!(connection.answer().status, status, "{host} {path}");
        }
    }
    for header in [
        "origin: https://evil.example",
        "origin: null",
        "origin: http://localhost:1",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        let answer = admin_with(address, "POST", "/admin/v1/tenants", &format!("{token}{header}\r\n"), TENANT);
        assert_eq!(answer.status, 403, "{header}: {answer:?}");
        let answer = admin_with(address, "DELETE", "/admin/v1/rules/first", &format!("{token}{header}\r\n"), "");
        assert_eq!(answer.status, 403, "{header}: {answer:?}");
    }
    // The content types of HTML forms are not JSON.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let mut connection = Connection::open(address);
        connection.send(format!(
            "POST /admin/v1/tenants HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\n{token}content-length: {}\r\n\r\n{TENANT}",
            TENANT.len()
        ));
        assert_eq!(connection.answer().status, 415, "{kind}");
    }
    let mut preflight = Connection::open(address);
    preflight.send("OPTIONS /admin/v1/tenants HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\naccess-control-request-method: POST\r\nconnection: close\r\n\r\n");
    let preflight = preflight.answer();
    assert!(preflight.names().all(|name| !name.starts_with("access-control")), "{preflight:?}");
    // The dashboard's own page may.
    let own = format!("{token}origin: http://localhost\r\nsec-fetch-site: same-origin\r\n");
    assert_eq!(admin_with(address, "POST", "/admin/v1/tenants", &own, TENANT).status, 201);
}

#[test]
fn traps_in_files_and_bodies_are_refused_with_the_limit_named() {
    let database = Owned::sqlite();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f.yaml");
    let file = file.to_str().expect("text");
    let many: String = (0..100_000).map(|index| format!("- {{name: r{index}, limits: unlimited}}\n")).collect();
    let ten_thousand_and_one: String =
        (0..10_001).map(|index| format!("- {{name: r{index}, limits: unlimited}}\n")).collect();
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, of) in [('b', 'a'), ('c', 'b'), ('d', 'c'), ('e', 'd'), ('f', 'e'), ('g', 'f'), ('h', 'g')] {
        let list = vec![format!("*{of}"); 10].join(",");
        bomb.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    let cases = [
        (format!("rules:\n{many}"), "use at most 1048576 bytes"),
        (format!("rules:\n{ten_thousand_and_one}"), "use at most 10000"),
        (bomb, "250000"),
        (format!("rules: {}", "[".repeat(10_000)), "280"),
    ];
    for (text, limit) in cases {
        std::fs::write(file, text).expect("a file");
        let (code, said) = run(&["rules", "import", file, "--database", &database.url]);
        assert!(code == 1 && said.contains(limit), "{limit}: {}", &said[..said.len().min(500)]);
    }
    let server = database.serve(FILE);
    let deep = format!(r#"{{"name":"a","limits":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(admin(&server, "POST", "/admin/v1/rules", &deep).status, 400);
    let long = format!(r#"{{"name":"a","description":"{}"}}"#, "x".repeat(900_000));
    assert_eq!(admin(&server, "POST", "/admin/v1/tenants", &long).status, 400);
    let longer = format!(r#"{{"name":"a","description":"{}"}}"#, "x".repeat(1_100_000));
    let mut connection = Connection::open(server.address("admin"));
    let _ = connection.try_send(
        format!("POST /admin/v1/tenants HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", longer.len()).as_bytes(),
    );
    assert_eq!(connection.answer().status, 413);
}
