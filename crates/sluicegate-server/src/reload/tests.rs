//! The reloader with a real file and a real engine, with and without requests, and the directory watch by itself.

mod directory;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use tempfile::TempDir;

use super::*;
use crate::engine::{Engine, EngineOptions};
use crate::settings::{Env, Flags};
use crate::testing::embedded;

/// The timeout of a test, far above any passing time.
const PATIENCE: Duration = Duration::from_secs(30);

fn file(rule: &str) -> String {
    format!("rules: [{{ name: {rule}, limits: [{{ algorithm: fixed_window, limit: 1, window: 1h }}] }}]\n")
}

/// A file in its own directory, without a watcher.
struct Alone {
    path: PathBuf,
    work: Work,
    _directory: TempDir,
}

impl Alone {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sluicegate.yaml");
        fs::write(&path, text).expect("a file");
        let (engine, Followed { file, seen, outline, .. }) = opened(&path);
        let (reload, gate, source) = (engine.reload().clone(), Arc::clone(engine.gate()), engine.source().clone());
        let work = Work { file, reload, gate, source, at_start: outline.clone(), in_force: outline, last: seen };
        Self { path, work, _directory: directory }
    }

    /// Checks once, after this was written.
    fn look(&mut self, text: &str) -> Option<Outcome> {
        fs::write(&self.path, text).expect("a file");
        self.work.look(false)
    }

    fn applied(&mut self, text: &str) -> Changes {
        match self.look(text) {
            Some(Outcome::Applied(changes)) => changes,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, text: &str) -> Refused {
        match self.look(text) {
            Some(Outcome::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        }
    }

    fn status(&self) -> Status {
        self.work.reload.status()
    }
}

/// An engine with this file.
fn opened(path: &Path) -> (Engine, Followed) {
    let file =
        ConfigFile { path: Some(path.to_owned()), envoy: None, flags: Flags::default(), env: Env::default() };
    let (config, reload, followed) = open(file).expect("a good file");
    (embedded(EngineOptions { rules: config.rules, reload, ..EngineOptions::default() }), followed)
}

fn rules(gate: &ServerGate) -> Vec<String> {
    gate.limiter().rules().rules().iter().map(|rule| rule.space.name().to_owned()).collect()
}

#[test]
fn a_valid_file_takes_effect_and_its_differences_are_reported() {
    let mut alone = Alone::new(&file("old"));
    let text = format!("unmatched: deny\nlisten: {{ api: 127.0.0.1:9 }}\n{}", file("new"));
    let changes = alone.applied(&text);
    assert_eq!(
        (&*changes.rules.added, &*changes.rules.removed),
        (&["new".to_owned()][..], &["old".to_owned()][..])
    );
    assert_eq!(changes.keys, ["unmatched"]);
    assert_eq!(changes.needs_restart, ["listen.api"]);
    assert_eq!(rules(&alone.work.gate), ["new"]);
    assert!(alone.status().successful && alone.status().problems.is_empty());
    // A key that needs a restart is reported until the restart.
    let changes = alone.applied(&format!("{text}# A comment.\n"));
    assert!(changes.rules == outline::RuleChanges::default() && changes.keys.is_empty());
    assert_eq!(changes.needs_restart, ["listen.api"]);
    assert_eq!(alone.status().needs_restart, ["listen.api"]);
}

#[test]
fn unchanged_content_is_checked_again_only_on_request() {
    let mut alone = Alone::new(&file("old"));
    assert_eq!(alone.look(&file("old")), None);
    assert!(alone.look("").is_some());
    assert_eq!(alone.look(""), None);
    assert!(matches!(alone.work.look(true), Some(Outcome::Refused(_))));
    assert!(alone.look(&file("old")).is_some());
    assert!(alone.status().successful);
}

#[test]
fn an_invalid_file_changes_nothing_and_every_error_is_reported() {
    let mut alone = Alone::new(&file("old"));
    let started = alone.status();
    for (text, problems) in [
        ("rules: [{ name: new, limits: [] }]\nunmatched: maybe\n", 2),
        ("", 1),
        ("rules: [", 1),
        ("\u{0}\u{1}", 1),
        // A version with which a restart would fail is invalid as well.
        ("listen: { gateway: 'off', api: 'off', admin: 'off', resp: 'off' }\nrules: []\n", 1),
    ] {
        assert_eq!(alone.refused(text).problems.len(), problems, "{text:?}");
        assert_eq!(rules(&alone.work.gate), ["old"]);
        let status = alone.status();
        assert!(!status.successful);
        assert_eq!((status.problems.len(), status.succeeded_at), (problems, started.succeeded_at));
    }
    fs::remove_file(&alone.path).expect("it was there");
    let Some(Outcome::Refused(Refused { problems, .. })) = alone.work.look(false) else {
        panic!("it is not there")
    };
    assert!(problems[0].starts_with("cannot read the configuration file"), "{problems:?}");
    assert_eq!(alone.applied(&file("new")).rules.added, ["new"]);
    assert!(alone.status().successful);
    assert_eq!(rules(&alone.work.gate), ["new"]);
}

#[test]
fn the_number_of_reported_errors_is_bounded() {
    let many: String = (0..150).map(|index| format!("wrong{index}: 1\n")).collect();
    let mut alone = Alone::new(&file("old"));
    let refused = alone.refused(&format!("{many}rules: []\n"));
    assert_eq!((refused.problems.len(), refused.left_out), (100, 50));
    assert_eq!(alone.status().problems.len(), 101);
}

/// A file with a running reloader.
struct Fixture {
    path: PathBuf,
    engine: Engine,
    reloader: Reloader,
    _directory: TempDir,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sluicegate.yaml");
        fs::write(&path, text).expect("a file");
        Self::following(directory, path)
    }

    fn following(directory: TempDir, path: PathBuf) -> Self {
        let (engine, followed) = opened(&path);
        let reloader =
            Reloader::start(followed, engine.reload().clone(), Arc::clone(engine.gate()), engine.source().clone())
                .expect("a thread");
        Self { path, engine, reloader, _directory: directory }
    }

    /// Waits until these rules are in force, without a request.
    async fn until_rules_are(&self, names: &[&str]) {
        let reached = async {
            while rules(self.engine.gate()) != names {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("the change is seen");
    }
}

#[tokio::test]
async fn changes_take_effect_without_a_request() {
    let fixture = Fixture::new(&file("one"));
    fs::write(&fixture.path, file("two")).expect("a file");
    fixture.until_rules_are(&["two"]).await;
    let aside = fixture.path.with_extension("new");
    fs::write(&aside, file("three")).expect("a file");
    fs::rename(&aside, &fixture.path).expect("the same directory");
    fixture.until_rules_are(&["three"]).await;
}

#[tokio::test]
async fn a_link_into_a_directory_that_is_not_watched_is_followed() {
    let (directory, elsewhere) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (path, target) = (directory.path().join("link.yaml"), elsewhere.path().join("target.yaml"));
    fs::write(&target, file("one")).expect("a file");
    symlink(&target, &path).expect("a link");
    let fixture = Fixture::following(directory, path);
    fs::write(&target, file("two")).expect("a file");
    fixture.until_rules_are(&["two"]).await;
}

#[tokio::test]
async fn one_reload_answers_all_waiting_requests() {
    let fixture = Fixture::new(&file("one"));
    let all = futures_util::future::join_all((0..WAITING_MAX).map(|_| fixture.engine.reload().now())).await;
    assert!(
        all.iter().all(|each| matches!(each, Ok(Outcome::Applied(changes)) if *changes == Changes::default()))
    );
    assert_eq!(Reload::default().now().await, Err(NoReload::NoFile));
}

#[test]
fn dropping_the_reloader_ends_its_thread() {
    let Fixture { engine, reloader, .. } = Fixture::new(&file("one"));
    drop(reloader);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert_eq!(runtime.block_on(engine.reload().now()), Err(NoReload::NotNow));
}

#[test]
fn an_edit_a_rename_and_a_swapped_link_wake() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    for version in ["v1", "v2"] {
        fs::create_dir(at(version)).expect("a directory");
        fs::write(at(version).join("sluicegate.yaml"), version).expect("a file");
    }
    // The layout in which the kubelet mounts a ConfigMap.
    symlink("v1", at("..data")).expect("a link");
    symlink("..data/sluicegate.yaml", at("sluicegate.yaml")).expect("a link");
    fs::write(at("plain.yaml"), "1").expect("a file");
    symlink("v2", at("..data_tmp")).expect("a link");

    let changes: [(&str, &dyn Fn()); 3] = [
        ("swap", &|| fs::rename(at("..data_tmp"), at("..data")).expect("the same directory")),
        ("edit", &|| fs::write(at("plain.yaml"), "2").expect("a file")),
        ("rename", &|| fs::rename(at("plain.yaml"), at("other.yaml")).expect("the same directory")),
    ];
    for (name, change) in changes {
        let (wake, wakings) = mpsc::channel();
        let _watch = DirectoryWatch::start(&at("sluicegate.yaml"), move || _ = wake.send(())).expect("inotify");
        change();
        wakings.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(fs::read_to_string(at("sluicegate.yaml")).expect("it is there"), "v2");
}
