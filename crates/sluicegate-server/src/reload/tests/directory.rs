//! The directory of `envoyproxy/ratelimit` beside the file, or without one.

use super::*;
use crate::envoy_ratelimit::EnvoyRatelimit;

fn limits(key: &str, requests: u32) -> String {
    format!(
        "domain: d\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: {requests} }} }}]\n"
    )
}

/// A directory with one file, without a watcher.
fn followed(text: &str) -> (TempDir, Work) {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("d.yaml"), text).expect("a file");
    let envoy = EnvoyRatelimit::at(Some(folder.path()), Env::default().variables()).expect("usable");
    let file = ConfigFile { path: None, envoy, flags: Flags::default(), env: Env::default() };
    let (config, reload, Followed { file, seen, outline, .. }) = open(file).expect("a good directory");
    let engine = embedded(EngineOptions { rules: config.rules, reload, ..EngineOptions::default() });
    let (reload, gate, source) = (engine.reload().clone(), Arc::clone(engine.gate()), engine.source().clone());
    (folder, Work { file, reload, gate, source, at_start: outline.clone(), in_force: outline, last: seen })
}

#[test]
fn a_changed_or_added_file_takes_effect_and_a_bad_one_does_not() {
    let (folder, mut work) = followed(&limits("a", 1));
    assert_eq!(rules(&work.gate), ["d.a"]);
    assert!(work.look(false).is_none(), "nothing is new");

    fs::write(folder.path().join("d.yaml"), limits("b", 1)).expect("a file");
    let Some(Outcome::Applied(changes)) = work.look(false) else { panic!("a good change") };
    assert_eq!((changes.rules.added, changes.rules.removed), (vec!["d.b".to_owned()], vec!["d.a".to_owned()]));
    assert_eq!(rules(&work.gate), ["d.b"]);

    fs::write(folder.path().join("d.yaml"), limits("b", 2)).expect("a file");
    let Some(Outcome::Applied(changes)) = work.look(false) else { panic!("a good change") };
    assert_eq!(changes.rules.changed, ["d.b"]);

    let second = folder.path().join("second.yaml");
    fs::write(&second, "domain: d\n").expect("a file");
    let Some(Outcome::Refused(refused)) = work.look(false) else { panic!("a domain of two files") };
    assert!(refused.problems[0].contains("second.yaml:1:9: domain: a second file for this domain"), "{refused:?}");
    assert_eq!(rules(&work.gate), ["d.b"], "what was in force stays in force");

    fs::remove_file(second).expect("a file");
    assert!(matches!(work.look(false), Some(Outcome::Applied(_))));
    fs::remove_file(folder.path().join("d.yaml")).expect("a file");
    let Some(Outcome::Refused(refused)) = work.look(false) else { panic!("an empty directory") };
    assert!(refused.problems[0].contains("holds no configuration"), "{refused:?}");
    assert_eq!(rules(&work.gate), ["d.b"]);
}
