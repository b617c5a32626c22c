//! The admin API from outside: every status of the contract, the permissions of roles, and the audit.

use serde_json::json;

use super::*;

#[test]
fn entries_are_made_read_changed_and_deleted_with_the_statuses_of_the_contract() {
    let database = Owned::sqlite();
    let server = database.serve(FILE);
    let cases = [
        ("rules", rule("r/1".replace('/', ".").as_str(), 1), rule("r.1", 2)),
        ("tenants", r#"{"name":"<b>'; DROP TABLE x; --","disabled":false}"#.to_owned(), r#"{"description":"changed"}"#.to_owned()),
        (
            "overrides",
            r#"{"name":"o \"1\"","rule":"first","identifier":"vip-*","limits":"unlimited"}"#.to_owned(),
            r#"{"rule":"first","identifier":"vip-*","limits":[{"algorithm":"fixed_window","limit":9,"window":"1h"}]}"#.to_owned(),
        ),
        ("keys", r#"{"name":"k é","identifier":"alice"}"#.to_owned(), r#"{"identifier":"bob","tier":"pro"}"#.to_owned()),
    ];
    for (list, body, change) in cases {
        let all = format!("/admin/v1/{list}");
        let created = admin(&server, "POST", &all, &body);
        assert_eq!(created.status, 201, "{created:?}");
        let name = created.json()["name"].as_str().expect("a name").to_owned();
        let one = format!("{all}/{}", encoded(&name));
        assert_eq!(admin(&server, "POST", &all, &body).status, 409, "{list}");
        let read = admin(&server, "GET", &one, "");
        assert_eq!((read.status, read.header("etag")), (200, created.header("etag")), "{read:?}");
        let listed = admin(&server, "GET", &all, "").json();
        assert!(listed.as_array().expect("a list").contains(&read.json()), "{listed}");
        let changed = admin(&server, "PUT", &one, &change);
        assert_eq!(changed.status, 200, "{changed:?}");
        assert_ne!(changed.header("etag"), read.header("etag"));
        let stale =
            format!("authorization: Bearer {TOKEN}\r\nif-match: {}\r\n", read.header("etag").expect("a tag"));
        for (method, body) in [("PUT", change.as_str()), ("DELETE", "")] {
            assert_eq!(admin_with(server.address("admin"), method, &one, &stale, body).status, 412, "{list}");
        }
        let fresh =
            format!("authorization: Bearer {TOKEN}\r\nif-match: {}\r\n", changed.header("etag").expect("a tag"));
        assert_eq!(admin_with(server.address("admin"), "DELETE", &one, &fresh, "").status, 204);
        for (method, body) in [("GET", ""), ("PUT", change.as_str()), ("DELETE", "")] {
            assert_eq!(admin(&server, method, &one, body).status, 404, "{list} {method}");
        }
        let told = admin(&server, "GET", "/admin/v1/audit?limit=3", "").json();
        let actions: Vec<&str> = told["entries"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| entry["action"].as_str().expect("text"))
            .collect();
        assert_eq!(actions, ["delete", "update", "create"], "{told}");
        for entry in told["entries"].as_array().expect("a list") {
            assert_eq!((&entry["actor"], &entry["name"]), (&json!("admin"), &json!(name)));
        }
        assert!(
            told["entries"][1]["before"] != told["entries"][1]["after"] && told["entries"][0]["after"].is_null()
        );
    }
}

/// Every byte except letters and digits as `%XX`.
fn encoded(name: &str) -> String {
    name.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

#[test]
fn a_bad_body_is_400_and_names_the_field() {
    let database = Owned::sqlite();
    let server = database.serve(FILE);
    let cases = [
        (
            "rules",
            r#"{"name":"a","limits":[{"algorithm":"token_bucket","capacity":1,"refill":"1/m"}]}"#,
            "limits[0].refill",
        ),
        ("rules", r#"{"name":"a","limits":"unlimited","tiers":{"gold":"unlimited"}}"#, "tiers.gold"),
        ("rules", r#"{"name":"<b>","limits":"unlimited"}"#, "name"),
        ("rules", r#"{"limits":"unlimited"}"#, "name"),
        ("rules", r#"{"name":"${HOME}","limits":"unlimited"}"#, "name"),
        ("tenants", r#"{"name":"a*"}"#, "name"),
        ("tenants", r#"{"name":"a","disabled":"maybe"}"#, "disabled"),
        ("overrides", r#"{"name":"a","rule":"first","limits":"unlimited"}"#, "identifier"),
        ("keys", r#"{"name":"a","identifier":"b","sha256":"canary"}"#, "sha256"),
        ("keys", r#"{"name":"a"}"#, "identifier"),
    ];
    for (list, body, field) in cases {
        let answer = admin(&server, "POST", &format!("/admin/v1/{list}"), body);
        assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(field)), "{body}: {answer:?}");
        assert!(!answer.body.contains("canary"));
    }
    for body in ["", "[]", "nonsense", "5", r#"{"name":"a","limits":"unlimited"} more"#] {
        let status = admin(&server, "POST", "/admin/v1/rules", body).status;
        assert_eq!(status, if body.is_empty() { 415 } else { 400 }, "{body}");
    }
    let apart = r#"{"name":"a","rule":"nobody","identifier":"b","limits":"unlimited"}"#;
    let answer = admin(&server, "POST", "/admin/v1/overrides", apart);
    assert!(answer.status == 400 && answer.body.contains("no rule is called nobody"), "{answer:?}");
    assert_eq!(admin(&server, "PUT", "/admin/v1/rules/first", &rule("other", 1)).status, 400);
    let apart = r#"{"name":"a","rule":"first","identifier":"b","limits":"unlimited"}"#;
    assert_eq!(admin(&server, "POST", "/admin/v1/overrides", apart).status, 201);
    let needed = admin(&server, "DELETE", "/admin/v1/rules/first", "");
    assert!(needed.status == 409 && needed.body.contains("the override a is for"), "{needed:?}");
}

/// An import is one change with more entries than one page of the response.
#[test]
fn page_by_page_the_audit_lists_every_entry_of_a_large_import_once() {
    const KEYS: usize = 1_501;
    let database = Owned::sqlite();
    let keys: String = (0..KEYS)
        .map(|number| format!("  - {{ name: k{number:04}, identifier: i, sha256: '{number:064x}' }}\n"))
        .collect();
    let server = database.serve(&format!("{FILE}keys:\n{keys}"));
    assert_eq!(admin(&server, "POST", "/admin/v1/tenants", r#"{"name":"last"}"#).status, 201);
    let (mut names, mut pages) = (Vec::new(), 0);
    let mut path = "/admin/v1/audit?limit=500".to_owned();
    loop {
        let answer = admin(&server, "GET", &path, "");
        let entries = answer.json()["entries"].as_array().expect("a list").clone();
        names.extend(entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()));
        pages += 1;
        let Some(link) = answer.header("link") else { break };
        let next = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\""));
        path = next.unwrap_or_else(|| panic!("{link}")).to_owned();
        if pages == 2 {
            // Entries added in the meantime do not shift the pages.
            assert_eq!(admin(&server, "POST", "/admin/v1/tenants", r#"{"name":"meanwhile"}"#).status, 201);
        }
    }
    assert_eq!((pages, names.len()), (4, KEYS + 2), "the keys, the rule of the file, and a tenant");
    let distinct: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    for bad in [
        "before=0",
        "before=1.",
        "before=1.-1",
        "before=.1",
        "before=1.2.3",
        "before=x",
        "before=1&before=1",
        "limit=0",
    ] {
        let refused = admin(&server, "GET", &format!("/admin/v1/audit?{bad}"), "");
        let field = bad.split('=').next().expect("a field");
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!(field)), "{bad}");
    }
}

#[test]
fn without_a_database_the_file_is_read_and_changes_name_the_remedy() {
    let file = crate::server::ConfigFile::new("admin-file", FILE);
    let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", TOKEN)], &["--config", file.path()]);
    assert_eq!(admin(&server, "GET", "/admin/v1/rules/first", "").json()["name"], "first");
    assert_eq!(admin(&server, "GET", "/admin/v1/audit", "").json(), json!({ "entries": [] }));
    let refused = admin(&server, "POST", "/admin/v1/rules", &rule("new", 1));
    assert!(refused.status == 409 && refused.body.contains("name a database"), "{refused:?}");
}

#[test]
fn a_disabled_tenant_is_denied_and_others_are_not() {
    let database = Owned::sqlite();
    let server = database.serve("rules: []");
    assert_eq!(admin(&server, "POST", "/admin/v1/tenants", r#"{"name":"acme","disabled":true}"#).status, 201);
    let check = |tenant: &str| {
        let body = format!(r#"{{"tenant":"{tenant}","resource":"r","identifier":"i"}}"#);
        post(server.address("api"), "/v1/check", body)
    };
    let denied = check("acme");
    assert_eq!((denied.status, &denied.json()["rule"]), (429, &json!("tenant:acme")), "{denied:?}");
    assert_eq!(check("other").status, 200);
    assert_eq!(admin(&server, "PUT", "/admin/v1/tenants/acme", r#"{"disabled":false}"#).status, 200);
    assert_eq!(check("acme").status, 200);
}

const BY_FIELDS: &str = "
rules:
  - { name: by-host, match: { host: shop.example.com }, limits: unlimited }
  - { name: by-header, match: { header: { X-Plan: gold } }, limits: unlimited }
  - { name: by-claim, match: { claim: { groups: staff, level: '7' } }, limits: unlimited }
";

/// The explanation of rules that match by host, header fields and claims uses the values in the request.
#[test]
fn explain_takes_all_that_rules_look_at() {
    let database = Owned::sqlite();
    let server = database.serve(BY_FIELDS);
    let explain = |more: &str| {
        let body = format!(r#"{{"path":"/api","identifier":"alice"{more}}}"#);
        let answer = admin(&server, "POST", "/admin/v1/explain", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let matching = |explained: &Value| -> Vec<String> {
        let rules = explained["rules"].as_array().expect("rules").iter();
        let names = rules.filter(|rule| rule["matches"] == true).map(|rule| rule["name"].to_string());
        names.collect()
    };
    assert_eq!(matching(&explain("")), [""; 0]);
    assert_eq!(matching(&explain(r#","host":"Shop.Example.com:8443""#)), ["\"by-host\""]);
    assert_eq!(explain(r#","host":"Shop.Example.com:8443""#)["request"]["host"], "shop.example.com");
    assert_eq!(matching(&explain(r#","headers":{"Host":"shop.example.com"}"#)), ["\"by-host\""]);
    assert_eq!(matching(&explain(r#","headers":{"X-Plan":"gold"}"#)), ["\"by-header\""]);
    assert_eq!(matching(&explain(r#","headers":{"x-plan":["tin","gold"]}"#)), ["\"by-header\""]);
    assert_eq!(matching(&explain(r#","claims":{"groups":["staff","x"],"level":7}"#)), ["\"by-claim\""]);
    assert_eq!(matching(&explain(r#","claims":{"groups":"staff","level":8}"#)), [""; 0]);
    for bad in [
        r#"{"resource":"r","identifier":"i","host":"h"}"#,
        r#"{"resource":"r","identifier":"i","headers":{}}"#,
        r#"{"resource":"r","identifier":"i","claims":{}}"#,
        r#"{"path":"/","identifier":"i","headers":{"a b":"c"}}"#,
        r#"{"path":"/","identifier":"i","headers":{"a":"\n"}}"#,
        r#"{"path":"/","identifier":"i","headers":{"a":7}}"#,
        r#"{"path":"/","identifier":"i","claims":{"a":{}}}"#,
        &format!(r#"{{"path":"/","identifier":"i","headers":{{"a":[{}"x"]}}}}"#, r#""x","#.repeat(128)),
        &format!(r#"{{"path":"/","identifier":"i","claims":{{"a":[{}"x"]}}}}"#, r#""x","#.repeat(128)),
    ] {
        assert_eq!(admin(&server, "POST", "/admin/v1/explain", bad).status, 400, "{bad}");
    }
}

#[test]
fn explain_returns_rules_keys_state_and_outcome_and_charges_nothing() {
    let database = Owned::sqlite();
    let server = database.serve(FILE);
    assert_eq!(admin(&server, "POST", "/admin/v1/rules", &rule("other", 1)).status, 201);
    let body = r#"{"resource":"first","identifier":"alice","cost":3}"#;
    assert_eq!(post(server.address("api"), "/v1/check", body).status, 200);
    for _ in 0..2 {
        let explained = admin(&server, "POST", "/admin/v1/explain", body).json();
        assert_eq!(explained["outcome"], "limited", "{explained}");
        assert_eq!(explained["rules"][0]["terms"]["limits"][0]["limit"], 5);
        assert_eq!(explained["rules"][1]["mismatches"][0]["reason"], "resource first does not match other");
        assert_eq!(
            (&explained["decision"]["allowed"], &explained["decision"]["remaining"]),
            (&json!(false), &json!(2))
        );
    }
    let http = r#"{"path":"/a/b","method":"POST","address":"192.0.2.7"}"#;
    assert_eq!(admin(&server, "POST", "/admin/v1/explain", http).json()["request"]["path"], "/a/b");
    for bad in [
        "{}",
        r#"{"resource":"r"}"#,
        r#"{"resource":"r","identifier":"i","costs":1}"#,
        r#"{"resource":"r","path":"/","identifier":"i"}"#,
        r#"{"resource":"","identifier":"i"}"#,
    ] {
        assert_eq!(admin(&server, "POST", "/admin/v1/explain", bad).status, 400, "{bad}");
    }
}
