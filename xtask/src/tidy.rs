//! The house rules that a script can check.
//!
//! Every rule is a function from the [`Tree`], the repository's files as plain values, to the problems that it
//! finds, and has a test that shows it failing. All problems are reported at once.

mod documents;
mod layers;
mod layout;
mod purity;
mod source_defects;
mod threats;
mod words;

use std::fmt;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::workspace::{Package, Workspace};

const RULES: &[fn(&Tree<'_>) -> Vec<Problem>] = &[
    layout::files_have_module_documentation,
    layout::files_are_short,
    layout::files_are_compiled,
    layers::imports_follow_the_layers,
    purity::core_needs_nothing,
    words::nothing_is_left_for_later,
    words::no_path_of_one_machine,
    documents::links_lead_somewhere,
    documents::decisions_are_listed,
    source_defects::every_defect_has_a_test,
    threats::named_tests_exist,
];

/// Checks every rule on the files of the repository and prints each problem.
pub(crate) fn run(workspace: &Workspace) -> Result<String, Failure> {
    let tree = Tree { files: read(workspace)?, packages: &workspace.packages };
    let problems = problems(&tree);
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => Ok(format!("{} rules hold in {} files", RULES.len(), tree.files.len())),
        1 => Err(Failure::step("a house rule is broken; see the line above")),
        count => Err(Failure::step(format!("house rules are broken in {count} places; see the lines above"))),
    }
}

/// The input of the rules.
struct Tree<'a> {
    files: Vec<SourceFile>,
    packages: &'a [Package],
}

/// A file that Git tracks, or that `git add` would add.
struct SourceFile {
    /// Relative to the root, with `/` between the parts on every system.
    path: String,
    /// Empty if the file is not text.
    text: String,
}

struct Problem {
    path: String,
    /// Counted from 1; `None` when the problem is about the whole file.
    line: Option<usize>,
    message: String,
}

impl Tree<'_> {
    fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    fn rust_files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }
}

impl SourceFile {
    fn problem(&self, line: impl Into<Option<usize>>, message: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), line: line.into(), message: message.into() }
    }

    /// The lines, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, message } = self;
        match line {
            Some(line) => write!(formatter, "{path}:{line}: {message}"),
            None => write!(formatter, "{path}: {message}"),
        }
    }
}

fn problems(tree: &Tree<'_>) -> Vec<Problem> {
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}

/// Untracked files are included, so that a problem is found before it is committed; ignored ones are not.
fn read(workspace: &Workspace) -> Result<Vec<SourceFile>, Failure> {
    let listed = Invocation::new("git")
        .arguments("ls-files -z --cached --others --exclude-standard")
        .within(&workspace.root)
        .output()?;
    let mut files = Vec::new();
    for path in listed.split_terminator('\0') {
        // A tracked file that is missing was removed in the working copy.
        if let Ok(content) = std::fs::read(workspace.root.join(path)) {
            files.push(SourceFile { path: path.to_owned(), text: String::from_utf8(content).unwrap_or_default() });
        }
    }
    match files.is_empty() {
        true => Err(Failure::step("git lists no files: run this inside a clone of the repository")),
        false => Ok(files),
    }
}

/// Runs one rule over files given as `(path, text)` and returns its problems as printed.
#[cfg(test)]
fn found(rule: fn(&Tree<'_>) -> Vec<Problem>, files: &[(&str, &str)]) -> Vec<String> {
    let files =
        files.iter().map(|&(path, text)| SourceFile { path: path.to_owned(), text: text.to_owned() }).collect();
    rule(&Tree { files, packages: &[] }).iter().map(ToString::to_string).collect()
}
