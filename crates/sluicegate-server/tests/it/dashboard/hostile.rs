//! Whatever clients, tenants, rules and descriptors are called stays text, on every page.

use super::*;
use crate::client::Connection;

/// Markup, scripts, handlers, entities, schemes, breaks out of attributes and comments, in many spellings.
fn payloads() -> Vec<String> {
    let tags = [
        "script", "img", "svg", "iframe", "body", "video", "details", "math", "object", "style", "audio", "embed",
        "input", "form", "marquee", "a", "base", "meta", "link", "template",
    ];
    let shapes = [
        "<TAG src=x onerror=window.hit=1>",
        "<TAG onload=window.hit=1>",
        "<TAG>window.hit=1</TAG>",
        "\"><TAG onfocus=window.hit=1 autofocus>",
        "'><TAG ontoggle=window.hit=1 open>",
        "--><TAG/onload=window.hit=1>",
        "</TAG><script>window.hit=1</script>",
        "&lt;TAG onload=window.hit=1&gt;",
        "<TAG href=javascript:window.hit=1>",
        "${window.hit=1}<TAG>{{window.hit=1}}",
    ];
    tags.iter().flat_map(|tag| shapes.map(|shape| shape.replace("TAG", tag))).collect()
}

/// Half of them, with every tag among them, where showing one takes long.
fn every_second() -> Vec<String> {
    payloads().into_iter().step_by(2).collect()
}

/// Nothing of what was shown has become anything but text.
fn is_text(page: &mut Page<'_>) {
    assert_eq!(page.evaluate("window.hit === undefined"), json!(true));
    let foreign = "document.querySelectorAll('body script, main img, main iframe, main svg svg, main object, main style').length";
    assert_eq!(page.evaluate(foreign), json!(0), "nothing that a name brought");
}

/// A text that means itself in a configuration.
fn escaped(payload: &str) -> String {
    payload.replace("${", "$${")
}

fn serve(test: &str, config: &Value) -> (Server, ConfigFile) {
    let config = ConfigFile::new(test, config.to_string());
    (Server::start(&["--config", config.path(), "--store", "memory"]), config)
}

#[test]
fn whatever_a_client_calls_itself_stays_text() {
    let mut browser = Browser::start();
    let mut page = browser.page();
    let payloads = every_second();
    assert!(payloads.len() >= 100);
    // As many as are shown at a time, each as a tenant or as an identifier.
    for (round, some) in payloads.chunks(18).enumerate() {
        let (server, _config) = start(&format!("dashboard-text-{round}"), "memory");
        let mut session = Session::open(server.address("api"));
        for pair in some.chunks_exact(2) {
            let body = json!({"resource": "r", "tenant": pair[0], "identifier": pair[1], "cost": 0}).to_string();
            // Often, because one in eight is looked at.
            (0..100).for_each(|_| assert_eq!(session.post("/v1/check", &body).status, 200));
        }
        open(&mut page, &server, "");
        for payload in some {
            let shown: String = payload.chars().take(64).collect();
            page.wait_for(&format!("document.querySelector('main').textContent.includes({})", json!(shown)));
        }
        is_text(&mut page);
        // Gone before the server is, so that there is nothing to complain about.
        page.open("about:blank");
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

#[test]
fn user_agents_and_descriptors_stay_text() {
    let config = json!({
        "identity": [{"api_key": {"header": "User-Agent", "verify": false}}],
        "rules": [{"name": "few", "limits": [{"algorithm": "fixed_window", "limit": 5, "window": "365d"}]}],
    });
    let mut browser = Browser::start();
    let mut page = browser.page();
    // As many as are shown at a time, once as a browser's name and once as all that a descriptor has.
    for (round, some) in every_second().chunks(5).enumerate() {
        let (server, _config) = serve(&format!("dashboard-agents-{round}"), &config);
        let mut api = Session::open(server.address("api"));
        for payload in some {
            let visit = |last| {
                format!("GET /api/ping HTTP/1.1\r\nhost: t\r\nuser-agent: {payload}\r\nconnection: {last}\r\n\r\n")
            };
            let entry = json!({"key": payload, "value": payload});
            let descriptors = json!({"domain": payload, "descriptors": [{"entries": [entry]}]}).to_string();
            // Often, because one in eight is looked at, and not in turn, because it is every eighth.
            let mut gateway = Connection::open(server.address("gateway"));
            gateway.send(visit("keep-alive").repeat(99) + &visit("close"));
            assert_eq!(gateway.read_to_end().matches("HTTP/1.1 429").count(), 95);
            (0..100).for_each(|_| assert!(matches!(api.post("/json", &descriptors).status, 200 | 429)));
        }
        open(&mut page, &server, "");
        for payload in some {
            let shown: String = payload.chars().take(64).collect();
            let cells = "[...document.querySelectorAll('td.name')].map((cell) => cell.textContent)";
            page.wait_for(&format!("{cells}.includes({})", json!(shown)));
            page.wait_for(&format!("{cells}.includes({})", json!(format!("{shown} / {shown}"))));
        }
        is_text(&mut page);
        page.open("about:blank");
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

#[test]
fn names_of_rules_stay_text() {
    // A tenant that is switched off is a rule of its name, and names of tenants are free.
    let mut browser = Browser::start();
    let mut page = browser.page();
    for (round, some) in payloads().chunks(50).enumerate() {
        let tenants: Vec<Value> =
            some.iter().map(|name| json!({"name": escaped(name), "disabled": true})).collect();
        let (server, _config) =
            serve(&format!("dashboard-rules-{round}"), &json!({"tenants": tenants, "rules": []}));
        let mut session = Session::open(server.address("api"));
        for tenant in some {
            let body = json!({"resource": "r", "tenant": tenant, "identifier": "i"}).to_string();
            assert_eq!(session.post("/v1/check", &body).status, 429);
        }
        open(&mut page, &server, "#/rules");
        for tenant in some {
            let name = json!(format!("tenant:{tenant}"));
            let links = "[...document.querySelectorAll('main td a')].map((link) => link.textContent)";
            page.wait_for(&format!("{links}.includes({name})"));
        }
        for tenant in some {
            let name = json!(format!("tenant:{tenant}"));
            page.evaluate(&format!("location.hash = '#/rules/' + encodeURIComponent({name})"));
            page.wait_for(&format!("document.querySelector('main h2').textContent === {name}"));
            page.wait_for(&format!("document.title === {name} + ' – Sluicegate'"));
            is_text(&mut page);
        }
        page.open("about:blank");
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

#[test]
fn what_rules_say_and_what_is_asked_about_stays_text() {
    let payloads = payloads();
    let limits = json!([{"algorithm": "fixed_window", "limit": 5, "window": "365d"}]);
    let rules = payloads.iter().enumerate().map(|(index, payload)| {
        let overrides = json!([{"identifier": escaped(payload), "limits": limits}]);
        json!({"name": format!("rule-{index}"), "match": {"resource": escaped(payload)}, "limits": limits, "overrides": overrides})
    });
    let config = json!({"rules": rules.collect::<Vec<_>>()});
    let (server, _config) = serve("dashboard-texts", &config);
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/explain");
    for (index, payload) in payloads.iter().enumerate() {
        for field in ["resource", "identifier", "tenant"] {
            page.evaluate(&format!("document.querySelector('#explain-{field}').value = {}", json!(payload)));
        }
        page.evaluate("document.querySelector('main form').requestSubmit()");
        says(&mut page, "#explained .notice", &format!("left by rule-{index}."));
        says(&mut page, "#explained article", &format!("limits of the override {payload}"));
        is_text(&mut page);
    }
    for (index, payload) in payloads.iter().enumerate() {
        page.evaluate(&format!("location.hash = '#/rules/rule-{index}'"));
        says(&mut page, "main pre", &json!(escaped(payload)).to_string());
        is_text(&mut page);
    }
    page.evaluate("location.hash = '#/explain'");
    // Last, because the server says no to each, with the text in what it says.
    for payload in &payloads {
        page.evaluate(&format!("document.querySelector('#explain-tier').value = {}", json!(payload)));
        page.evaluate("document.querySelector('main form').requestSubmit()");
        let start: String = payload.chars().take(20).collect();
        says(&mut page, "#explain-tier-trouble", &start);
        is_text(&mut page);
    }
    is_clean_but(&mut page, &[400]);
}
