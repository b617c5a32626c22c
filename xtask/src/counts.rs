//! `cargo xtask counts`: counts the instructions of the hot paths with Callgrind and compares them with `bench/counts.txt`.
//!
//! Unlike times, counts do not depend on the load of the machine, so a regression is visible at once. They do
//! depend on the compiler and its settings, on the architecture, and on the C library's choice of routines for the
//! processor, which is pinned here. Only x86-64 is supported.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers;
use crate::tools::printable;
use crate::workspace::Workspace;

/// The accepted counts.
const ACCEPTED: &str = "bench/counts.txt";
const ACCEPT: &str = "cargo xtask counts --accept";
const HEADING: &str =
    "# Instructions per call on x86-64, optimised as shipped. Written by `cargo xtask counts --accept`.";

/// The growth of a path, in per cent, above which `--accept` is required. A new version of the C library
/// changes counts by less.
const GROWTH_PERCENT_MAX: u64 = 5;

const VALGRIND: &str = "valgrind";
const VALGRIND_REMEDY: &str = "Install it yourself: it counts the instructions of the core paths";

/// Restricts the C library to routines that every x86-64 processor has.
const TUNABLES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2,-AVX_Fast_Unaligned_Load",
);

/// A path and its instructions per call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Count {
    path: String,
    instructions: u64,
}

/// `cargo xtask counts [--accept]`.
pub(crate) fn run(arguments: &[String], workspace: &Workspace) -> Result<(), Failure> {
    match arguments {
        [] => check(workspace).map(|remark| println!("counts: {remark}")),
        [word] if word == "--accept" => accept(workspace),
        _ => Err(Failure::usage(format!("`counts` takes `--accept` or nothing, not `{}`", arguments.join(" ")))),
    }
}

/// Counts, and fails if a path has grown by more than the tolerance.
pub(crate) fn check(workspace: &Workspace) -> Result<String, Failure> {
    if std::env::consts::ARCH != "x86_64" {
        return Ok(format!("not counted: the numbers are those of x86-64, this is {}", std::env::consts::ARCH));
    }
    let counted = count(workspace)?;
    let accepted = read(&workspace.root.join(ACCEPTED))?;
    let comparison = Comparison::of(&accepted, &counted);
    println!("{comparison}");
    comparison.judge()
}

fn accept(workspace: &Workspace) -> Result<(), Failure> {
    let path = workspace.root.join(ACCEPTED);
    let counted = count(workspace)?;
    fs::write(&path, written(&counted))
        .map_err(|error| Failure::step(format!("cannot write {}: {error}", path.display())))?;
    println!("{} paths written to {ACCEPTED}: say in the commit why they changed", counted.len());
    Ok(())
}

/// Builds the paths, runs them under Callgrind, and parses its output files.
fn count(workspace: &Workspace) -> Result<Vec<Count>, Failure> {
    let valgrind = servers::of_debian(VALGRIND, VALGRIND, VALGRIND_REMEDY)?;
    Invocation::cargo().arguments("build --locked --profile counts --package sluicegate-counts").run()?;
    let folder = workspace.target.join("callgrind");
    // Remove the output files of an earlier run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::step(format!("cannot make {}: {error}", folder.display())))?;
    let printed = Invocation::new(valgrind)
        .arguments("--quiet --tool=callgrind --zero-before=*counting_begins* --dump-before=*counting_ends*")
        .argument(format!("--callgrind-out-file={}", printable(&folder.join("counts"))?))
        .argument(printable(&workspace.target.join("counts/sluicegate-counts"))?)
        .variable(TUNABLES.0, TUNABLES.1)
        .run_and_keep()?;
    let (calls, paths) = announced(&printed)?;
    paths
        .iter()
        .enumerate()
        .map(|(index, path)| {
            let file = folder.join(format!("counts.{}", index + 1));
            let text = fs::read_to_string(&file)
                .map_err(|error| Failure::step(format!("Callgrind left no {}: {error}", file.display())))?;
            let total = total(&text).ok_or_else(|| Failure::step(format!("{} has no totals", file.display())))?;
            Ok(Count { path: (*path).to_owned(), instructions: total / calls })
        })
        .collect()
}

/// The number of calls of each path, and the paths in their order.
fn announced(printed: &str) -> Result<(u64, Vec<&str>), Failure> {
    let calls =
        printed.lines().find_map(|line| line.strip_prefix("calls ")?.parse().ok()).filter(|calls| *calls > 0);
    let paths = printed.lines().filter_map(|line| line.strip_prefix("path ")).collect();
    Ok((calls.ok_or_else(|| Failure::step("the paths did not say how often they are called"))?, paths))
}

/// The sum of all instructions in a Callgrind output file.
fn total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

fn read(path: &Path) -> Result<Vec<Count>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::step(format!("cannot read {}: {error}; write it with `{ACCEPT}`", path.display()))
    })?;
    parse(&text).ok_or_else(|| Failure::step(format!("{ACCEPTED} cannot be read; write it anew with `{ACCEPT}`")))
}

fn parse(text: &str) -> Option<Vec<Count>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (path, number) = line.split_once(' ')?;
            Some(Count { path: path.to_owned(), instructions: number.trim().parse().ok()? })
        })
        .collect()
}

fn written(counts: &[Count]) -> String {
    let mut text = format!("{HEADING}\n");
    for Count { path, instructions } in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{path:28} {instructions:>6}");
    }
    text
}

/// Every path, before and now.
#[derive(Debug)]
struct Comparison(Vec<Compared>);

#[derive(Debug)]
struct Compared {
    path: String,
    accepted: Option<u64>,
    counted: Option<u64>,
}

impl Comparison {
    fn of(accepted: &[Count], counted: &[Count]) -> Self {
        let find = |counts: &[Count], path: &str| {
            counts.iter().find(|count| count.path == path).map(|count| count.instructions)
        };
        let gone = accepted.iter().filter(|count| find(counted, &count.path).is_none());
        let paths = counted.iter().chain(gone).map(|count| &count.path);
        let compared = |path: &String| Compared {
            path: path.clone(),
            accepted: find(accepted, path),
            counted: find(counted, path),
        };
        Self(paths.map(compared).collect())
    }

    fn judge(&self) -> Result<String, Failure> {
        let wrong: Vec<String> = self.0.iter().filter_map(Compared::complaint).collect();
        if wrong.is_empty() {
            return Ok(format!("{} paths, none has grown by more than {GROWTH_PERCENT_MAX} %", self.0.len()));
        }
        Err(Failure::step(format!(
            "{}\nMake them shorter again; or, if it is worth it, accept the new numbers with `{ACCEPT}` and say why in \
             the commit",
            wrong.join("\n")
        )))
    }
}

impl Compared {
    fn complaint(&self) -> Option<String> {
        let path = &self.path;
        match (self.accepted, self.counted) {
            (Some(accepted), Some(counted)) => (counted.saturating_mul(100)
                > accepted.saturating_mul(100 + GROWTH_PERCENT_MAX))
            .then(|| format!("{path} took {accepted} instructions and takes {counted}")),
            (None, _) => Some(format!("{path} is new: {ACCEPTED} has no number for it")),
            (Some(_), None) => Some(format!("{path} is in {ACCEPTED} and is not counted any more")),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:28} {:>8} {:>8}", "instructions per call", "accepted", "now")?;
        let shown = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        for Compared { path, accepted, counted } in &self.0 {
            write!(formatter, "\n{path:28} {:>8} {:>8}", shown(*accepted), shown(*counted))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> Vec<Count> {
        let count =
            |(path, instructions): &(&str, u64)| Count { path: (*path).to_owned(), instructions: *instructions };
        counts.iter().map(count).collect()
    }

    fn judged(accepted: &[(&str, u64)], counted: &[(&str, u64)]) -> Result<String, String> {
        Comparison::of(&counts(accepted), &counts(counted)).judge().map_err(|failure| failure.to_string())
    }

    #[test]
    fn written_counts_are_read_back() {
        let counted = counts(&[("a/b", 173), ("c", 5_379)]);
        assert_eq!(parse(&written(&counted)), Some(counted));
        assert_eq!(parse("a/b many\n"), None);
    }

    #[test]
    fn instructions_are_found_in_callgrind_output() {
        assert_eq!(announced("calls 10\npath a\npath b\n").map_err(|_| ()), Ok((10, vec!["a", "b"])));
        assert!(announced("path a\n").is_err());
        assert_eq!(total("fn=(1)\n0 4\ntotals: 173008\n"), Some(173_008));
    }

    #[test]
    fn a_path_may_grow_by_five_per_cent() {
        assert!(judged(&[("a", 100), ("b", 100)], &[("a", 105), ("b", 1)]).is_ok());
        let failure = judged(&[("a", 100), ("b", 100)], &[("a", 106), ("b", 100)]).unwrap_err();
        assert!(failure.starts_with("a took 100 instructions and takes 106\n"), "{failure}");
        assert!(failure.contains("`cargo xtask counts --accept`"), "{failure}");
    }

    #[test]
    fn new_paths_and_lost_ones_must_be_accepted() {
        assert!(judged(&[], &[("a", 1)]).unwrap_err().starts_with("a is new"));
        assert!(judged(&[("a", 1)], &[]).unwrap_err().starts_with("a is in bench/counts.txt"));
    }
}
