//! Hostile names of clients, tenants, rules and descriptors stay text on every page.

use super::*;
use crate::client::Connection;

/// Markup, scripts, handlers, entities, schemes, escapes from attributes and comments, in many spellings.
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

/// Half of them, with every tag included, for pages that take long to render.
fn every_second() -> Vec<String> {
    payloads().into_iter().step_by(2).collect()
}

/// All displayed values are still text.
fn is_text(page: &mut Page<'_>) {
    assert_eq!(page.evaluate("window.hit === undefined"), json!(true));
    let foreign = "document.querySelectorAll('body script, main img, main iframe, main svg svg, main object, main style').length";
    assert_eq!(page.evaluate(foreign), json!(0), "nothing that a name brought");
}

/// The text with `${` escaped, so the configuration does not expand it.
fn escaped(payload: &str) -> String {
    payload.replace("${", "$${")
}

fn serve(test: &str, config: &Value) -> (Server, ConfigFile) {
    let config = ConfigFile::new(test, config.to_string());
    (Server::start(&["--config", config.path(), "--store", "memory"]), config)
}

#[test]
fn hostile_identifiers_stay_text() {
    let mut browser = Browser::start();
    let mut page = browser.page();
    let payloads = every_second();
    assert!(payloads.len() >= 100);
    // As many names as the page shows at a time, each as a tenant or as an identifier.
    for (round, some) in payloads.chunks(18).enumerate() {
        let (server, _config) = start(&format!("dashboard-text-{round}"), "memory");
        let mut session = Session::open(server.address("api"));
        for pair in some.chunks_exact(2) {
            let body = json!({"resource": "r", "tenant": pair[0], "identifier": pair[1], "cost": 0}).to_string();
            // Many requests, because the list samples one in eight.
            (0..100).for_each(|_| assert_eq!(session.post("/v1/check", &body).status, 200));
        }
        open(&mut page, &server, "");
        for payload in some {
            let shown: String = payload.chars().take(64).collect();
            page.wait_for(&format!("document.querySelector('main').textContent.includes({})", json!(shown)));
        }
        is_text(&mut page);
        // The browser leaves the page before the server stops, so the page logs no errors.
        page.open("about:blank");
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

#[test]
fn user_agents_and_descriptors_stay_text() {
    let config = json!({
        "demo": true,
        "identity": [{"api_key": {"header": "User-Agent", "verify": false}}],
        "rules": [{"name": "few", "limits": [{"algorithm": "fixed_window", "limit": 5, "window": "365d"}]}],
    });
    let mut browser = Browser::start();
    let mut page = browser.page();
    // As many names as the page shows at a time, each as a user agent and as the only entry of a descriptor.
    for (round, some) in every_second().chunks(5).enumerate() {
        let (server, _config) = serve(&format!("dashboard-agents-{round}"), &config);
        let mut api = Session::open(server.address("api"));
        for payload in some {
            let visit = |last| {
                format!("GET /api/ping HTTP/1.1\r\nhost: t\r\nuser-agent: {payload}\r\nconnection: {last}\r\n\r\n")
            };
            let entry = json!({"key": payload, "value": payload});
            let descriptors = json!({"domain": payload, "descriptors": [{"entries": [entry]}]}).to_string();
            // Many requests, because the list samples one in eight. The order is not cyclic, because the sample is
            // every eighth request.
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
    // The rule of a disabled tenant has the tenant's name, and tenants may have any name.
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
fn hostile_rules_and_explanations_stay_text() {
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
    page.wait_for("document.querySelector('#explain-tier') !== null");
    // These requests come last, because the server rejects each with the hostile text in its message.
    for payload in &payloads {
        page.evaluate(&format!("document.querySelector('#explain-tier').value = {}", json!(payload)));
        page.evaluate("document.querySelector('main form').requestSubmit()");
        let start: String = payload.chars().take(20).collect();
        says(&mut page, "#explain-tier-trouble", &start);
        is_text(&mut page);
    }
    is_clean_but(&mut page, &[400]);
}
