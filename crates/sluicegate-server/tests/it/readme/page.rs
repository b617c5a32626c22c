//! Parses the blocks of a page into steps, and compares printed output with the output on the page.

/// One step of the tour.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Save a file, which the prose before it names: "Save this as `NAME`".
    Save { name: String, text: String },
    /// Run a command; the lines after it are its output.
    Type { command: String, shown: Vec<String> },
}

/// All steps of a page, in order.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut parts = page.split("\n```");
    let mut prose = parts.next().unwrap_or_default();
    // Blocks and prose alternate.
    while let (Some(block), next) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap_or_default();
        match language {
            "console" => steps.extend(commands(text)),
            "yaml" => {
                let name = prose.rsplit("Save this as `").next().and_then(|rest| rest.split('`').next());
                steps.push(Step::Save { name: name.unwrap_or_default().to_owned(), text: format!("{text}\n") });
            }
            language => panic!("a block of {language:?}: say how a test runs it"),
        }
        prose = next.unwrap_or_default();
    }
    steps
}

fn commands(text: &str) -> Vec<Step> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command.to_owned(), Vec::new())),
            (None, Some((command, _))) if command.ends_with('\\') => {
                command.truncate(command.len() - 1);
                *command += line.trim_start();
            }
            (None, Some((_, shown))) => shown.push(line.to_owned()),
            (None, None) => panic!("a block that begins with no command: {line}"),
        }
    }
    found.into_iter().map(|(command, shown)| Step::Type { command, shown }).collect()
}

/// Whether the output has all lines of the page in their order. Other lines are allowed only if the page has `…` or
/// shows no output.
pub(crate) fn is_shown(printed: &str, shown: &[String]) -> bool {
    let mut lines = printed.lines();
    let are_there = shown.iter().filter(|line| *line != "…").all(|line| lines.any(|printed| fits(printed, line)));
    let is_part = shown.is_empty() || shown.iter().any(|line| line == "…");
    are_there && (is_part || printed.lines().count() == shown.len())
}

/// Whether a line matches the page, with any text for `…`. Unix times always differ.
fn fits(printed: &str, shown: &str) -> bool {
    let (printed, shown) = (without_times(printed), without_times(shown));
    let parts: Vec<&str> = shown.split('…').collect();
    let ([first, middle @ .., last], true) = (&parts[..], parts.len() > 1) else { return printed == shown };
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The text with one `#` for each run of ten digits or more.
fn without_times(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|each: char| each.is_ascii_digit()) {
        let length = rest[start..].bytes().take_while(u8::is_ascii_digit).count();
        let (before, number) = (&rest[..start], &rest[start..start + length]);
        shown.extend([before, if length >= 10 { "#" } else { number }]);
        rest = &rest[start + length..];
    }
    shown + rest
}

/// The statuses in a line that holds nothing else.
pub(crate) fn statuses(line: &str) -> Option<Vec<u16>> {
    let words: Vec<_> = line.split_whitespace().collect();
    let are_statuses = !words.is_empty() && words.iter().all(|word| word.len() == 3);
    if are_statuses { words.into_iter().map(|word| word.parse().ok()).collect() } else { None }
}

#[test]
fn differences_from_the_page_are_found() {
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(is_shown("a\nb: 1705312803000\n", &shown(&["a", "b: 1700000000000"])));
    assert!(is_shown("x\na: 1, c\nb\ny\n", &shown(&["a: …, c", "b", "…"])));
    for different in ["a\n", "a\nb\n", "b\na\n", "a\nb: 2\nc\n", ""] {
        assert!(!is_shown(different, &shown(&["a", "b: 2"])), "{different}");
    }
    assert!(is_shown("{1}, {2}", &shown(&["{…}"])));
    assert!(!is_shown("a: 1, d", &shown(&["a: …, c"])) && !is_shown("a: 1, cd", &shown(&["a: …, c"])));
    assert_eq!(statuses("200 429 "), Some(vec![200, 429]));
    assert_eq!((statuses(""), statuses("abc"), statuses("2000")), (None, None, None));
}
