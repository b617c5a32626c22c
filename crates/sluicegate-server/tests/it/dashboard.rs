//! The dashboard in a real browser: it loads without errors and without other origins, its numbers are live, rules can
//! be changed and requests explained, it works by keyboard, and names of clients stay text.

mod editing;
mod explaining;
mod hostile;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluicegate_testkit::browser::{Browser, Looks, Page};
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{Session, send};
use crate::server::{ConfigFile, Server};

const RULES: &str = "
rules:
  - { name: burst, deadline: 5s, limits: [ { algorithm: token_bucket, capacity: 5, refill: 5/h } ] }
  - { name: daily, deadline: 5s, mode: shadow, limits: [ { algorithm: fixed_window, limit: 3, window: 365d } ] }
";

const WIDE: Looks = Looks { width: 1280, height: 900, is_dark: false };
const PHONE: Looks = Looks { width: 360, height: 740, is_dark: false };

/// The path of a screenshot that stays after the test, for manual inspection.
fn picture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard").join(format!("{name}.png"))
}

fn start(test: &str, store: &str) -> (Server, ConfigFile) {
    let config = ConfigFile::new(test, RULES);
    let server = Server::start(&["--config", config.path(), "--store", store]);
    (server, config)
}

fn open(page: &mut Page<'_>, server: &Server, place: &str) {
    page.look(WIDE);
    page.open(&format!("http://{}/{place}", server.address("admin")));
    page.wait_for("document.querySelector('#connection').textContent === 'Live'");
}

fn check(api: SocketAddr, tenant: &str, identifier: &str) {
    let body = json!({"resource": "r", "tenant": tenant, "identifier": identifier}).to_string();
    let answer = Session::open(api).post("/v1/check", &body);
    assert!(matches!(answer.status, 200 | 429), "{}", answer.body);
}

/// The page had no errors, and it sent requests only to its own server.
fn is_clean(page: &mut Page<'_>, server: &Server) {
    assert_eq!(page.complaints(), Vec::<String>::new());
    let own = format!("http://{}/", server.address("admin"));
    let foreign: Vec<String> = page.requests().into_iter().filter(|url| !url.starts_with(&own)).collect();
    assert_eq!(foreign, Vec::<String>::new());
}

/// The page had no errors except responses with one of these statuses, which the browser logs as errors.
fn is_clean_but(page: &mut Page<'_>, statuses: &[u16]) {
    let told =
        |complaint: &String| statuses.iter().any(|status| complaint.contains(&format!("status of {status} ")));
    let complaints: Vec<String> = page.complaints().into_iter().filter(|complaint| !told(complaint)).collect();
    assert_eq!(complaints, Vec::<String>::new());
}

/// Waits for a text within the element of a selector.
fn says(page: &mut Page<'_>, selector: &str, text: &str) {
    page.wait_for(&format!("document.querySelector({})?.textContent.includes({})", json!(selector), json!(text)));
}

/// The number in the tile of this name.
fn tile(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('.tile')].find((tile) => tile.querySelector('dt').textContent === '{name}')?.querySelector('dd').textContent"
    )
}

#[test]
fn the_dashboard_shows_an_idle_server_and_then_its_decisions() {
    let (server, _config) = start("dashboard-moves", "memory");
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "");
    page.wait_for("!document.querySelector('main .notice').hidden");
    page.keep_picture(&picture("empty"));
    let api = server.address("api");
    // The list samples one request in eight, so 64 requests include a sampled one.
    (0..64).for_each(|_| check(api, "default", "carol"));
    page.wait_for("document.querySelector('main .notice').hidden");
    page.wait_for("document.querySelector('td.name').textContent === 'carol'");
    page.wait_for(&format!("Number({}) > 0", tile("tracked keys")));
    page.wait_for(&format!("{}.endsWith('s')", tile("p99")));
    // The page shows a shadow rule beside the deciding one. It would have denied two of the five allowed requests.
    page.wait_for("document.querySelector('main').textContent.includes('burst')");
    for (name, looks) in [
        ("light", WIDE),
        ("dark", Looks { is_dark: true, ..WIDE }),
        ("narrow", PHONE),
        ("narrow-dark", Looks { is_dark: true, ..PHONE }),
    ] {
        page.look(looks);
        (0..2).for_each(|_| check(api, "default", name));
        page.keep_picture(&picture(name));
        let overflow =
            page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(overflow, json!(0), "{name} fits its window");
    }
    is_clean(&mut page, &server);
}

#[test]
fn a_rule_page_shows_shadow_denials_and_works_by_keyboard() {
    let (server, _config) = start("dashboard-rule", "memory");
    let api = server.address("api");
    (0..5).for_each(|_| check(api, "default", "alice"));
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/rules");
    page.wait_for("document.querySelector('main a[href=\"#/rules/daily\"]')");
    page.evaluate("document.querySelector('main a[href=\"#/rules/daily\"]').focus()");
    // Numbers change once per second, and the focus stays in place.
    let looks = "performance.getEntriesByType('resource').length";
    page.evaluate(looks);
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 2500))");
    assert_eq!(page.evaluate("document.activeElement.textContent"), json!("daily"));
    page.evaluate("document.activeElement.click()");
    page.wait_for("document.querySelector('.notice.watch')?.textContent.includes('would have denied')");
    page.wait_for(&format!("{} === '2'", tile("would have denied")));
    page.evaluate("document.querySelector('.chart').focus()");
    page.press("ArrowLeft");
    page.wait_for("document.querySelector('.chart .cursor')");
    page.press("Escape");
    page.wait_for("!document.querySelector('.chart .cursor')");
    page.evaluate("[...document.querySelectorAll('.choice button')].at(-1).click()");
    page.keep_picture(&picture("rule"));
    is_clean(&mut page, &server);
}

#[test]
fn a_store_or_server_that_is_down_is_shown_first() {
    let redis = RedisServer::start();
    let (server, _config) = start("dashboard-store", &redis.url());
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "");
    page.wait_for(&format!("{} === 'redis up'", tile("store")));
    redis.kill();
    let api = server.address("api");
    let mut session = Session::open(api);
    let body = json!({"resource": "r", "identifier": "alice"}).to_string();
    (0..20).for_each(|_| drop(session.post("/v1/check", &body)));
    page.wait_for("document.querySelector('#notices .bad')?.textContent.includes('does not answer')");
    // Decisions without the store count as well.
    page.wait_for("document.querySelector('main .notice').hidden");
    page.keep_picture(&picture("store-down"));
    let admin = server.address("admin");
    drop(server);
    page.wait_for("document.querySelector('#connection').className === 'lost'");
    page.keep_picture(&picture("lost"));
    assert!(page.requests().iter().all(|url| url.starts_with(&format!("http://{admin}/"))));
}

#[test]
fn its_files_may_do_nothing_but_their_own() {
    let (server, _config) = start("dashboard-policy", "memory");
    let admin = server.address("admin");
    for path in ["/", "/dashboard/main.js", "/dashboard/style.css", "/dashboard/icon.svg"] {
        let answer = send(admin, "GET", path);
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    let history: Value = send(admin, "GET", "/admin/v1/history").json();
    assert_eq!(history["stepSeconds"], json!(10));
    assert_eq!(send(admin, "GET", "/admin/v1/history?rule=burst").status, 200);
    assert_eq!(send(admin, "GET", "/admin/v1/history?rule=nobody").status, 404);
    assert_eq!(send(admin, "GET", "/admin/v1/history?limit=1").status, 400);
    assert_eq!(send(admin, "GET", "/admin/v1/history?rules=all").json()["rules"], json!([]));
}
