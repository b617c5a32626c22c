//! The rule about the list of source defects: a test cites each row, and each citation has a row.

use std::collections::BTreeMap;

use super::{Problem, SourceFile, Tree};

const PAGE: &str = "docs/source-defects.md";

/// Each numbered row of the page is cited as "Row N" in a Rust file, and each "Row N" there is on the page.
pub(super) fn every_defect_has_a_test(tree: &Tree<'_>) -> Vec<Problem> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let mut rows: BTreeMap<u32, (usize, bool)> =
        page.lines().filter_map(|(line, text)| Some((row_of(text)?, (line, false)))).collect();
    let mut problems = Vec::new();
    for file in tree.rust_files().filter(|file| file.path.starts_with("crates/")) {
        for (line, row) in file.lines().flat_map(citations) {
            match rows.get_mut(&row) {
                Some((_, is_cited)) => *is_cited = true,
                None => problems.push(file.problem(line, format!("there is no row {row} in {PAGE}"))),
            }
        }
    }
    problems.extend(uncited(page, &rows));
    problems
}

fn uncited(page: &SourceFile, rows: &BTreeMap<u32, (usize, bool)>) -> Vec<Problem> {
    rows.iter()
        .filter(|(_, (_, is_cited))| !is_cited)
        .map(|(row, &(line, _))| {
            page.problem(line, format!("no test cites row {row}: write `Row {row}` above one"))
        })
        .collect()
}

/// The number in the first cell of a row.
fn row_of(line: &str) -> Option<u32> {
    line.strip_prefix('|')?.split('|').next()?.trim().parse().ok()
}

/// The numbers of `Row 1` and `Rows 1, 2 and 3` in a comment.
fn citations((number, line): (usize, &str)) -> Vec<(usize, u32)> {
    let Some((_, comment)) = line.split_once("//") else { return Vec::new() };
    let mut found = Vec::new();
    for (start, word) in comment.match_indices("Row") {
        let rest = &comment[start + word.len()..];
        let mut rest = rest.strip_prefix('s').unwrap_or(rest);
        while let Some(next) = [" ", ", ", " and "].iter().find_map(|between| number_after(rest, between)) {
            found.push((number, next.0));
            rest = next.1;
        }
    }
    found
}

fn number_after<'a>(text: &'a str, between: &str) -> Option<(u32, &'a str)> {
    let text = text.strip_prefix(between)?;
    let end = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const ROWS: &str = "| row | a |\n|---|---|\n| 1 | a |\n| 2 | b |\n| 3 | c |\n";

    fn problems(code: &str) -> Vec<String> {
        found(every_defect_has_a_test, &[(PAGE, ROWS), ("crates/a/tests/it/x.rs", code)])
    }

    #[test]
    fn rows_are_cited_one_by_one_or_together() {
        assert!(problems("// Row 1. Text.\n/// Rows 2 and 3: text.\n").is_empty());
        assert!(problems("/// Rows 1, 2 and 3\n").is_empty());
    }

    #[test]
    fn a_row_without_a_test_and_a_citation_without_a_row_are_found() {
        assert_eq!(
            problems("/// Rows 1 and 4: text.\n// Row 3. Not 2: Rowing 2.\nlet row = \"Row 2\";\n"),
            [
                format!("crates/a/tests/it/x.rs:1: there is no row 4 in {PAGE}"),
                format!("{PAGE}:4: no test cites row 2: write `Row 2` above one"),
            ]
        );
    }
}
