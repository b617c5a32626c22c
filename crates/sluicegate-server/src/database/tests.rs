//! Both databases store content completely and in order, and serialise changes.

use serde_json::json;
use sluicegate::rules::file::Environment;
use sluicegate_testkit::postgres_server::PostgresServer;

use super::*;
use crate::config::Config;
use crate::rule_documents::{Keys, Kind};

/// A database with the resources that it needs.
struct Owned {
    database: Database,
    url: DatabaseUrl,
    _folder: Option<tempfile::TempDir>,
    _server: Option<PostgresServer>,
}

async fn both() -> [Owned; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("rules.db").display());
    let url = DatabaseUrl::parse(&url).expect("a URL");
    let sqlite = Database::open(&url).await.expect("a new file");
    let sqlite = Owned { database: sqlite, url, _folder: Some(folder), _server: None };
    let server = PostgresServer::start();
    let url = DatabaseUrl::parse(&server.url()).expect("a URL");
    let postgres = Database::open(&url).await.expect("a new database");
    [sqlite, Owned { database: postgres, url, _folder: None, _server: Some(server) }]
}

fn wanted() -> RuleDocuments {
    let text = r#"{ tiers: [pro], tenants: [ { name: "'; DROP TABLE sluicegate_entries; --<b>\"" } ],
        rules: [ { name: b, limits: unlimited }, { name: a, limits: unlimited, tiers: { pro: unlimited } } ],
        overrides: [ { name: "Ω<script>", rule: a, identifier: "x'*", limits: unlimited } ],
        keys: [ { name: k, identifier: i, sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c } ] }"#;
    Config::parse(text, "t.yaml", &Environment::new()).expect("good").content
}

fn rule(name: &str, cost: u32) -> serde_json::Value {
    json!({ "name": name, "limits": "unlimited", "cost": cost })
}

async fn set(database: &Database, name: &str, cost: u32) -> Result<Committed, DatabaseError> {
    let edit = |content: &mut RuleDocuments| {
        Ok(content.set(Kind::Rule, name, Some(&rule(name, cost))).into_iter().collect())
    };
    database.change("test", 1_000, edit).await
}

#[tokio::test]
async fn imported_content_is_stored_in_order() {
    for Owned { database, url, .. } in &both().await {
        assert_eq!(database.revision().await.expect("a revision"), 0, "{url}");
        let import = |content: &mut RuleDocuments| Ok(content.take_over(&wanted(), |_| true));
        let committed = database.change("somebody", 7, import).await.expect("good");
        assert_eq!((committed.content.revision, committed.changed.len()), (1, 6), "{url}");
        let other = Database::open(url).await.expect("it is there");
        let content = other.content().await.expect("readable");
        assert_eq!(content.file(Keys::Included), wanted().file(Keys::Included), "{url}");
        assert_eq!(content.revision, 1);
        // The same content again is not a change.
        let again = other.change("somebody", 8, |content| Ok(content.take_over(&wanted(), |_| true))).await;
        assert_eq!(again.expect("good").content.revision, 1);
        let audit = other.audit(100, None).await.expect("readable");
        assert_eq!(audit.len(), 6, "{url}");
        assert!(audit.iter().all(|entry| entry.actor == "somebody" && entry.at == 7 && entry.action == "create"));
        assert_eq!(other.audit(2, None).await.expect("readable").len(), 2);
        let before = |revision, number| Some(AuditPlace { revision, number });
        assert!(other.audit(2, before(1, 0)).await.expect("readable").is_empty());
        // The pages contain every entry once, also of a single change.
        let (mut pages, mut place) = (Vec::new(), None);
        while let page = other.audit(4, place).await.expect("readable")
            && let Some(last) = page.last()
        {
            place = Some(last.place);
            pages.extend(page);
        }
        assert_eq!(pages, audit, "{url}");
    }
}

#[tokio::test]
async fn a_change_that_cannot_be_used_changes_nothing() {
    for Owned { database, url, .. } in &both().await {
        set(database, "a", 1).await.expect("good");
        let bad = json!({ "name": "b", "limits": [{ "algorithm": "token_bucket" }] });
        let edit = |content: &mut RuleDocuments| {
            let good = content.set(Kind::Rule, "a", None);
            Ok(good.into_iter().chain(content.set(Kind::Rule, "b", Some(&bad))).collect())
        };
        let refused = database.change("test", 1, edit).await.expect_err("bad");
        assert!(matches!(refused, DatabaseError::Refused(ChangeError::Invalid(_))), "{url}: {refused}");
        let content = database.content().await.expect("readable");
        assert_eq!((content.revision, content.entries.len()), (1, 1), "{url}");
        assert_eq!(database.audit(10, None).await.expect("readable").len(), 1);
    }
}

#[tokio::test]
async fn of_changes_at_once_none_is_lost() {
    for Owned { database, url, .. } in &both().await {
        set(database, "counter", 0).await.expect("good");
        let raise = |database: Database| async move {
            let edit = |content: &mut RuleDocuments| {
                let entry = content.get(Kind::Rule, "counter").expect("it is there").value();
                let cost = entry["cost"].as_u64().expect("a number") as u32;
                Ok(content.set(Kind::Rule, "counter", Some(&rule("counter", cost + 1))).into_iter().collect())
            };
            database.change("test", 1, edit).await
        };
        let other = Database::open(url).await.expect("it is there");
        let tasks = (0..20)
            .map(|index| tokio::spawn(raise(if index % 2 == 0 { database.clone() } else { other.clone() })));
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic").unwrap_or_else(|error| panic!("{url}: {error}"));
        }
        let content = database.content().await.expect("readable");
        assert_eq!(content.get(Kind::Rule, "counter").expect("a rule").value()["cost"], 20, "{url}");
        assert_eq!(content.revision, 21);
    }
}

/// Without retries, one in eighty servers that started together on a new file failed because it was locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn servers_that_start_at_once_make_the_tables_once() {
    let server = PostgresServer::start();
    start_at_once(&server.url()).await;
    for _ in 0..100 {
        let folder = tempfile::tempdir().expect("a folder");
        start_at_once(&format!("sqlite://{}", folder.path().join("rules.db").display())).await;
    }
}

async fn start_at_once(url: &str) {
    let url = DatabaseUrl::parse(url).expect("a URL");
    let open = |url: DatabaseUrl| async move { Database::open(&url).await };
    let tasks: Vec<_> = (0..4).map(|_| tokio::spawn(open(url.clone()))).collect();
    for task in tasks {
        let database = task.await.expect("no panic").unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(database.revision().await.expect("a revision"), 0);
    }
}

#[tokio::test]
async fn readers_of_a_file_do_not_wait_for_its_writer() {
    let [Owned { database, url, .. }, _] = &both().await;
    let other = Database::open(url).await.expect("it is there");
    let _writer = Rows::begin_to_write(database).await.expect("nobody else writes");
    let content = other.content().await.expect("readable while somebody writes");
    assert_eq!(content.revision, 0);
    let Database::Sqlite(pool) = other else { panic!("the first is SQLite") };
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&pool).await.expect("told");
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_database_of_a_newer_server_is_refused() {
    for Owned { database, url, .. } in &both().await {
        let newer = "INSERT INTO sluicegate_migrations (version, description, success, checksum, execution_time) \
                     VALUES (999, 'later', TRUE, $1, 1)";
        match database {
            Database::Sqlite(pool) => _ = sqlx::query(newer).bind(&b"x"[..]).execute(pool).await.expect("written"),
            Database::Postgres(pool) => {
                _ = sqlx::query(newer).bind(&b"x"[..]).execute(pool).await.expect("written")
            }
        }
        let refused = Database::open(url).await.expect_err("newer");
        assert!(matches!(refused, DatabaseError::Newer), "{url}: {refused}");
    }
}

#[tokio::test]
async fn an_unreachable_database_is_reported_without_its_password() {
    for url in ["postgres://user:canary@127.0.0.1:1/d", "sqlite:///no/such/folder/rules.db"] {
        let refused = Database::open(&DatabaseUrl::parse(url).expect("a URL")).await.expect_err("nobody there");
        assert!(refused.to_string().contains("see whether it is up"), "{refused}");
        assert!(!format!("{refused:?}").contains("canary"));
    }
}

#[tokio::test]
async fn the_files_of_a_database_are_private_for_any_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.db");
    let url = DatabaseUrl::parse(&format!("sqlite://{}", path.display())).expect("a URL");
    let database = Database::open(&url).await.expect("a new file");
    set(&database, "a", 1).await.expect("good");
    let mode = |file: &Path| file.metadata().expect("it is there").permissions().mode() & 0o777;
    let files =
        || std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    assert_eq!(files().count(), 3, "the database and its journals");
    for file in files() {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert!(file::loose(&path).is_empty());
    // The mode of an existing file is kept, and reported.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("changed");
    file::prepare(&path);
    assert_eq!(file::loose(&path), [(path.clone(), 0o640)]);
}
