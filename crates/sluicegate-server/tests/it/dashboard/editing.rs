//! Rules are edited in the browser, and the server decides by them.

use tempfile::TempDir;

use super::*;
use crate::client::{Answer, Connection, post};

const TOKEN: &str = "dashboard-token-of-tests";
const CONFIG: &str = "
admin: { tokens: [ { name: onlooker, role: read, env: ONLOOKER } ] }
rules:
  - { name: first, deadline: 5s, limits: [ { algorithm: fixed_window, limit: 5, window: 365d } ] }
";

/// A server with its rules in a database.
struct Owned {
    server: Server,
    _folder: TempDir,
}

fn with_database() -> Owned {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("sluicegate.yaml");
    std::fs::write(&file, CONFIG).expect("a file");
    let database = format!("sqlite://{}", folder.path().join("rules.db").display());
    let variables = [
        ("SLUICEGATE_DATABASE", &*database),
        ("SLUICEGATE_ADMIN_TOKEN", TOKEN),
        ("ONLOOKER", "onlooker-token-of-tests"),
    ];
    let server = Server::start_with(&variables, &["--config", file.to_str().expect("text"), "--store", "memory"]);
    Owned { server, _folder: folder }
}

/// Changes a rule through the API while the browser shows it.
fn change(server: &Server, name: &str, body: &str) -> Answer {
    let mut connection = Connection::open(server.address("admin"));
    connection.send(format!(
        "PUT /admin/v1/rules/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    connection.answer()
}

/// The limit that applies to a request.
fn limit(server: &Server) -> Value {
    post(server.address("api"), "/v1/peek", r#"{"resource":"r","identifier":"somebody"}"#).json()["limit"].clone()
}

/// Replaces the whole text, as a user does after "select all".
fn write(page: &mut Page<'_>, text: &str) {
    page.wait_for("document.querySelector('#rule-text')?.value.includes('limits')");
    page.evaluate("document.querySelector('#rule-text').focus(); document.querySelector('#rule-text').select()");
    page.type_text(text);
}

fn give_token(page: &mut Page<'_>, token: &str) {
    page.wait_for("document.activeElement?.id === 'admin-token'");
    page.type_text(token);
    page.press("Enter");
}

fn rule(name: &str, limit: u32) -> String {
    format!(
        "{{\n  \"name\": \"{name}\",\n  \"limits\": [{{ \"algorithm\": \"fixed_window\", \"limit\": {limit}, \"window\": \"365d\" }}]\n}}"
    )
}

#[test]
fn a_rule_is_made_changed_and_deleted_and_the_server_decides_by_it() {
    let Owned { server, _folder } = with_database();
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/rules");
    page.click("a[href='#/new']");
    // The proposed rule is in shadow mode, so it denies no request by accident.
    page.wait_for("document.querySelector('#rule-text')?.value.includes('\"mode\": \"shadow\"')");
    page.keep_picture(&picture("new"));
    write(&mut page, &rule("second", 3));
    page.click("button.main");
    says(&mut page, "dialog", "Changes need the admin token");
    give_token(&mut page, "not the token");
    says(&mut page, "dialog", "rejects this token");
    page.keep_picture(&picture("wrong-token"));
    give_token(&mut page, TOKEN);
    says(&mut page, "main", "Created, and in force on this server.");
    assert_eq!(limit(&server), json!(3));
    assert_eq!(page.evaluate("location.hash"), json!("#/rules/second"));
    assert_eq!(page.evaluate("document.cookie + JSON.stringify(localStorage)"), json!("{}"));
    // The token is known now, and the rule's page links back to the editor.
    says(&mut page, "main pre", "\"limit\": 3");
    page.keep_picture(&picture("rule-with-text"));
    page.click("a[href='#/edit/second']");
    write(&mut page, &rule("second", 2));
    page.keep_picture(&picture("edit"));
    page.click("button.main");
    says(&mut page, "main", "Saved, and in force on this server.");
    assert_eq!(limit(&server), json!(2));
    page.click("a[href='#/edit/second']");
    page.wait_for("document.querySelector('#rule-text')?.value.includes('limits')");
    page.click("button.danger");
    says(&mut page, "dialog", "Delete second?");
    page.keep_picture(&picture("delete"));
    page.press("Escape");
    page.wait_for("!document.querySelector('dialog')");
    assert_eq!(limit(&server), json!(2));
    page.click("main button.danger");
    page.click("dialog button.danger");
    says(&mut page, "main", "second is deleted.");
    assert_eq!(limit(&server), json!(5));
    assert!(page.requests().iter().all(|url| !url.contains("token")), "no token in an address");
    is_clean_but(&mut page, &[401]);
}

#[test]
fn a_concurrent_change_is_reported_and_not_overwritten() {
    let Owned { server, _folder } = with_database();
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/edit/first");
    write(&mut page, &rule("first", 7));
    assert_eq!(change(&server, "first", &rule("first", 8)).status, 200);
    page.click("button.main");
    give_token(&mut page, TOKEN);
    says(&mut page, "#rule-messages", "This rule was changed since you opened it");
    says(&mut page, "#rule-messages pre", "\"limit\": 8");
    page.keep_picture(&picture("conflict"));
    assert_eq!(limit(&server), json!(8));
    // The user's own version is still there, and may be saved after the conflict has been shown.
    let texts = "[...document.querySelectorAll('#rule-messages button')].map((button) => button.textContent)";
    assert_eq!(page.evaluate(texts), json!(["Use the saved version", "Keep my version and overwrite"]));
    page.evaluate("[...document.querySelectorAll('#rule-messages button')].at(-1).click()");
    page.click("button.main");
    says(&mut page, "main", "Saved, and in force");
    assert_eq!(limit(&server), json!(7));
    is_clean_but(&mut page, &[412]);
}

#[test]
fn errors_are_shown_at_their_line_and_the_text_is_kept() {
    let Owned { server, _folder } = with_database();
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/edit/first");
    let cases = [
        (
            "{\n  \"limits\": [\n    { \"algorithm\": \"fixed_window\" \"limit\": 1 }\n  ]\n}",
            3,
            "a comma or } is missing",
        ),
        ("{\n  \"limits\": [],\n  \"limits\": []\n}", 3, "stands twice"),
        (
            "{\n  \"limits\": [\n    {\n      \"algorithm\": \"token_bucket\",\n      \"capacity\": 1,\n      \"refill\": \"1/m\"\n    }\n  ]\n}",
            6,
            "refill",
        ),
        ("{\n  \"limits\": \"unlimited\",\n  \"mood\": \"good\"\n}", 3, "mood"),
        // A member is missing: the message refers to the object without it.
        ("{\n  \"limits\": [\n    { \"algorithm\": \"fixed_window\", \"limit\": 1 }\n  ]\n}", 3, "window"),
    ];
    for (index, (text, line, words)) in cases.into_iter().enumerate() {
        write(&mut page, text);
        page.click("button.main");
        if index == 2 {
            // The first version that the page sends to the server.
            give_token(&mut page, TOKEN);
        }
        says(&mut page, "#rule-messages li", words);
        says(&mut page, "#rule-messages li", &format!("line {line}"));
        let marked = "[...document.querySelectorAll('.numbers .bad')].map((line) => line.textContent)";
        assert_eq!(page.evaluate(marked), json!([line.to_string()]), "{text}");
        let chosen = "(({ value, selectionStart, selectionEnd }) => value.slice(selectionStart, selectionEnd))(document.activeElement)";
        assert_eq!(page.evaluate(chosen), json!(text.lines().nth(line - 1)), "{text}");
    }
    page.keep_picture(&picture("problem"));
    page.look(PHONE);
    page.keep_picture(&picture("problem-narrow"));
    let overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(overflow, json!(0));
    // The text survives a visit to another page.
    page.evaluate("location.hash = '#/'");
    says(&mut page, "main", "Decisions per second");
    page.evaluate("location.hash = '#/edit/first'");
    says(&mut page, "#rule-messages", "not saved yet");
    assert_eq!(page.evaluate("document.querySelector('#rule-text').value"), json!(cases[4].0));
    assert_eq!(limit(&server), json!(5));
    is_clean_but(&mut page, &[400]);
}

#[test]
fn a_read_only_token_is_reported_and_can_be_replaced() {
    let Owned { server, _folder } = with_database();
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/edit/first");
    write(&mut page, &rule("first", 7));
    page.click("button.main");
    give_token(&mut page, "onlooker-token-of-tests");
    says(&mut page, "#rule-messages", "has the role read; this needs the role admin");
    assert_eq!(limit(&server), json!(5));
    page.click("#rule-messages button");
    give_token(&mut page, TOKEN);
    says(&mut page, "main", "Saved, and in force");
    assert_eq!(limit(&server), json!(7));
    page.click("#forget");
    page.wait_for("document.querySelector('#forget').hidden && sessionStorage.length === 0");
    is_clean_but(&mut page, &[403]);
}

#[test]
fn without_a_database_the_page_shows_the_remedy() {
    let (server, _config) = start("dashboard-file", "memory");
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/rules");
    says(&mut page, "main", "give the server a database");
    assert_eq!(page.evaluate("document.querySelectorAll('a[href=\"#/new\"]').length"), json!(0));
    page.evaluate("location.hash = '#/rules/burst'");
    says(&mut page, "main pre", "\"capacity\": 5");
    assert_eq!(
        page.evaluate("document.querySelector('a[href=\"#/edit/burst\"]').checkVisibility()"),
        json!(false)
    );
    is_clean(&mut page, &server);
}

#[test]
fn a_rule_that_is_not_among_the_busiest_is_found_by_its_name() {
    let limits = "limits: [ { algorithm: fixed_window, limit: 5, window: 365d } ]";
    let rules: String = (0..60).map(|number| format!("  - {{ name: rule-{number}, {limits} }}\n")).collect();
    let config = ConfigFile::new("dashboard-many", format!("rules:\n{rules}"));
    let server = Server::start(&["--config", config.path(), "--store", "memory"]);
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/rules");
    says(&mut page, "main", "The busiest 50 of 60 rules.");
    let shown = "[...document.querySelectorAll('main td a')].map((link) => link.textContent)";
    let last = "Array.from({ length: 60 }, (_, number) => `rule-${number}`)";
    let hidden = page.evaluate(&format!("{last}.find((name) => !{shown}.includes(name))"));
    let hidden = hidden.as_str().expect("one of the ten").to_owned();
    page.evaluate("document.querySelector('#rule-name').focus()");
    page.type_text(&hidden);
    page.press("Enter");
    says(&mut page, "main pre", &format!("\"name\": \"{hidden}\""));
    says(&mut page, "main", "not among the busiest");
    is_clean(&mut page, &server);
}

#[test]
fn from_another_machine_the_page_requires_a_token() {
    let Owned { server, _folder } = with_database();
    let mut browser = Browser::start();
    let mut page = browser.page();
    page.look(WIDE);
    // A host name with a dot may belong to another site, so its requests count as remote.
    let port = server.address("admin").port();
    page.open(&format!("http://dashboard.localhost:{port}/"));
    for token in ["not the token", "onlooker-token-of-tests"] {
        page.wait_for("document.activeElement?.id === 'token' && document.activeElement.value === ''");
        says(&mut page, "#connection", "Admin token required");
        // The page does not store a wrong token either.
        assert_eq!(page.evaluate("sessionStorage.length"), json!(0));
        page.keep_picture(&picture("token"));
        page.type_text(token);
        page.press("Enter");
    }
    page.wait_for("document.querySelector('#connection').textContent === 'Live'");
    says(&mut page, "main", "first");
    assert_eq!(page.evaluate("document.querySelector('#forget').checkVisibility()"), json!(true));
    is_clean_but(&mut page, &[401]);
}
