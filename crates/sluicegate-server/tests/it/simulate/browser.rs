//! The report in a real browser: it renders, loads nothing and runs nothing, and text from a log stays text.

use serde_json::json;
use sluicegate_testkit::browser::{Browser, Looks};

use super::Folder;

/// Texts that try to become markup.
const HOSTILE: [&str; 5] = [
    "<script>document.title='owned'</script>",
    "\"><img src=http://127.0.0.1:9/x onerror=document.title='owned'>",
    "'><svg onload=document.title='owned'>",
    "</style></svg></title><iframe src=//127.0.0.1:9>",
    "&lt;b&gt; \u{202e}txt.exe",
];

fn hostile_log() -> String {
    let mut log = String::new();
    for (place, text) in HOSTILE.iter().enumerate() {
        for second in 0..4 {
            let at = 1_700_000_000 + 60 * place + second;
            let line =
                json!({"ts": at, "ip": "192.0.2.1", "path": format!("/{text}"), "who": text, "agent": text});
            log += &format!("{line}\n");
            let line = json!({"ts": at, "ip": "192.0.2.1", "path": "/a", "who": text, "agent": text});
            log += &format!("{line}\n");
        }
        log += &format!("{text}\n");
    }
    log
}

#[test]
fn the_report_renders_in_a_browser_and_hostile_text_stays_text() {
    let rules = "rules:\n  - { name: one, limits: [ { algorithm: fixed_window, limit: 1, window: 1h } ] }\n";
    let folder = Folder::new(rules);
    let report = folder.path("<b>&report.html");
    let other = folder.file("other.yaml", rules.replace("limit: 1", "limit: 2"));
    let arguments = ["--log", "-", "--format", "json", "--identity", "who", "--suggest", "--compare", &other];
    let arguments = [&arguments[..], &["--report", report.to_str().expect("text")]].concat();
    let summary = folder.json(&arguments, hostile_log().as_bytes());
    assert!(summary["denied"].as_u64() > Some(10) && summary["malformed"].as_u64() > Some(10), "{summary}");

    let (mut browser, url) = (Browser::start(), format!("file://{}", report.to_str().expect("text")));
    let mut page = browser.page();
    page.open(&url);
    let shown = page.evaluate("document.body.innerText");
    let shown = shown.as_str().expect("text");
    for text in HOSTILE {
        assert!(shown.contains(text), "{text} is not shown in {shown}");
    }
    let acting = "document.querySelectorAll('script,img,iframe,link,object,embed,form,[onload],[onerror]').length";
    assert_eq!(page.evaluate(acting), 0);
    assert_eq!(page.evaluate("document.title.startsWith('Sluicegate: ')"), true);
    assert!(page.evaluate("document.querySelectorAll('svg').length").as_u64() > Some(5));
    assert_eq!(page.requests(), [escaped(&url)]);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// A URL in the form that the browser reports.
fn escaped(url: &str) -> String {
    url.replace('<', "%3C").replace('>', "%3E")
}

#[test]
fn the_report_has_light_and_dark_colours_and_fits_a_narrow_screen() {
    let folder = Folder::new(super::TWO_A_MINUTE);
    let report = folder.path("report.html");
    let log: String =
        (0..600).map(|second| super::line(&format!("192.0.2.{}", second % 5), second, "/a")).collect();
    folder.json(&["--log", "-", "--report", report.to_str().expect("text")], log.as_bytes());
    let mut browser = Browser::start();
    let mut page = browser.page();
    page.open(&format!("file://{}", report.to_str().expect("text")));
    let mut colours = Vec::new();
    for is_dark in [false, true] {
        for width in [1_200, 360] {
            page.look(Looks { width, height: 900, is_dark });
            let wide = page.evaluate("document.documentElement.scrollWidth");
            assert!(wide.as_u64() <= Some(width.into()), "{wide} wide on a screen of {width}");
            colours.push(page.evaluate("getComputedStyle(document.body).backgroundColor"));
        }
    }
    assert_eq!((&colours[0], &colours[2]), (&colours[1], &colours[3]));
    assert_ne!(colours[0], colours[2]);
}
