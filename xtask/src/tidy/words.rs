//! Rules about words that must not be in any file.
//!
//! The words are assembled from halves below, so that this file does not break its own rules.

use super::{Problem, Tree};

const IN_ANY_FILE: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Includes the ways to skip a test or a documentation example.
const IN_RUST: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[", "ignore"),
    concat!(", ", "ignore)"),
    concat!("```", "ignore"),
    concat!("```rust", ",ignore"),
];

const OF_ONE_MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Unfinished work is an issue, not a note in the code, and a skipped test tests nothing.
pub(super) fn nothing_is_left_for_later(tree: &Tree<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        let only_rust = if file.path.ends_with(".rs") { IN_RUST } else { &[] };
        for (number, line) in file.lines() {
            for word in IN_ANY_FILE.iter().chain(only_rust).filter(|word| line.contains(**word)) {
                problems
                    .push(file.problem(number, format!("`{word}`: do it now, or open an issue and remove it")));
            }
        }
    }
    problems
}

/// An absolute path is valid only on one machine.
pub(super) fn no_path_of_one_machine(tree: &Tree<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        for (number, line) in file.lines() {
            for path in OF_ONE_MACHINE.iter().filter(|path| starts_a_path(line, path)) {
                problems
                    .push(file.problem(number, format!("`{path}` is a path of one machine; use a relative one")));
            }
        }
    }
    problems
}

/// Whether the folder is at the start of a path, and not inside a longer path or an address.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        before.is_none_or(|character| !(character.is_alphanumeric() || "._-~*})/".contains(character)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn every_word_for_later_is_found() {
        for word in IN_ANY_FILE.iter().chain(IN_RUST) {
            let text = format!("fine\nlet x = 1; // {word} soon\n");
            assert_eq!(
                found(nothing_is_left_for_later, &[("crates/a/src/lib.rs", &text)]),
                [format!("crates/a/src/lib.rs:2: `{word}`: do it now, or open an issue and remove it")]
            );
        }
    }

    #[test]
    fn prose_may_speak_of_the_macros_but_leaves_nothing_for_later() {
        let (later, skipped) = (IN_ANY_FILE[0], IN_RUST[2]);
        let files = [("guide.md", format!("{later}: write this\nWe do not use {skipped}]\n"))];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        assert_eq!(
            found(nothing_is_left_for_later, &files),
            [format!("guide.md:1: `{later}`: do it now, or open an issue and remove it")]
        );
    }

    #[test]
    fn every_path_of_one_machine_is_found() {
        for folder in OF_ONE_MACHINE {
            let text = format!("first\nsee `{folder}main`\n");
            assert_eq!(
                found(no_path_of_one_machine, &[("README.md", &text)]),
                [format!("README.md:2: `{folder}` is a path of one machine; use a relative one")]
            );
        }
    }

    #[test]
    fn addresses_and_longer_paths_are_not_paths_of_one_machine() {
        for folder in OF_ONE_MACHINE {
            let text = format!("https://example.com{folder}x ../a{folder}x ${{dir}}{folder}x ..{folder}x");
            assert!(found(no_path_of_one_machine, &[("README.md", &text)]).is_empty(), "{text}");
        }
    }
}
