//! From text to rules: valid files, the messages of invalid ones, and the cost of hostile ones.

mod good;
mod hostile;

use super::*;

fn environment() -> Environment {
    let variables = [("RULE", "payments"), ("RATE", "100/60s"), ("SECRET", "hunter 2")];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn read(text: impl AsRef<[u8]>) -> Result<RuleSet, Problems> {
    RuleSet::from_yaml(text, "t.yaml", &environment())
}

fn problems(text: impl AsRef<[u8]>) -> String {
    match read(text) {
        Ok(rules) => format!("no problem: {rules:?}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn a_stand_in_never_takes_effect_even_without_a_report() {
    let environment = environment();
    let document = Document::parse("mode: x\n", "t.yaml", &environment);
    let section = document.root().and_then(|root| root.section(&["mode"])).unwrap();
    let stood_in = section.optional("mode", 1, |_| None).unwrap_or(2);
    drop(section);
    let problems = document.finish(Some(stood_in)).unwrap_err().to_string();
    assert_eq!(problems, "t.yaml:1:7: mode: cannot be read (value x): report this as a bug, with the file");
}

/// `problems.txt` holds pairs of a text and all that is wrong with it, word for word: `%%`, the text, `=>`,
/// one line per problem.
#[test]
fn every_error_has_its_place_and_a_remedy() {
    let cases: Vec<(&str, &str)> = include_str!("tests/problems.txt")
        .split("%%\n")
        .skip(1)
        .map(|case| case.split_once("=>\n").expect("a text, `=>`, and its problems"))
        .collect();
    assert!(cases.len() > 80, "{} cases", cases.len());
    for (text, expected) in cases {
        let found = problems(text).replace("t.yaml:", "");
        assert_eq!(found, expected.trim_end(), "for this text:\n{text}");
    }
}

#[test]
fn every_line_starts_with_the_file() {
    let text = problems("rules: 5\ntiers: 6\n");
    assert_eq!(
        text,
        "t.yaml:1:8: rules: not a list (value 5): write a list of rules, or [] to limit nothing\n\
         t.yaml:2:8: tiers: not a list (value 6): write a list of names, for example [free, pro]"
    );
}

#[test]
fn invalid_utf8_is_rejected_with_its_place() {
    let cases: [(&[u8], &str); 4] = [
        (b"rules: []\n# \xff\n", "t.yaml:2:3: not UTF-8: save the file as UTF-8"),
        (b"\xff\xfer\0u\0l\0e\0s\0", "t.yaml:1:1: not UTF-8: save the file as UTF-8"),
        (b"abc\xe9: 1\n", "t.yaml:1:4: not UTF-8: save the file as UTF-8"),
        (
            b"rules: \0\n",
            "t.yaml:1:8: not valid YAML: unexpected character: `\\u{0}': \
             put the value in quotes, or check the indentation",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text), expected);
    }
}

#[test]
fn messages_do_not_contain_the_values_of_variables() {
    let text =
        r#"rules: [{ name: "${SECRET}", match: { tenant: "${SECRET}\t" }, mode: "${SECRET}", limits: [] }]"#;
    let text = problems(text);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("(value \"${SECRET}\")") && !text.contains("hunter"), "{text}");
}

#[test]
fn the_most_of_everything_is_allowed_and_one_more_is_not() {
    let rule = |index: usize| format!("  - {{ name: r{index}, limits: unlimited }}\n");
    let rules = |count: usize| format!("rules:\n{}", (0..count).map(rule).collect::<String>());
    assert_eq!(read(rules(RULES_MAX)).map(|rules| rules.rules().len()), Ok(RULES_MAX));
    assert_eq!(problems(rules(RULES_MAX + 1)), "t.yaml:2:3: rules: 10001 rules: use at most 10000");

    let tiers = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("t{index}")).collect();
        format!("tiers: [{}]\nrules: []\n", names.join(", "))
    };
    assert!(read(tiers(TIERS_MAX)).is_ok());
    assert_eq!(problems(tiers(TIERS_MAX + 1)), "t.yaml:1:8: tiers: 257 tiers: use at most 256");

    let limits = |count: usize| {
        let limit = "{ algorithm: fixed_window, limit: 1, window: 1s }";
        format!("rules: [{{ name: a, limits: [{}] }}]", vec![limit; count].join(", "))
    };
    assert!(read(limits(16)).is_ok());
    assert_eq!(
        problems(limits(17)),
        "t.yaml:1:28: rules[0].limits: a list of 17 limits: \
         write a list of 1 to 16 limits, or the word unlimited"
    );
}
