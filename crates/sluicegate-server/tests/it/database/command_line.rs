//! `sluicegate rules import`, `export` and `diff`.

use super::*;

const FULL: &str = r#"
tiers: [pro]
unmatched: deny
tenants: [ { name: "a'; DROP TABLE sluicegate_entries; --" } ]
overrides: [ { name: vip, rule: payments, identifier: "${WHO}-*", limits: unlimited } ]
keys: [ { name: k, sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo } ]
rules: [ { name: payments, limits: [ { algorithm: token_bucket, capacity: 9, refill: 1/h } ], tiers: { pro: unlimited } } ]
"#;

#[test]
fn a_file_goes_to_a_database_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    std::fs::write(path("full.yaml"), FULL.replace("${WHO}", "vip")).expect("a file");
    for database in [Owned::sqlite(), Owned::postgres()] {
        let url = &database.url;
        let (code, text) = run(&["rules", "import", &path("full.yaml"), "--database", url]);
        assert_eq!((code, text.contains("imported, 6 changes, revision 1")), (0, true), "{text}");
        let (code, exported) = run(&["rules", "export", "--database", url]);
        assert_eq!(code, 0, "{exported}");
        std::fs::write(path("exported.json"), &exported).expect("a file");
        let (code, text) = run(&["validate", &path("exported.json")]);
        assert_eq!(code, 0, "{text}");
        let (code, text) = run(&["rules", "diff", &path("exported.json"), "--database", url]);
        assert_eq!((code, text.as_str()), (0, ""));
        let (_, text) = run(&["rules", "import", &path("exported.json"), "--database", url]);
        assert!(text.contains("imported, 0 changes, revision 1"), "{text}");
        let (_, again) = run(&["rules", "export", "--database", url]);
        assert_eq!(exported, again);
        let (_, text) = run(&["rules", "export", "--database", url, "--without-keys"]);
        assert!(!text.contains("c48a01f4") && text.contains("payments"), "{text}");
    }
}

#[test]
fn diff_lists_the_changes_of_an_import_and_changes_nothing() {
    let database = Owned::sqlite();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f.yaml");
    let file = file.to_str().expect("text");
    std::fs::write(file, "rules: [{ name: a, limits: unlimited }, { name: b, limits: unlimited }]")
        .expect("a file");
    assert_eq!(run(&["rules", "import", file, "--database", &database.url]).0, 0);
    std::fs::write(file, "tenants: [{ name: <t> }]\nrules: [{ name: a, limits: unlimited, cost: 2 }]")
        .expect("a file");
    let expected = "+ tenant \"<t>\"\n~ rule a\n  - {\"limits\":\"unlimited\",\"name\":\"a\"}\n  + \
                    {\"cost\":2,\"limits\":\"unlimited\",\"name\":\"a\"}\n- rule b\n";
    for _ in 0..2 {
        let (code, text) = run(&["rules", "diff", file, "--database", &database.url]);
        assert_eq!((code, text.as_str()), (1, expected));
    }
}

#[test]
fn errors_are_named_with_a_remedy() {
    let database = Owned::sqlite();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f.yaml");
    let file = file.to_str().expect("text");
    std::fs::write(file, "rules: [{ name: a, limits: 5 }]").expect("a file");
    let cases: [(&[&str], &str); 5] = [
        (&["rules", "import", file, "--database", &database.url], "f.yaml:1:28: rules[0].limits: not a list"),
        (&["rules", "import", file], "give --database, or set SLUICEGATE_DATABASE"),
        (&["rules", "export", "--database", "mysql://u:canary@h/d"], "write sqlite://PATH or postgres://"),
        (&["rules", "export", "--database", "postgres://u:canary@127.0.0.1:1/d"], "see whether it is up"),
        (&["rules", "diff", "nowhere.yaml", "--database", &database.url], "cannot read the configuration file"),
    ];
    for (arguments, expected) in cases {
        let arguments: Vec<&str> = arguments.to_vec();
        if arguments == ["rules", "import", file] {
            std::fs::write(file, FILE).expect("a file");
        }
        let (code, text) = run(&arguments);
        assert_eq!(code, 1, "{arguments:?}: {text}");
        assert!(text.contains(expected) && !text.contains("canary"), "{arguments:?}: {text}");
    }
}
