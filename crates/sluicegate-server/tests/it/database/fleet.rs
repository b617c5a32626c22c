//! Several servers on one database: each sees the changes of all others, and no change is lost.

use sluicegate_testkit::poll;

use super::*;
use crate::server::PATIENCE;

#[test]
fn a_change_on_one_server_is_in_force_there_at_once_and_soon_everywhere() {
    for database in [Owned::sqlite(), Owned::postgres()] {
        let (one, other) = (database.serve(FILE), database.serve("rules: []"));
        assert_eq!(limit_of(&other, "new"), Value::Null, "{}", database.url);
        let created = admin(&one, "POST", "/admin/v1/rules", &rule("new", 3));
        assert_eq!(created.status, 201, "{created:?}");
        assert_eq!(limit_of(&one, "new"), 3);
        poll::until_true("the other server sees the new rule", PATIENCE, || limit_of(&other, "new") == 3);
        let changed = admin(&other, "PUT", "/admin/v1/rules/new", &rule("new", 4));
        assert_eq!(changed.status, 200, "{changed:?}");
        poll::until_true("the first server sees the change", PATIENCE, || limit_of(&one, "new") == 4);
        assert_eq!(admin(&one, "DELETE", "/admin/v1/rules/new", "").status, 204);
        poll::until_true("the other server sees that it is gone", PATIENCE, || limit_of(&other, "new").is_null());
    }
}

#[test]
fn the_file_is_brought_into_an_empty_database_once_and_ignored_with_a_warning_then() {
    let database = Owned::sqlite();
    let mut first = database.serve(FILE);
    assert_eq!(admin(&first, "GET", "/admin/v1/rules", "").json()[0]["name"], "first");
    assert!(first.lines_to_ready().iter().any(|line| line.contains("the database was empty")), "no such line");
    let second = database.serve("rules: [{ name: second, limits: unlimited }]");
    assert!(second.lines_to_ready().iter().any(|line| line.contains("the rules of the file are ignored")));
    assert_eq!(admin(&second, "GET", "/admin/v1/rules/second", "").status, 404);
    // A manual import reaches running servers.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f.yaml");
    std::fs::write(&file, "rules: [{ name: third, limits: unlimited }]").expect("a file");
    assert_eq!(run(&["rules", "import", file.to_str().expect("text"), "--database", &database.url]).0, 0);
    first.wait_for_line("a new revision of the rules is in force");
    assert_eq!(admin(&first, "GET", "/admin/v1/rules", "").json()[0]["name"], "third");
}

#[test]
fn a_key_is_good_from_its_creation_to_its_deletion_on_every_server() {
    let database = Owned::sqlite();
    let file = "demo: true\nidentity: [{ api_key: { keys: [{ sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo }] } }]\nrules: []";
    let (one, other) = (database.serve(file), database.serve(file));
    let created = admin(&one, "POST", "/admin/v1/keys", r#"{"name":"k","identifier":"alice"}"#);
    assert_eq!(created.status, 201, "{created:?}");
    let secret = created.json()["secret"].as_str().expect("told once").to_owned();
    assert!(secret.starts_with("sg_") && secret.len() >= 35, "{secret}");
    let ping = |server: &Server| {
        let header = format!("x-api-key: {secret}");
        crate::client::send_with(server.address("gateway"), "GET", "/api/ping", &header).status
    };
    assert_eq!(ping(&one), 200);
    poll::until_true("the other server knows the key", PATIENCE, || ping(&other) == 200);
    for path in ["/admin/v1/keys", "/admin/v1/keys/k", "/admin/v1/audit"] {
        let shown = admin(&one, "GET", path, "").body;
        assert!(
            shown.contains("alice") && !shown.contains(&secret) && !shown.contains("sha256"),
            "{path}: {shown}"
        );
    }
    let exported = run(&["rules", "export", "--database", &database.url]).1;
    assert!(exported.contains("sha256") && !exported.contains(&secret), "{exported}");
    assert_eq!(admin(&other, "DELETE", "/admin/v1/keys/k", "").status, 204);
    assert_eq!(ping(&other), 401);
    poll::until_true("the first server does not know the key any more", PATIENCE, || ping(&one) == 401);
}

#[test]
fn of_many_edits_at_once_none_is_lost() {
    for database in [Owned::sqlite(), Owned::postgres()] {
        let servers = [database.serve("rules: []"), database.serve("rules: []")];
        let tenant = r#"{"name":"t","description":"0"}"#;
        assert_eq!(admin(&servers[0], "POST", "/admin/v1/tenants", tenant).status, 201);
        poll::until_true("both know the tenant", PATIENCE, || {
            admin(&servers[1], "GET", "/admin/v1/tenants/t", "").status == 200
        });
        // Each client reads, increments and writes conditionally until its write succeeds.
        let addresses = servers.each_ref().map(|server| server.address("admin"));
        std::thread::scope(|scope| {
            for address in addresses.iter().cycle().take(6) {
                scope.spawn(|| (0..5).for_each(|_| raise(*address)));
            }
        });
        let revision =
            admin(&servers[0], "GET", "/admin/v1/audit?limit=1", "").json()["entries"][0]["revision"].clone();
        assert_eq!(revision, 31, "{}: the tenant, and thirty changes", database.url);
        poll::until_true("all thirty count", PATIENCE, || {
            servers
                .iter()
                .all(|server| admin(server, "GET", "/admin/v1/tenants/t", "").json()["description"] == "30")
        });
    }
}

/// Increments the number in the description of the tenant, and retries after every conflicting write.
fn raise(address: SocketAddr) {
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    loop {
        let read = admin_with(address, "GET", "/admin/v1/tenants/t", &token, "");
        let count: u32 = read.json()["description"].as_str().expect("text").parse().expect("a number");
        let condition = format!("{token}if-match: {}\r\n", read.header("etag").expect("a tag"));
        let body = format!(r#"{{"description":"{}"}}"#, count + 1);
        let written = admin_with(address, "PUT", "/admin/v1/tenants/t", &condition, &body);
        match written.status {
            200 => return,
            412 => {}
            other => panic!("{other}: {written:?}"),
        }
    }
}
