//! `sluicegate explain` end to end: output and exit codes.

use serde_json::Value;

use crate::server::{ConfigFile, sluicegate};

const RULES: &str = "
unmatched: deny
rules:
  - name: search
    match: { resource: 'search.*' }
    limits: [ { algorithm: token_bucket, capacity: 100, refill: 200/s } ]
    lease: { ttl: 100ms, mode: bounded }
";

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = sluicegate(&[&["explain"], arguments].concat());
    command.envs(variables.iter().copied());
    let output = command.output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn explain_contacts_no_store_and_its_exit_code_is_the_outcome() {
    let file = ConfigFile::new("explain", RULES);
    // No server listens on this port, and `explain` does not connect.
    let store = "redis://127.0.0.1:1";
    let common = ["--config", file.path(), "--identifier", "alice", "--instances", "2", "--resource"];
    let (code, stdout, stderr) = run(&[&common[..], &["search.web", "--store", store]].concat(), &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("limited: 1 of 1 rules match\n"), "{stdout}");
    assert!(
        stdout.contains("in any time d at most 100 + 200/s·d + 20; other servers may hold 12 unused"),
        "{stdout}"
    );

    let variables = [("SLUICEGATE_STORE", store)];
    let (code, stdout, stderr) = run(&[&common[..], &["search.web", "--json"]].concat(), &variables);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&report["store"], &report["instances"]), (&Value::from("redis"), &Value::from(2)));
    assert_eq!(report["rules"][0]["terms"]["limits"][0]["bound"]["stranded"], 12);

    let (code, stdout, stderr) = run(&[&common[..], &["read"]].concat(), &[]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert!(stdout.starts_with("denied: no rule matches, and unmatched is deny\n"), "{stdout}");
    assert!(stdout.ends_with("search  does not match\n  resource read does not match search.*\n"), "{stdout}");
}

#[test]
fn host_header_fields_and_claims_come_from_the_arguments() {
    let rules = "
rules:
  - { name: by-host, match: { host: shop.example.com }, limits: unlimited }
  - { name: by-header, match: { header: { X-Plan: gold } }, limits: unlimited }
  - { name: by-claim, match: { claim: { groups: staff } }, limits: unlimited }
";
    let file = ConfigFile::new("explain-fields", rules);
    let common = ["--config", file.path(), "--path", "/api", "--identifier", "alice", "--json"];
    let matching = |more: &[&str]| -> Vec<Value> {
        let (code, stdout, stderr) = run(&[&common[..], more].concat(), &[]);
        assert_eq!((code, stderr.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&stdout).expect("JSON");
        let rules = report["rules"].as_array().expect("rules").iter();
        rules.filter(|rule| rule["matches"] == true).map(|rule| rule["name"].clone()).collect()
    };
    assert_eq!(matching(&["--host", "Shop.example.com:443"]), ["by-host"]);
    assert_eq!(matching(&["--header", "Host: shop.example.com"]), ["by-host"]);
    assert_eq!(matching(&["--header", "x-plan: gold"]), ["by-header"]);
    assert_eq!(matching(&["--claim", "groups=x", "--claim", "groups=staff"]), ["by-claim"]);
    for wrong in [&["--claim", "groups"][..], &["--claim", "groups=staff", "--resource", "r"]] {
        let who = ["--config", file.path(), "--identifier", "alice"];
        assert_eq!(run(&[&who[..], wrong].concat(), &[]).0, 2, "{wrong:?}");
    }
}

#[test]
fn without_a_file_it_explains_the_demo() {
    let (code, stdout, _) = run(&["--resource", "demo", "--identifier", "alice"], &[]);
    assert_eq!(code, 0);
    assert!(stdout.contains("\ndemo  matches\n"), "{stdout}");
}

#[test]
fn errors_exit_with_2_and_print_nothing_to_stdout() {
    let (good, bad) = (ConfigFile::new("explain-good", RULES), ConfigFile::new("explain-bad", "rules: 7\n"));
    let who = ["--resource", "search.web", "--identifier", "alice"];
    for (arguments, expected) in [
        (&["--config", bad.path()][..], "rules: "),
        (&["--config", "no-such-file.yaml"], "cannot read the configuration file"),
        (&["--config", good.path(), "--tier", "gold"], "`tier` is \"gold\": no tiers are configured"),
        (&["--config", good.path(), "--store", "mysql://x"], "--store: "),
        (&["--config", good.path(), "--instances", "0"], "--instances"),
        (&["--config", good.path(), "--method", "GET"], "also give its --path"),
    ] {
        let (code, stdout, stderr) = run(&[&who, arguments].concat(), &[]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    assert_eq!(run(&["--resource", "r"], &[]).0, 2, "there is no identifier");
}
