//! Valid and invalid bodies, and the errors of the invalid ones.

use super::*;

/// The field and the detail of a refusal of a single check.
#[track_caller]
fn refused(body: impl AsRef<[u8]>) -> (Option<String>, String) {
    let malformed = check(body.as_ref()).expect_err("refused");
    (malformed.field, malformed.detail)
}

#[track_caller]
fn refused_batch(body: impl AsRef<[u8]>) -> (Option<String>, String) {
    let malformed = batch(body.as_ref()).expect_err("refused");
    (malformed.field, malformed.detail)
}

#[test]
fn every_field_is_read() {
    let body = br#" {"tenant":"acme","resource":"api.pay","identifier":"alice","cost":3,"tier":"pro"} "#;
    let check = check(body).expect("good");
    let request = check.request();
    assert_eq!((request.tenant, request.resource), ("acme", "api.pay"));
    assert_eq!(request.identity, sluicegate::Identity::Named("alice"));
    assert_eq!((request.cost, request.tier), (Some(Cost::new(3)), Some("pro")));
}

#[test]
fn optional_fields_have_defaults_and_null_counts_as_absent() {
    for body in
        [r#"{"resource":"r","identifier":"i"}"#, r#"{"resource":"r","identifier":"i","tenant":null,"tier":null}"#]
    {
        let check = check(body.as_bytes()).expect("good");
        let request = check.request();
        assert_eq!((request.tenant, request.tier, request.cost), ("default", None, None));
    }
}

#[test]
fn text_is_borrowed_unless_it_has_escapes() {
    let parsed = check(r#"{"resource":"r\u00e9\n","identifier":"名前"}"#.as_bytes()).expect("good");
    assert_eq!(parsed.resource, "ré\n");
    assert!(matches!(parsed.identifier, Cow::Borrowed("名前")));
    // A field's own name may be escaped too.
    assert!(check(br#"{"re\u0073ource":"r","identifier":"i"}"#).is_ok());
}

#[test]
fn a_cost_is_a_json_integer_of_32_bits() {
    let with_cost = |cost: &str| format!(r#"{{"resource":"r","identifier":"i","cost":{cost}}}"#);
    for (cost, units) in [("0", 0), ("1", 1), ("4294967295", u32::MAX)] {
        assert_eq!(check(with_cost(cost).as_bytes()).expect("good").cost, Some(Cost::new(units)));
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for cost in [
        "1.0",
        "1e3",
        "1E0",
        "-1",
        "-0",
        "\"5\"",
        "true",
        "null",
        "NaN",
        "Infinity",
        "4294967296",
        "1e400",
        "01",
        "+1",
        "99999999999999999999",
        "[1]",
        "{}",
        "",
        &deep,
    ] {
        let (field, detail) = refused(with_cost(cost));
        assert_eq!(field.as_deref(), Some("cost"), "{cost}: {detail}");
        assert!(detail.starts_with("`cost` is ") && detail.len() < 300, "{cost}: {detail}");
    }
    let (_, detail) = refused(with_cost("1e400"));
    assert_eq!(
        detail,
        "`cost` is 1e400: use a whole number from 0 to 4294967295, without quotes, sign, fraction or exponent"
    );
}

#[test]
fn a_wrong_type_names_field_value_and_remedy() {
    for (body, expected) in [
        (r#"{"resource":5,"identifier":"i"}"#, "`resource` is 5: use a string"),
        (r#"{"resource":null,"identifier":"i"}"#, "`resource` is null: use a string"),
        (r#"{"resource":"r","identifier":["a"]}"#, r#"`identifier` is ["a"]: use a string"#),
        (r#"{"resource":"r","identifier":"i","tier":false}"#, "`tier` is false: use a string"),
        (r#"{"resource":"r","identifier":"i","tenant":{"a": 1}}"#, r#"`tenant` is {"a": 1}: use a string"#),
        (r#"{"resource":"r"}"#, "`identifier` is missing: add it, as a string"),
        ("{}", "`resource` is missing: add it, as a string"),
        (r#"{"resource":"r","identifier":"a","identifier":"b"}"#, "`identifier` is given twice: give it once"),
        (r#"{"tenant":null,"tenant":"b"}"#, "`tenant` is given twice: give it once"),
        (
            r#"{"resource":"r","identifier":"\ud800"}"#,
            r#"`identifier` is "\ud800": its escapes stand for no text, use valid Unicode"#,
        ),
        (
            r#"{"resource":"r","burst":1}"#,
            "`burst` is not a field of this body: use only tenant, resource, identifier, cost, tier",
        ),
    ] {
        let (field, detail) = refused(body);
        assert_eq!(detail, expected);
        let named = expected.trim_start_matches('`').split('`').next();
        assert_eq!(field.as_deref(), named, "{body}");
    }
}

#[test]
fn a_body_other_than_an_object_is_rejected_without_an_echo() {
    let deep = "[".repeat(10_000);
    let long = format!("\"{}\"", "x".repeat(100_000));
    for body in ["[]", "null", "5", "\"text\"", &deep, &long] {
        let (field, detail) = refused(body);
        assert_eq!(field, None);
        assert!(detail.starts_with("the body is not a JSON object: send for example {"), "{detail}");
    }
}

#[test]
fn the_example_of_a_refusal_is_a_body_that_would_be_taken() {
    let example = |detail: &str| detail.split_once("send for example ").map(|(_, example)| example.to_owned());
    for body in ["", "[]", "5", "{", "{]", "nul", r#"{"resource":"r","identifier":"i"} x"#, r#"{"resource":}"#] {
        let detail = check(body.as_bytes()).expect_err(body).detail;
        let example = example(&detail).unwrap_or_else(|| panic!("no example: {detail}"));
        assert!(check(example.as_bytes()).is_ok(), "{detail}");
    }
    for body in ["", "[]", "5", "{", "{]", "nul", r#"{"checks":[]} x"#, r#"{"checks":[5]}"#, r#"{"checks":[{]}"#] {
        let detail = batch(body.as_bytes()).expect_err(body).detail;
        let example = example(&detail).unwrap_or_else(|| panic!("no example: {detail}"));
        assert!(batch(example.as_bytes()).is_ok(), "{detail}");
    }
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let (_, detail) = refused(r#"{"resource":"r","identifier":"i"} x"#);
    assert!(detail.starts_with("the body is not JSON (trailing characters at line 1 column 35)"), "{detail}");
    assert!(refused("").1.starts_with("the body is empty: "));
    assert!(refused("\u{feff}{}").1.contains("byte order mark"));
    for body in ["{", "{]", "nul", r#"{"resource"}"#, "{'resource':'r'}", r#"{"resource":"r",}"#, "{}{}", "\0"] {
        assert!(check(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn text_that_is_not_utf_8_or_holds_raw_control_characters_is_refused() {
    for identifier in [&b"\xff"[..], b"\xc3\x28", b"a\nb", b"a\0b", b"\xed\xa0\x80"] {
        let body = [br#"{"resource":"r","identifier":""#, identifier, br#""}"#].concat();
        assert_eq!(refused(&body).0.as_deref(), Some("identifier"), "{identifier:?}");
    }
}

#[test]
fn a_refusal_repeats_little_and_nothing_that_acts() {
    let (field, detail) = refused(format!(r#"{{"{}":1}}"#, "\\u001b[2J".repeat(1_000)));
    assert!(field.is_some_and(|field| field.len() < 600 && field.starts_with("\\u{1b}[2J")));
    assert!(detail.len() < 800 && !detail.contains('\u{1b}'), "{detail}");
    let (_, detail) = refused(format!(r#"{{"resource":{},"identifier":"i"}}"#, "[1,".repeat(50_000)));
    assert!(detail.len() < 300, "{detail}");
}

#[test]
fn a_batch_is_read_in_order() {
    let body = br#"{"checks":[{"resource":"a","identifier":"1"},{"resource":"b","identifier":"2"}]}"#;
    let checks = batch(body).expect("good");
    let resources: Vec<_> = checks.iter().map(|check| &*check.resource).collect();
    assert_eq!(resources, ["a", "b"]);
    assert_eq!(batch(br#"{"checks":[]}"#).expect("good"), []);
}

#[test]
fn a_bad_item_is_named_by_its_place() {
    let with = |item: &str| format!(r#"{{"checks":[{{"resource":"r","identifier":"i"}},{item}]}}"#);
    for (item, expected) in [
        (r#"{"foo":1}"#, "checks[1].foo"),
        (r#"{"resource":"r"}"#, "checks[1].identifier"),
        (r#"{"resource":"r","identifier":"i","cost":-1}"#, "checks[1].cost"),
        (r#"{"resource":"r","identifier":"i","cost":NaN}"#, "checks[1].cost"),
        (r#"{"resource":"r","identifier":7}"#, "checks[1].identifier"),
        ("5", "checks[1]"),
        ("[]", "checks[1]"),
        ("x", "checks[1]"),
    ] {
        let (field, detail) = refused_batch(with(item));
        assert_eq!(field.as_deref(), Some(expected), "{item}");
        assert!(detail.starts_with(&format!("`{expected}` is ")), "{detail}");
    }
}

#[test]
fn a_batch_has_one_field_and_at_most_a_thousand_checks() {
    let of = |count: usize| {
        let items = vec![r#"{"resource":"r","identifier":"i"}"#; count];
        format!(r#"{{"checks":[{}]}}"#, items.join(","))
    };
    assert_eq!(batch(of(BATCH_CHECKS_MAX).as_bytes()).expect("good").len(), BATCH_CHECKS_MAX);
    let too_many =
        (Some("checks".to_owned()), "`checks` has more than 1000 checks: send several batches".to_owned());
    assert_eq!(refused_batch(of(BATCH_CHECKS_MAX + 1)), too_many);

    for (body, field) in [
        ("{}", "checks"),
        (r#"{"checks":{}}"#, "checks"),
        (r#"{"checks":null}"#, "checks"),
        (r#"{"checks":[],"checks":[]}"#, "checks"),
        (r#"{"checks":[],"more":1}"#, "more"),
    ] {
        assert_eq!(refused_batch(body).0.as_deref(), Some(field), "{body}");
    }
    assert_eq!(refused_batch("[]").0, None);
    assert_eq!(refused_batch(r#"{"checks":[]"#).0, None);
}
