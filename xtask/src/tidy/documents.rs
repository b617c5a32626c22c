//! Rules about Markdown files: links resolve, and the index lists each decision record.
//!
//! Only links inside the repository are checked, and only their files: neither the network nor the heading
//! after a `#`.

use super::{Problem, SourceFile, Tree};

const DECISIONS: &str = "docs/decisions/";

/// A relative link names an existing file or folder of the repository.
pub(super) fn links_lead_somewhere(tree: &Tree<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, target) in links(file) {
            match resolve(&file.path, &target) {
                Some(path) if exists(tree, &path) => {}
                _ => problems.push(file.problem(number, format!("the link to `{target}` leads nowhere"))),
            }
        }
    }
    problems
}

/// Every decision record is linked from the index, and no two have the same number.
pub(super) fn decisions_are_listed(tree: &Tree<'_>) -> Vec<Problem> {
    let index = tree.file(&format!("{DECISIONS}README.md"));
    let listed: Vec<String> =
        index.map_or(Vec::new(), |index| links(index).into_iter().map(|(_, to)| to).collect());
    let mut numbers: Vec<&str> = Vec::new();
    let mut problems = Vec::new();
    for (record, name) in decisions(tree) {
        if !listed.iter().any(|target| target == name) {
            problems.push(record.problem(None, format!("not listed in {DECISIONS}README.md")));
        }
        match number(name) {
            None => problems.push(record.problem(None, "a decision record is named `0001-…`, `0002-…`")),
            Some(number) if numbers.contains(&number) => {
                problems.push(record.problem(None, format!("another decision record has the number {number}")));
            }
            Some(number) => numbers.push(number),
        }
    }
    problems
}

fn decisions<'a>(tree: &'a Tree<'_>) -> impl Iterator<Item = (&'a SourceFile, &'a str)> {
    tree.files.iter().filter_map(|file| {
        let name = file.path.strip_prefix(DECISIONS)?;
        (name.ends_with(".md") && name != "README.md").then_some((file, name))
    })
}

fn number(name: &str) -> Option<&str> {
    let (number, _) = name.split_once('-')?;
    (number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// The relative targets of all links outside code, without the part after `#`, with their lines.
fn links(file: &SourceFile) -> Vec<(usize, String)> {
    let mut fence: Option<&str> = None;
    let mut links = Vec::new();
    for (number, line) in file.lines() {
        let marker = ["```", "~~~"].into_iter().find(|marker| line.trim_start().starts_with(marker));
        match (fence, marker) {
            (None, Some(opening)) => fence = Some(opening),
            (Some(open), Some(closing)) if open == closing => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                let prose = without_code(line);
                links.extend(targets(&prose).into_iter().filter_map(relative).map(|target| (number, target)));
            }
        }
    }
    links
}

/// The line without its `code`.
fn without_code(line: &str) -> String {
    match line.matches('`').count() % 2 {
        0 => line.split('`').step_by(2).collect::<Vec<_>>().join("code"),
        _ => line.to_owned(),
    }
}

/// All link targets in a line of Markdown: `[text](target)`, `[label]: target`, and HTML's `src` and `href`.
fn targets(prose: &str) -> Vec<&str> {
    let mut targets: Vec<&str> = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    for attribute in ["src=\"", "href=\""] {
        targets.extend(prose.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    if let Some((label, target)) = prose.split_once("]: ")
        && label.starts_with('[')
        && !label.starts_with("[^")
    {
        targets.push(target);
    }
    targets
}

fn relative(target: &str) -> Option<String> {
    let target = target.split_whitespace().next()?.trim_start_matches('<').trim_end_matches('>');
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().filter(|path| !path.is_empty())?;
    (!elsewhere).then(|| path.to_owned())
}

/// The path from the root of the repository; `None` if the link leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => from.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn exists(tree: &Tree<'_>, path: &str) -> bool {
    let is_inside = |file: &SourceFile| file.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    path.is_empty() || tree.files.iter().any(|file| file.path == path || is_inside(file))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    /// The problems of `docs/guide.md` with this text, in a repository with a few more files.
    fn broken(text: &str) -> Vec<String> {
        let files =
            [("README.md", ""), ("docs/decisions/README.md", ""), ("docs/a.md", ""), ("docs/guide.md", text)];
        found(links_lead_somewhere, &files)
    }

    #[test]
    fn a_link_to_nothing_is_found_in_every_form() {
        for (text, target) in [
            ("see [b](b.md)", "b.md"),
            ("see [a](a.md) and [b](sub/b.md#part \"title\")", "sub/b.md"),
            ("![picture](b.svg)", "b.svg"),
            ("[b]: ../b.md", "../b.md"),
            ("<img src=\"b.png\">", "b.png"),
            ("`code` [b](</b.md>)", "/b.md"),
            ("[out](../../other/README.md)", "../../other/README.md"),
        ] {
            assert_eq!(
                broken(&format!("first line\n{text}\n")),
                [format!("docs/guide.md:2: the link to `{target}` leads nowhere")]
            );
        }
    }

    #[test]
    fn links_to_files_folders_headings_and_other_sites_are_fine() {
        for text in [
            "[a](a.md) [a](./a.md#part) [top](../README.md) [root](/README.md)",
            "[folder](decisions) [folder](decisions/) [all](..)",
            "[here](#part) [site](https://example.com/b.md) [mail](mailto:a@example.com)",
            "`[b](b.md)`\n```text\n[b](b.md)\n```\n~~~\n```\n[b](b.md)\n~~~",
            "[^1]: a footnote",
        ] {
            assert!(broken(text).is_empty(), "{text}: {:?}", broken(text));
        }
    }

    #[test]
    fn a_link_behind_a_block_of_code_is_followed_again() {
        assert_eq!(broken("```\ncode\n```\n[b](b.md)").len(), 1);
    }

    #[test]
    fn a_decision_that_is_not_listed_is_found() {
        let index = ("docs/decisions/README.md", "- [1](0001-clock.md)\n- `0002-keys.md`\n");
        assert_eq!(
            found(
                decisions_are_listed,
                &[index, ("docs/decisions/0001-clock.md", ""), ("docs/decisions/0002-keys.md", "")]
            ),
            ["docs/decisions/0002-keys.md: not listed in docs/decisions/README.md"]
        );
        assert_eq!(
            found(decisions_are_listed, &[("docs/decisions/0001-clock.md", "")]),
            ["docs/decisions/0001-clock.md: not listed in docs/decisions/README.md"]
        );
    }

    #[test]
    fn a_number_that_is_missing_or_used_twice_is_found() {
        let index = "[a](0001-a.md) [b](0001-b.md) [c](c.md)";
        assert_eq!(
            found(
                decisions_are_listed,
                &[
                    ("docs/decisions/README.md", index),
                    ("docs/decisions/0001-a.md", ""),
                    ("docs/decisions/0001-b.md", ""),
                    ("docs/decisions/c.md", ""),
                ]
            ),
            [
                "docs/decisions/0001-b.md: another decision record has the number 0001",
                "docs/decisions/c.md: a decision record is named `0001-…`, `0002-…`",
            ]
        );
    }
}
