//! Rules about Rust files: they have module documentation, stay short, and are compiled.

use super::{Problem, SourceFile, Tree};

const LINES_MAX: usize = 600;

/// Every source file opens with `//!`: its purpose, its guarantees, and the things that it leaves to others.
pub(super) fn files_have_module_documentation(tree: &Tree<'_>) -> Vec<Problem> {
    tree.rust_files()
        .filter(|file| is_source(&file.path) && !file.text.starts_with("//!"))
        .map(|file| file.problem(1, "a source file starts with `//!` and what it is for"))
        .collect()
}

/// A file holds one idea: at most [`LINES_MAX`] lines before its tests.
pub(super) fn files_are_short(tree: &Tree<'_>) -> Vec<Problem> {
    tree.rust_files()
        .filter(|file| !is_test(&file.path))
        .map(|file| (file, lines_before_tests(&file.text)))
        .filter(|&(_, lines)| lines > LINES_MAX)
        .map(|(file, lines)| {
            file.problem(None, format!("{lines} lines before the tests; divide it, {LINES_MAX} is the most"))
        })
        .collect()
}

/// A file without a `mod` line is never compiled: its code is dead and its tests pass by not running.
pub(super) fn files_are_compiled(tree: &Tree<'_>) -> Vec<Problem> {
    tree.rust_files()
        .filter_map(|file| {
            let (name, owners) = owners(&file.path)?;
            let named = owners.iter().filter_map(|owner| tree.file(owner)).any(|owner| declares(owner, name));
            let message = format!("never compiled: no `mod {name};` in {}", owners.join(" or "));
            (!named).then(|| file.problem(None, message))
        })
        .collect()
}

fn is_source(path: &str) -> bool {
    path.starts_with("xtask/")
        || path.starts_with("fuzz/")
        || (path.starts_with("crates/") && path.contains("/src/"))
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Counts up to the first test-only module. A lone `#[cfg(test)]` function does not end the file.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let opens_tests = |&start: &usize| {
        let mut following = lines[start..].iter().skip_while(|line| line.starts_with("#["));
        lines[start].starts_with("#[cfg(")
            && lines[start].contains("test")
            && following.next().is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    (0..lines.len()).find(opens_tests).unwrap_or(lines.len())
}

/// The name of the module in the file, and the files of which one must declare it.
///
/// `None` for files that Cargo compiles by itself: crate roots, and files outside `src` and the
/// folders under `tests`.
fn owners(path: &str) -> Option<(&str, Vec<String>)> {
    let (folder, file) = path.rsplit_once('/')?;
    if !format!("/{folder}/").contains("/src/") && !folder.contains("/tests/") {
        return None;
    }
    let is_root = matches!(file, "lib.rs" | "main.rs") && crate_roots(folder).is_some();
    if is_root || folder.ends_with("/src/bin") {
        return None;
    }
    match file.strip_suffix(".rs")? {
        "mod" => folder.rsplit_once('/').map(|(above, name)| (name, module_files(above))),
        name => Some((name, module_files(folder))),
    }
}

/// The files that may declare the modules in the folder.
fn module_files(folder: &str) -> Vec<String> {
    crate_roots(folder).unwrap_or_else(|| vec![format!("{folder}.rs"), format!("{folder}/mod.rs")])
}

/// The root files of a crate in this folder, if it can contain one.
fn crate_roots(folder: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = folder.split('/').collect();
    let names: &[&str] = match parts[..] {
        [.., "src"] => &["lib.rs", "main.rs"],
        [.., "src", "bin", _] => &["main.rs"],
        ["crates", _, "tests", _] => &["main.rs"],
        _ => return None,
    };
    Some(names.iter().map(|name| format!("{folder}/{name}")).collect())
}

fn declares(owner: &SourceFile, name: &str) -> bool {
    owner.lines().any(|(_, line)| {
        let line = line.trim_start();
        let line = ["pub ", "pub(crate) ", "pub(super) "]
            .iter()
            .find_map(|visibility| line.strip_prefix(visibility))
            .unwrap_or(line);
        line.strip_prefix("mod ").and_then(|rest| rest.split_once(';')).is_some_and(|(named, _)| named == name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_source_file_without_an_opening_is_found() {
        assert_eq!(
            found(
                files_have_module_documentation,
                &[
                    ("crates/sluicegate/src/key.rs", "// Keys.\n"),
                    ("crates/sluicegate/src/store/memory.rs", "\n//! Too late.\n"),
                    ("xtask/src/main.rs", ""),
                    ("crates/sluicegate/src/lib.rs", "//! The library.\n"),
                    ("crates/sluicegate/examples/embed.rs", "fn main() {}\n"),
                ]
            ),
            [
                "crates/sluicegate/src/key.rs:1: a source file starts with `//!` and what it is for",
                "crates/sluicegate/src/store/memory.rs:1: a source file starts with `//!` and what it is for",
                "xtask/src/main.rs:1: a source file starts with `//!` and what it is for",
            ]
        );
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let tests = "#[cfg(all(test, not(loom)))]\n#[expect(unused)]\nmod tests {\n}\n";
        let fits = format!("{}{tests}{}", "line\n".repeat(600), "test\n".repeat(900));
        let too_long = format!("{}{tests}", "line\n".repeat(601));
        assert_eq!(
            found(
                files_are_short,
                &[
                    ("crates/a/src/fits.rs", &fits),
                    ("crates/a/src/long.rs", &too_long),
                    ("crates/a/src/long/tests.rs", &too_long),
                    ("crates/a/tests/it/long.rs", &too_long),
                ]
            ),
            ["crates/a/src/long.rs: 601 lines before the tests; divide it, 600 is the most"]
        );
    }

    #[test]
    fn an_early_function_for_tests_does_not_hide_the_rest() {
        let text = format!("#[cfg(test)]\nfn early() {{}}\n{}", "line\n".repeat(600));
        assert_eq!(lines_before_tests(&text), 602);
        assert_eq!(lines_before_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
    }

    #[test]
    fn a_test_file_main_does_not_name_is_found() {
        assert_eq!(
            found(
                files_are_compiled,
                &[
                    ("crates/a/tests/it/main.rs", "mod named;\n// mod forgotten;\nmod forgotten_too_long;\n"),
                    ("crates/a/tests/it/named.rs", "mod deep;"),
                    ("crates/a/tests/it/named/deep.rs", ""),
                    ("crates/a/tests/it/forgotten.rs", ""),
                    ("crates/a/tests/other/lost.rs", ""),
                    ("crates/a/tests/single.rs", ""),
                ]
            ),
            [
                "crates/a/tests/it/forgotten.rs: never compiled: no `mod forgotten;` in crates/a/tests/it/main.rs",
                "crates/a/tests/other/lost.rs: never compiled: no `mod lost;` in crates/a/tests/other/main.rs",
            ]
        );
    }

    #[test]
    fn a_source_file_no_one_names_is_found() {
        assert_eq!(
            found(
                files_are_compiled,
                &[
                    ("crates/a/src/lib.rs", "pub mod store;\npub(crate) mod old;\n"),
                    ("crates/a/src/store.rs", "#[cfg(loom)]\nmod memory;\n"),
                    ("crates/a/src/store/memory.rs", "mod tests;"),
                    ("crates/a/src/store/memory/tests.rs", ""),
                    ("crates/a/src/store/redis.rs", ""),
                    ("crates/a/src/old/mod.rs", "mod inner;"),
                    ("crates/a/src/old/inner.rs", ""),
                    ("crates/a/src/bin/tool.rs", ""),
                    ("crates/a/src/bin/big/main.rs", "mod part;"),
                    ("crates/a/src/bin/big/part.rs", ""),
                    ("crates/a/src/top.rs", ""),
                    ("crates/a/examples/embed.rs", ""),
                    ("crates/a/build.rs", ""),
                ]
            ),
            [
                "crates/a/src/store/redis.rs: never compiled: no `mod redis;` in \
                 crates/a/src/store.rs or crates/a/src/store/mod.rs",
                "crates/a/src/top.rs: never compiled: no `mod top;` in \
                 crates/a/src/lib.rs or crates/a/src/main.rs",
            ]
        );
    }
}
