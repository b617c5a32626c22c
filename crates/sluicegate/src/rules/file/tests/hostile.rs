//! Hostile text: the bounds hold, and nothing makes the reader panic or
//! point outside the text.

use super::super::tree::{BYTES_MAX, DEPTH_MAX, NODES_MAX};
use super::*;
use proptest::prelude::*;

#[test]
fn a_file_larger_than_the_bound_is_rejected() {
    let text = |bytes: usize| format!("rules: []\n#{}", "x".repeat(bytes - 11));
    assert!(read(text(BYTES_MAX)).is_ok());
    assert_eq!(
        problems(text(BYTES_MAX + 1)),
        "t.yaml:1:1: the file has 1048577 bytes: use at most 1048576 bytes (1 MiB)"
    );
}

#[test]
fn nesting_is_bounded() {
    let too_deep = "more than 280 levels of nesting, aliases written out: nest less: rules need seven levels";
    let flow = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(problems(flow(DEPTH_MAX)).contains("not a mapping but a list"));
    for text in [
        flow(DEPTH_MAX + 1),
        flow(10_000),
        "[".repeat(BYTES_MAX),
        "{a: ".repeat(10_000),
        "- ".repeat(10_000),
        "? ".repeat(10_000),
        format!("a: &a {}\nb: [[*a]]\n", flow(DEPTH_MAX - 2)),
    ] {
        let found = problems(&text);
        assert!(found.ends_with(too_deep), "{}: {found}", &text[..20]);
    }
    assert!(!problems(format!("a: &a {}\nb: [*a]\n", flow(DEPTH_MAX - 2))).contains(too_deep));
}

/// Aliases of aliases: few bytes that stand for more values than there are atoms.
#[test]
fn alias_expansion_is_bounded() {
    let too_many = "the file has more than 250000 values, aliases written out: use fewer values or fewer aliases";
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..30 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert!(problems(&text).ends_with(too_many));

    let wide = format!("a: &a [{}]\n{}", "x,".repeat(NODES_MAX / 4), "b: *a\n".repeat(3));
    assert!(problems(wide).ends_with(too_many));

    let nested = format!("{}x", (0..31).map(|level| format!("&a{level} [")).collect::<String>());
    let nested = format!("{nested}{}{}", ",x".repeat(NODES_MAX / 30), "]".repeat(31));
    assert!(problems(nested).ends_with(too_many));

    assert!(problems(format!("[{}]", "x,".repeat(NODES_MAX))).ends_with(too_many));
}

#[test]
fn the_number_of_problems_is_bounded() {
    let text: String = (0..60_000).map(|index| format!("key{index}: 1\n")).collect();
    let found = problems(&text);
    assert_eq!(found.lines().count(), 10_001);
    assert!(found.ends_with("t.yaml: 50001 more problems: solve these first"), "{}", &found[found.len() - 80..]);
}

/// Each of these fills a file with input that could make a parser slow. All of them together take seconds; one of
/// them in quadratic time would take hours.
#[test]
fn the_largest_hostile_files_are_rejected_in_linear_time() {
    let fill = |part: &str| part.repeat(BYTES_MAX / part.len());
    let texts = [
        fill("a"),
        fill(" "),
        fill("\n"),
        fill("\""),
        fill("'"),
        fill("a: "),
        fill("- a\n"),
        fill("a:\n"),
        fill("a: a\n"),
        fill("&a "),
        fill("*a "),
        fill("! "),
        fill("# a\n"),
        fill("a b\n"),
        fill("[],"),
        fill("{},"),
        fill("? a\n"),
        fill("--- a\n"),
        fill("%a\n"),
        fill("|\n a\n"),
        fill("\\"),
        fill("${A}"),
        fill("é"),
        format!("rules: [{}", fill("a,")),
        format!("rules: [{}", fill("{a: b},")),
        format!("rules: \"{}", fill("\\n")),
        format!("rules: {}", fill("${")),
        format!("rules: [{{ name: a, limits: unlimited, overrides: [{}", fill("{},")),
    ];
    for text in texts {
        assert!(read(&text[..text.floor_char_boundary(BYTES_MAX)]).is_err());
    }
}

/// Whatever comes, there are rules or problems, and each problem has a place in the text.
fn holds(text: &[u8]) -> Result<(), TestCaseError> {
    let Err(problems) = read(text) else { return Ok(()) };
    prop_assert!(!problems.list().is_empty());
    let text = String::from_utf8_lossy(text);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for problem in problems.list() {
        let Place { line, column } = problem.place;
        let within = line >= 1 && line <= lines.len() && column >= 1 && column <= lines[line - 1] + 1;
        prop_assert!(within, "{problem} in {text:?}");
        prop_assert!(!problem.message.is_empty() && !problem.remedy.is_empty());
        prop_assert!(!problem.to_string().contains(char::is_control), "{problem:?}");
    }
    Ok(())
}

const GOOD: &str = r#"tiers: [free, pro]
unmatched: allow
rules:
  - name: payments
    match: { tenant: "*", resource: "api.*" }
    per: [tenant, identifier]
    limits: &limits
      - { algorithm: token_bucket, capacity: 100, refill: 100/60s, credits: 5, credit_ttl: 24h }
      - { algorithm: fixed_window, limit: 10000, window: 1d, align: key, name: "daily" }
    tiers: { pro: unlimited, free: *limits }
    overrides:
      - identifier: "vip-*"
        limits: unlimited
    mode: shadow
    cost: 1
"#;

/// The pieces of edits: YAML, the grammar of rules, and neither.
const PIECES: &[&str] = &[
    "",
    " ",
    "\n",
    "\r",
    "\t",
    "  ",
    ":",
    ": ",
    "- ",
    ",",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "!t ",
    "|\n",
    ">",
    "%",
    "@",
    "`",
    "?",
    "~",
    "---\n",
    "...\n",
    "<<: ",
    "0",
    "-1",
    "1.5",
    "1e9",
    "0x1",
    "5m",
    "1/s",
    "/",
    "99999999999999999999",
    "true",
    "off",
    "null",
    "${A}",
    "${RATE}",
    "$${",
    "${",
    "\u{feff}",
    "é",
    "\u{202e}",
    "\u{0}",
    "\u{85}",
    "\u{2028}",
    "rules",
    "name: ",
    "limits:",
    "unlimited",
    "*limits",
    "\\",
    "\\x",
    "\u{1b}[0m",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_edited_file_gives_rules_or_problems_inside_the_text(
        edits in prop::collection::vec((0..GOOD.len(), 0..12_usize, 0..PIECES.len()), 1..6)
    ) {
        let mut text = GOOD.to_owned();
        for (at, removed, piece) in edits {
            let start = text.floor_char_boundary(at.min(text.len()));
            let end = text.floor_char_boundary((start + removed).min(text.len())).max(start);
            text.replace_range(start..end, PIECES[piece]);
        }
        holds(text.as_bytes())?;
    }

    #[test]
    fn pieces_in_any_order_give_rules_or_problems_inside_the_text(
        pieces in prop::collection::vec(0..PIECES.len(), 0..40)
    ) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        holds(text.as_bytes())?;
    }

    #[test]
    fn any_text_gives_rules_or_problems_inside_the_text(text in "\\PC{0,200}|(?s:.{0,200})") {
        holds(text.as_bytes())?;
    }

    #[test]
    fn any_bytes_give_rules_or_problems_inside_the_text(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in 0..GOOD.len(),
    ) {
        holds(&bytes)?;
        holds(&[&GOOD.as_bytes()[..at], &bytes, &GOOD.as_bytes()[at..]].concat())?;
    }
}
