//! Mutants of the script in Redis: one operator, constant or branch of the Lua code is replaced, in a copy of the
//! workspace, and the tests of the script are run against it.
//!
//! The copy reads the files of the script when it starts instead of including them in the program, so that its tests are
//! compiled once for all mutants.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Outcome, Shard};
use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers::Servers;
use crate::tools::printable;
use crate::workspace::Workspace;

/// The folder of the script.
const FOLDER: &str = "crates/sluicegate/src/store/redis/lua";
/// The files of the script, without the clock of the tests.
const FILES: [&str; 9] = [
    "charge.lua",
    "batch.lua",
    "common.lua",
    "recent_charges.lua",
    "bucket.lua",
    "windows.lua",
    "log.lua",
    "keys.lua",
    "decide.lua",
];
/// The replacements. Words match only at word boundaries.
const REPLACEMENTS: [(&str, &str); 18] = [
    (" <= ", " < "),
    (" >= ", " > "),
    (" < ", " <= "),
    (" > ", " >= "),
    (" == ", " ~= "),
    (" ~= ", " == "),
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" and ", " or "),
    (" or ", " and "),
    ("max(", "min("),
    ("min(", "max("),
    ("not ", ""),
    ("return true", "return false"),
    ("return false", "return true"),
    (" 1 ", " 2 "),
    (" 0 ", " 1 "),
];
/// The test modules that have to fail: parity with the core first, because it catches most mutants.
const TESTS: [&str; 5] = ["lua_parity", "redis_undo", "redis_release", "redis_store", "redis_calendar"];
/// The source file that includes the script's files, and the code that makes the copy read them at run time.
const LOADER: &str = "crates/sluicegate/src/store/redis/protocol/scripts.rs";
const FILE_READER: &str = r#"
fn file(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/lua/");
    std::fs::read_to_string(folder.to_owned() + name).expect("the files of the script are there")
}

fn joined(files: &[&str]) -> &'static str {
    files.concat().leak()
}
"#;
/// The timeout in seconds after which a mutant counts as caught.
const SECONDS_MAX: &str = "600";

/// One change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    file: &'static str,
    line: usize,
    /// The index of the occurrence on the line.
    column: usize,
    from: &'static str,
    to: &'static str,
    /// The original line without indentation and comment.
    code: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, from, to, code } = self;
        write!(formatter, "{file}:{line}:{column}: replace `{}` with `{}` in `{code}`", from.trim(), to.trim())
    }
}

/// The mutants of a shard.
pub(super) fn mutants(workspace: &Workspace, shard: Shard) -> Result<Vec<Mutant>, Failure> {
    let mut all = Vec::new();
    for file in FILES {
        all.extend(mutants_of(file, &text(&workspace.root.join(FOLDER).join(file))?));
    }
    let places = all.into_iter().enumerate().filter(|(place, _)| shard.has(*place));
    Ok(places.map(|(_, mutant)| mutant).collect())
}

/// Runs the tests against every mutant of a shard.
pub(super) fn run(workspace: &Workspace, shard: Shard) -> Result<Outcome, Failure> {
    let mutants = mutants(workspace, shard)?;
    let copy = workspace.target.join("mutants/script");
    copy_tree(workspace, &copy)?;
    let loader = copy.join(LOADER);
    write(&loader, &reading_files_at_start(&text(&workspace.root.join(LOADER))?)?)?;
    let program = compiled_tests(workspace, &copy)?;
    println!("The tests must pass on the unchanged script:");
    for module in TESTS {
        tests(workspace, &copy, &program, module)?.run()?;
    }
    let mut outcome = Outcome::default();
    for (number, mutant) in mutants.iter().enumerate() {
        let original = text(&workspace.root.join(FOLDER).join(mutant.file))?;
        let path = copy.join(FOLDER).join(mutant.file);
        write(&path, &mutant.applied(&original))?;
        let caught_by = first_failing_module(workspace, &copy, &program)?;
        write(&path, &original)?;
        let result = caught_by.map_or_else(|| "SURVIVED".to_owned(), |module| format!("caught by {module}"));
        println!("[{}/{}] {mutant}: {result}", number + 1, mutants.len());
        if caught_by.is_some() {
            outcome.caught += 1;
        } else {
            outcome.survivors.push(mutant.to_string());
        }
    }
    Ok(outcome)
}

/// The source of the script's loader, changed to read the script's files at run time.
fn reading_files_at_start(loader: &str) -> Result<String, Failure> {
    let changed = loader.replace("concat!(\n", "joined(&[\n").replace("        )\n    };", "        ])\n    };");
    let mut lines = Vec::new();
    for line in changed.lines() {
        let file =
            line.trim_start().strip_prefix("include_str!(\"../lua/").and_then(|rest| rest.strip_suffix("\"),"));
        lines.push(file.map_or_else(|| line.to_owned(), |file| format!("&file({file:?}),")));
    }
    if changed == loader || !FILES.iter().all(|file| lines.iter().any(|line| *line == format!("&file({file:?}),")))
    {
        return Err(Failure::step(format!("{LOADER} no longer has the form that mutants of the script need")));
    }
    Ok(lines.join("\n") + FILE_READER)
}

/// Compiles the tests in the copy and returns the path of their program.
fn compiled_tests(workspace: &Workspace, copy: &Path) -> Result<String, Failure> {
    let output = Invocation::new("cargo")
        .arguments("test --locked --no-run --package sluicegate --all-features --test it --target-dir")
        .argument(printable(&workspace.target.join("mutants/build"))?)
        .within(copy)
        .run_and_keep_errors()?;
    let program = output.lines().find_map(|line| line.trim().strip_prefix("Executable")?.split(['(', ')']).nth(1));
    program.map(str::to_owned).ok_or_else(|| Failure::step("cargo did not say where the compiled tests are"))
}

/// The first module of [`TESTS`] with a test that fails or times out.
fn first_failing_module(
    workspace: &Workspace,
    copy: &Path,
    program: &str,
) -> Result<Option<&'static str>, Failure> {
    for module in TESTS {
        let is_failure = |line: &str| line.starts_with("test ") && line.ends_with("FAILED");
        if !tests(workspace, copy, program, module)?.succeeds_without(is_failure)? {
            return Ok(Some(module));
        }
    }
    Ok(None)
}

/// The tests of a module. `timeout` leads a process group, so ending it also ends the servers that the tests have started.
fn tests(workspace: &Workspace, copy: &Path, program: &str, module: &str) -> Result<Invocation, Failure> {
    let invocation = Invocation::new("timeout")
        .arguments(SECONDS_MAX)
        .argument(program)
        .argument(format!("{module}::"))
        .within(&copy.join("crates/sluicegate"));
    Ok(Servers::find_or_install(workspace)?.tell(invocation))
}

/// Copies all files that Git tracks, so that the working copy never changes.
fn copy_tree(workspace: &Workspace, copy: &Path) -> Result<(), Failure> {
    let files = Invocation::new("git").arguments("ls-files -z --cached").within(&workspace.root).output()?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (workspace.root.join(file), copy.join(file));
        if !from.is_file() || is_same(&from, &to) {
            continue;
        }
        let failed = |error| Failure::step(format!("cannot copy {}: {error}", from.display()));
        let folder = to.parent().map_or_else(|| copy.to_owned(), Path::to_owned);
        fs::create_dir_all(folder).map_err(failed)?;
        fs::copy(&from, &to).map_err(failed)?;
    }
    Ok(())
}

/// Unchanged files keep their modification time, so that they are not compiled again.
fn is_same(from: &Path, to: &Path) -> bool {
    matches!((fs::read(from), fs::read(to)), (Ok(from), Ok(to)) if from == to)
}

fn mutants_of(file: &'static str, text: &str) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = code_of(line);
        for (from, to) in REPLACEMENTS {
            let places = code.match_indices(from).filter(|(at, _)| !is_in_text(code, *at));
            for (at, _) in places {
                mutants.push(Mutant {
                    file,
                    line: index + 1,
                    column: at + 1,
                    from,
                    to,
                    code: code.trim().to_owned(),
                });
            }
        }
    }
    mutants
}

/// The line without its comment.
fn code_of(line: &str) -> &str {
    let comment = line.match_indices("--").find(|(at, _)| !is_in_text(line, *at));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// Whether the position is inside a string literal.
fn is_in_text(line: &str, at: usize) -> bool {
    line[..at].matches('\'').count() % 2 == 1
}

impl Mutant {
    fn applied(&self, text: &str) -> String {
        let mut changed = String::with_capacity(text.len() + 8);
        for (index, line) in text.lines().enumerate() {
            if index + 1 == self.line {
                let (before, rest) = line.split_at(self.column - 1);
                changed += before;
                changed += self.to;
                changed += &rest[self.from.len()..];
            } else {
                changed += line;
            }
            changed.push('\n');
        }
        changed
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::step(format!("cannot read {}: {error}", path.display())))
}

fn write(path: &PathBuf, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::step(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_replaced_in_code_and_not_in_comments_or_texts() {
        let text = "local a = b + c -- d + e\nreturn 'f + g' .. max(a, 1)\n";
        let mutants = mutants_of("x.lua", text);
        let shown: Vec<String> = mutants.iter().map(Mutant::to_string).collect();
        assert_eq!(
            shown,
            [
                "x.lua:1:12: replace `+` with `-` in `local a = b + c`",
                "x.lua:2:19: replace `max(` with `min(` in `return 'f + g' .. max(a, 1)`",
            ]
        );
        assert_eq!(mutants[0].applied(text), "local a = b - c -- d + e\nreturn 'f + g' .. max(a, 1)\n");
        assert_eq!(mutants[1].applied(text), "local a = b + c -- d + e\nreturn 'f + g' .. min(a, 1)\n");
    }

    #[test]
    fn the_copy_reads_every_file_of_the_script() {
        let loader = include_str!("../../../crates/sluicegate/src/store/redis/protocol/scripts.rs");
        let changed = reading_files_at_start(loader).unwrap();
        assert!(changed.contains("joined(&[") && !changed.contains("            include_str!"), "{changed}");
        assert!(reading_files_at_start("fn main() {}").is_err());
    }

    #[test]
    fn every_occurrence_on_a_line_is_a_mutant() {
        let mutants = mutants_of("x.lua", "if a + b + c <= d then return true end\n");
        assert_eq!(mutants.len(), 4);
    }
}
