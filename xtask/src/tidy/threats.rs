//! Rules about the threat model and the invariants of ARCHITECTURE.md: every row names the tests or lints that hold it, and
//! the tests exist.

use super::{Problem, SourceFile, Tree};

const PAGES: &[&str] = &["docs/threat-model.md", "ARCHITECTURE.md"];
/// Paths on the pages are relative to this folder.
const CRATES: &str = "crates/";

/// A row of a lint instead of a test contains this.
const LINT: &str = "`cargo xtask lint`";

/// A numbered row names at least one test or the lint, and every named test exists in its file.
pub(super) fn named_tests_exist(tree: &Tree<'_>) -> Vec<Problem> {
    PAGES.iter().filter_map(|page| tree.file(page)).flat_map(|page| problems_of(tree, page)).collect()
}

fn problems_of(tree: &Tree<'_>, page: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in page.lines() {
        let tests = tests(line);
        if is_numbered(line) && tests.is_empty() && !line.contains(LINT) {
            problems.push(page.problem(number, "no test holds this line: name one as `crate/path.rs::test`"));
        }
        for (path, name) in tests {
            let file = tree.file(&format!("{CRATES}{path}"));
            if !file.is_some_and(|file| has_test(file, name)) {
                problems.push(page.problem(number, format!("there is no test `{name}` in {CRATES}{path}")));
            }
        }
    }
    problems
}

/// A row of a table that begins with a number.
fn is_numbered(line: &str) -> bool {
    let first = line.strip_prefix('|').and_then(|row| row.split('|').next()).map(str::trim);
    first.is_some_and(|first| !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Code spans of the form `path.rs::name`.
fn tests(line: &str) -> Vec<(&str, &str)> {
    let in_code = line.split('`').skip(1).step_by(2);
    in_code.filter_map(|code| code.split_once("::")).filter(|(path, _)| path.ends_with(".rs")).collect()
}

/// Whether the file has a function of this name with a test attribute.
fn has_test(file: &SourceFile, name: &str) -> bool {
    let wanted = format!("fn {name}(");
    let mut is_test = false;
    for (_, line) in file.lines() {
        let line = line.trim();
        if line.contains(&wanted) {
            return is_test;
        }
        // Other attributes and comments may stand between the test attribute and its function.
        is_test = line.starts_with("#[test]")
            || line.starts_with("#[tokio::test")
            || is_test && (line.is_empty() || line.starts_with("#[") || line.starts_with("//"));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const PAGE: &str = PAGES[0];
    const CODE: &str = "//! Tests.\n#[test]\nfn it_holds() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\n\
                        async fn it_waits() {}\n\nfn helper() {}\n\n    #[test]\n    fn of_a_property(x in 0..1) {}\n";

    fn problems(page: &str) -> Vec<String> {
        found(named_tests_exist, &[(PAGE, page), ("crates/a/tests/it/x.rs", CODE)])
    }

    #[test]
    fn every_numbered_row_names_tests_that_exist() {
        let good = "| | attack |\n|---|---|\n| 1 | a | `a/tests/it/x.rs::it_holds` `a/tests/it/x.rs::it_waits` |\n\
                    | 2 | b | `a/tests/it/x.rs::of_a_property` |\n| 3 | c | `cargo xtask lint` (`clippy`) |\n\
                    text with `code::path` and `a/tests/it/x.rs`\n";
        assert!(problems(good).is_empty(), "{:?}", problems(good));
        assert_eq!(
            problems("| 7 | a | b |\n"),
            [format!("{PAGE}:1: no test holds this line: name one as `crate/path.rs::test`")]
        );
        for gone in ["a/tests/it/x.rs::gone", "a/tests/it/x.rs::helper", "a/tests/it/y.rs::it_holds"] {
            let (path, name) = gone.split_once("::").unwrap();
            let expected = format!("{PAGE}:1: there is no test `{name}` in crates/{path}");
            assert_eq!(problems(&format!("| 1 | a | `{gone}` |")), [expected]);
        }
    }
}
