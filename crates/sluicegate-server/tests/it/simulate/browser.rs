//! The report in a real browser: it shows, it loads nothing, it runs nothing, and what strangers wrote stays text.
//!
//! Chromium is driven through its debugging pipe, so that no port is opened and nothing but the page is asked.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Folder;
use crate::server::PATIENCE;

/// A browser with one page; it ends with the test.
struct Browser {
    child: Child,
    requests: File,
    messages: Receiver<Value>,
    session: Value,
    /// What the page did: whatever is no answer.
    events: Vec<Value>,
    id: u64,
    _folder: TempDir,
}

impl Browser {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        let (requests, answers) = (path("requests"), path("answers"));
        let made = Command::new("mkfifo").args([&requests, &answers]).status().expect("mkfifo");
        assert!(made.success());
        // A shell can open files 3 and 4 for the browser; it becomes the browser, so its id is the browser's.
        let start = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync \
                     --remote-debugging-pipe --user-data-dir=\"$2\" about:blank 3<\"$0\" 4>\"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", start, &requests, &answers, &path("profile")]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
        let requests = OpenOptions::new().write(true).open(&requests).expect("the browser reads");
        let answers = File::open(&answers).expect("the browser writes");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, events) = (Value::Null, Vec::new());
        let mut browser = Self { child, requests, messages, session, events, id: 0, _folder: folder };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.ask("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Asks the browser, and keeps what happens until it answers.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.id += 1;
        let mut question = json!({"id": self.id, "method": method, "params": parameters});
        if !self.session.is_null() {
            question["sessionId"] = self.session.clone();
        }
        let mut bytes = question.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).expect("the browser lives");
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("an answer of the browser");
            if message["id"] == self.id {
                assert_eq!(message.get("error"), None, "{method}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Opens a file, and waits until all of it is there.
    fn open(&mut self, path: &Path) -> String {
        let url = format!("file://{}", path.to_str().expect("text"));
        self.events.clear();
        self.ask("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.messages.recv_timeout(PATIENCE).expect("the page loads");
            self.events.push(event);
        }
        url
    }

    /// The value of an expression on the page.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true});
        self.ask("Runtime.evaluate", parameters)["result"]["value"].clone()
    }

    fn look(&mut self, scheme: &str, width: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What strangers would like to be more than text.
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
fn the_report_shows_in_a_browser_and_nothing_in_it_acts() {
    let rules = "rules:\n  - { name: one, limits: [ { algorithm: fixed_window, limit: 1, window: 1h } ] }\n";
    let folder = Folder::new(rules);
    let report = folder.path("<b>&report.html");
    let other = folder.file("other.yaml", rules.replace("limit: 1", "limit: 2"));
    let arguments = ["--log", "-", "--format", "json", "--identity", "who", "--suggest", "--compare", &other];
    let arguments = [&arguments[..], &["--report", report.to_str().expect("text")]].concat();
    let summary = folder.json(&arguments, hostile_log().as_bytes());
    assert!(summary["denied"].as_u64() > Some(10) && summary["malformed"].as_u64() > Some(10), "{summary}");

    let mut browser = Browser::start();
    let url = browser.open(&report);
    let shown = browser.value("document.body.innerText");
    let shown = shown.as_str().expect("text");
    for text in HOSTILE {
        assert!(shown.contains(text), "{text} is not shown in {shown}");
    }
    let acting = "document.querySelectorAll('script,img,iframe,link,object,embed,form,[onload],[onerror]').length";
    assert_eq!(browser.value(acting), 0);
    assert_eq!(browser.value("document.title.startsWith('Sluicegate: ')"), true);
    assert!(browser.value("document.querySelectorAll('svg').length").as_u64() > Some(5));

    for event in &browser.events {
        let is_about_another =
            event["params"]["request"]["url"].as_str().is_some_and(|asked| asked != escaped(&url));
        assert!(event["method"] != "Network.requestWillBeSent" || !is_about_another, "{event}");
        let method = event["method"].as_str().unwrap_or_default();
        let complaints = [
            "Log.entryAdded",
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Page.javascriptDialogOpening",
        ];
        assert!(!complaints.contains(&method), "{event}");
    }
}

/// The address as the browser writes it.
fn escaped(url: &str) -> String {
    url.replace('<', "%3C").replace('>', "%3E")
}

#[test]
fn the_report_is_light_dark_and_fits_a_narrow_screen() {
    let folder = Folder::new(super::TWO_A_MINUTE);
    let report = folder.path("report.html");
    let log: String =
        (0..600).map(|second| super::line(&format!("192.0.2.{}", second % 5), second, "/a")).collect();
    folder.json(&["--log", "-", "--report", report.to_str().expect("text")], log.as_bytes());
    let mut browser = Browser::start();
    browser.open(&report);
    let mut colours = Vec::new();
    for scheme in ["light", "dark"] {
        for width in [1_200, 360] {
            browser.look(scheme, width);
            let wide = browser.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64() <= Some(width.into()), "{scheme}: {wide} wide on a screen of {width}");
            colours.push(browser.value("getComputedStyle(document.body).backgroundColor"));
        }
    }
    assert_eq!((&colours[0], &colours[2]), (&colours[1], &colours[3]));
    assert_ne!(colours[0], colours[2]);
}
