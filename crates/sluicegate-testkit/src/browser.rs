//! Headless Chromium, driven through its remote debugging pipes.
//!
//! A [`Browser`] is one process with its own profile and is killed on drop. A [`Page`] is one tab. The kit records
//! every network request and every error of the tab, so that a test can assert that there were none.
#![allow(clippy::expect_used, reason = "a browser that does not do as it is told ends the test")]

mod pipe;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::poll;
use crate::process::Process;
use pipe::Pipe;

/// The time limit of any operation, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running browser.
#[derive(Debug)]
pub struct Browser {
    pipe: Pipe,
    _process: Process,
    _folder: TempDir,
}

/// One tab.
#[derive(Debug)]
pub struct Page<'b> {
    browser: &'b mut Browser,
    session: String,
}

/// The display settings of the tab.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Whether `prefers-color-scheme` is dark.
    pub is_dark: bool,
}

impl Browser {
    /// Starts Chromium. Panics with the remedy if Chromium is not installed.
    #[must_use]
    pub fn start() -> Self {
        let folder = TempDir::new().expect("a folder for the browser");
        let (to, from) = (folder.path().join("to"), folder.path().join("from"));
        for pipe in [&to, &from] {
            rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
                .expect("a pipe");
        }
        // The browser reads commands from descriptor 3 and writes replies to descriptor 4. It runs as one process tree
        // that ends with its first process. Its sandbox does not work as root. Without its flood protection, a page may
        // change its address more than 200 times in ten seconds.
        let command = format!(
            "exec {} --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
             --disable-ipc-flooding-protection \
             --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
             --user-data-dir=profile --remote-debugging-pipe about:blank 3<to 4>from",
            program().display()
        );
        let log = folder.path().join("log");
        let process =
            Process::spawn(Path::new("/bin/sh"), &["-c", &command], folder.path(), &log).expect("a shell");
        let pipe = Pipe::open(&to, &from, &log);
        Self { pipe, _process: process, _folder: folder }
    }

    /// Opens an empty tab.
    pub fn page(&mut self) -> Page<'_> {
        let made = self.pipe.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = made["targetId"].as_str().expect("an id");
        let attached = self.pipe.call(None, "Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        let session = attached["sessionId"].as_str().expect("an id").to_owned();
        let mut page = Page { browser: self, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page
    }
}

impl Page<'_> {
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.browser.pipe.call(Some(&self.session), method, parameters)
    }

    /// Navigates to `url` and waits until the page is loaded.
    pub fn open(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({"url": url}));
        assert!(gone.get("errorText").is_none(), "{url}: {gone}");
        self.wait_for("document.readyState === 'complete'");
    }

    /// Evaluates a JavaScript expression in the page and returns its value. Promises are awaited.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until the expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        poll::until_true(expression, PATIENCE, || self.evaluate(&format!("Boolean({expression})")) == json!(true));
    }

    /// Changes the display settings of the tab.
    pub fn look(&mut self, looks: Looks) {
        let Looks { width, height, is_dark } = looks;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Presses a key, given by its name in keyboard events.
    pub fn press(&mut self, key: &str) {
        // Chromium selects the default action of a key by its legacy key code. Enter also inserts a character.
        let (number, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            _ => (0, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": number, "text": text});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Types text into the focused element, as a keyboard would.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Waits until an enabled element matches the selector, and clicks the first one.
    pub fn click(&mut self, selector: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        self.wait_for(&format!("{found}?.checkVisibility() && !{found}.disabled"));
        self.evaluate(&format!("{found}.click()"));
    }

    /// Saves a screenshot of the full page to `file`, as PNG.
    pub fn keep_picture(&mut self, file: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            shot["data"].as_str().expect("a picture"),
        );
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).expect("a folder for pictures");
        }
        fs::write(file, bytes.expect("base64")).expect("a picture is written");
    }

    /// The URLs of all requests of the tab so far.
    pub fn requests(&mut self) -> Vec<String> {
        let events = self.browser.pipe.events(&self.session);
        let sent = events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str()).map(str::to_owned).collect()
    }

    /// All errors of the tab so far: script errors, violations of the content security policy, and network errors.
    pub fn complaints(&mut self) -> Vec<String> {
        self.browser.pipe.events(&self.session).into_iter().filter_map(complaint).collect()
    }
}

fn complaint(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    // Our pages never use these channels, so every event on them is an error.
    let complaints =
        ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening"];
    complaints.contains(&event["method"].as_str()?).then(|| parameters.to_string())
}

/// The path of Debian's package.
fn program() -> PathBuf {
    let path = PathBuf::from("/usr/bin/chromium");
    assert!(path.is_file(), "chromium is not installed: `cargo xtask test --only browser` installs it");
    path
}
