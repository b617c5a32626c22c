//! The form that explains the decision of a request.

use super::*;

const CONFIG: &str = "
tiers: [pro]
rules:
  - { name: payments, match: { resource: 'pay.*' }, deadline: 5s,
      limits: [ { algorithm: fixed_window, limit: 4, window: 365d } ], tiers: { pro: unlimited } }
  - { name: watched, deadline: 5s, mode: shadow, limits: [ { algorithm: fixed_window, limit: 1, window: 365d } ] }
  - { name: staff, match: { host: shop.example, header: { x-plan: gold }, claim: { groups: staff } }, deadline: 5s,
      limits: [ { algorithm: fixed_window, limit: 7, window: month } ] }
  - { name: pages, match: { path: '/a/**', method: [POST] }, per: ip, deadline: 5s,
      limits: [ { algorithm: token_bucket, capacity: 9, refill: 9/h } ] }
";

/// Fills a field of the form, as a keyboard would.
fn fill(page: &mut Page<'_>, field: &str, text: &str) {
    let input = format!("document.querySelector('#explain-{field}')");
    page.wait_for(&format!("{input}?.checkVisibility()"));
    page.evaluate(&format!("{input}.focus(); {input}.select()"));
    page.type_text(text);
}

#[test]
fn it_explains_a_request_and_charges_nothing() {
    let config = ConfigFile::new("dashboard-explain", CONFIG);
    let server = Server::start(&["--config", config.path(), "--store", "memory"]);
    let mut session = Session::open(server.address("api"));
    let body = json!({"resource": "pay.now", "identifier": "alice"}).to_string();
    (0..3).for_each(|_| assert_eq!(session.post("/v1/check", &body).status, 200));
    let mut browser = Browser::start();
    let mut page = browser.page();
    open(&mut page, &server, "#/explain");
    fill(&mut page, "resource", "pay.now");
    fill(&mut page, "identifier", "alice");
    page.press("Enter");
    says(&mut page, "#explained .notice", "Allowed now: 1 of 4 left by payments.");
    says(&mut page, "#explained", "4 in 365 d");
    says(&mut page, "#explained", "and it would deny this");
    says(&mut page, "#explained details", "2 rules do not match");
    page.keep_picture(&picture("explain"));
    fill(&mut page, "cost", "2");
    page.press("Enter");
    says(&mut page, "#explained .notice", "Denied now by payments.");
    page.look(Looks { is_dark: true, ..PHONE });
    page.keep_picture(&picture("explain-narrow-dark"));
    let overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(overflow, json!(0));
    page.look(WIDE);
    fill(&mut page, "cost", "5");
    page.press("Enter");
    says(&mut page, "#explained .notice", "It never fits");
    fill(&mut page, "tier", "pro");
    page.press("Enter");
    says(&mut page, "#explained", "limits of the tier pro");
    fill(&mut page, "tier", "gold");
    page.press("Enter");
    says(&mut page, "#explain-tier-trouble", "gold");
    assert_eq!(page.evaluate("document.activeElement.id"), json!("explain-tier"));
    page.click("input[value=http]");
    fill(&mut page, "tier", "");
    page.evaluate("document.querySelector('#explain-tier').value = ''");
    fill(&mut page, "cost", "1");
    fill(&mut page, "path", "/a/b");
    fill(&mut page, "method", "POST");
    fill(&mut page, "address", "192.0.2.7");
    page.press("Enter");
    says(&mut page, "#explained .notice", "Allowed now");
    says(&mut page, "#explained article:last-of-type", "pages");
    fill(&mut page, "host", "shop.example");
    fill(&mut page, "headers", "X-Plan: gold\nAccept: a\nAccept: b");
    fill(&mut page, "claims", r#"{ "groups": ["guests", "staff"] }"#);
    page.click("main button.main");
    says(&mut page, "#explained", "7 in every month");
    page.keep_picture(&picture("explain-http"));
    for (field, text, words) in
        [("headers", "gold", "is not a header field"), ("claims", "{ groups }", "a name in double quotes")]
    {
        fill(&mut page, field, text);
        page.click("main button.main");
        says(&mut page, &format!("#explain-{field}-trouble"), words);
        assert_eq!(page.evaluate("document.activeElement.id"), json!(format!("explain-{field}")));
        page.evaluate(&format!("document.querySelector('#explain-{field}').value = ''"));
    }
    fill(&mut page, "address", "nonsense");
    page.press("Enter");
    says(&mut page, "#explained .notice.bad", "address");
    // None of this charged a limit.
    let peeked = session.post("/v1/peek", &json!({"resource": "pay.now", "identifier": "alice"}).to_string());
    assert_eq!(peeked.json()["remaining"], json!(1));
    is_clean_but(&mut page, &[400]);
}
