//! `cargo xtask mutants`: mutation testing. A change is made to the code on purpose; a test has to fail. A change that no
//! test notices has survived, and is either a gap in the tests or means the same as the original.
//!
//! Three targets, each with the tests that have to notice: the core and the library (limiter and stores) by cargo-mutants,
//! and the script in Redis by the operators of [`script`]. A whole run takes hours, so `--shard K/N` runs a part.
//!
//! `xtask/mutants-accepted.txt` lists the survivors that are no gap, each with the reason. Lines and columns do not count,
//! because they change with every edit above them.

mod script;

use std::fs;
use std::io;
use std::path::Path;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers::Servers;
use crate::tools::{self, printable};
use crate::workspace::Workspace;

/// The least share of mutants, in per cent, that the tests have to catch.
const CAUGHT_PERCENT_MIN: usize = 95;
/// Survivors that are no gap, one a line: the mutant, ` | `, the reason.
const ACCEPTED: &str = "xtask/mutants-accepted.txt";

/// Exit codes of cargo-mutants: every mutant was caught.
const COMPLETE: i32 = 0;
/// A mutant survived.
const MISSED: i32 = 2;
/// The tests of a mutant did not end.
const TIMED_OUT: i32 = 3;
/// The tests fail on the unchanged code.
const BASELINE_FAILED: i32 = 4;

const USAGE: &str = "\
`mutants` takes a target and options:
  core      the algorithms, by the tests of the core
  library   limiter, rules and stores, by the tests of the library
  script    the script in Redis, by its parity, undo and conformance tests
  --shard K/N   only this part of the mutants, K counts from 0
  --list        print the mutants and run nothing";

/// The code that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Core,
    Library,
    Script,
}

/// A part of all mutants: every `of`-th, from `index` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    index: usize,
    of: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    target: Target,
    shard: Shard,
    list: bool,
}

/// The outcome of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// How many mutants a test noticed, by failing or by not ending.
    pub(super) caught: usize,
    /// The mutants that no test noticed.
    pub(super) survivors: Vec<String>,
}

/// `cargo xtask mutants <target> [options]`.
pub(crate) fn run(arguments: &[String], workspace: &Workspace) -> Result<(), Failure> {
    let Options { target, shard, list } = Options::parse(arguments)?;
    let outcome = match target {
        Target::Script if list => {
            script::mutants(workspace, shard)?.iter().for_each(|mutant| println!("{mutant}"));
            return Ok(());
        }
        Target::Script => script::run(workspace, shard)?,
        Target::Core | Target::Library => {
            let program = tools::cargo_mutants(workspace)?;
            let invocation = cargo_mutants(&program, target, shard, workspace)?;
            if list {
                return invocation.argument("--list").run();
            }
            outcome_of(&invocation, &output(workspace))?
        }
    };
    let accepted = fs::read_to_string(workspace.root.join(ACCEPTED)).unwrap_or_default();
    let (report, is_enough) = outcome.judge(&accepted_of(&accepted));
    println!("{report}");
    if is_enough {
        return Ok(());
    }
    if outcome == Outcome::default() {
        return Err(Failure::step("no mutant was tested: the target or the shard has none, so nothing was shown"));
    }
    Err(Failure::step(format!(
        "less than {CAUGHT_PERCENT_MIN} % were caught: write tests for the survivors, or list those that mean the same in \
         {ACCEPTED}"
    )))
}

/// Where cargo-mutants writes.
fn output(workspace: &Workspace) -> std::path::PathBuf {
    workspace.target.join("mutants")
}

fn cargo_mutants(
    program: &str,
    target: Target,
    shard: Shard,
    workspace: &Workspace,
) -> Result<Invocation, Failure> {
    let base = Invocation::new(program)
        .arguments("mutants --no-shuffle --colors never --minimum-test-timeout 60 --timeout-multiplier 4 --output")
        .argument(printable(&output(workspace))?)
        .argument("--shard")
        .argument(format!("{}/{}", shard.index, shard.of));
    if target == Target::Core {
        return Ok(base.arguments("--package sluicegate-core"));
    }
    let library = base
        .arguments("--package sluicegate --all-features")
        .arguments("--file crates/sluicegate/src/limiter.rs --file crates/sluicegate/src/limiter/**")
        .arguments("--file crates/sluicegate/src/rules/** --file crates/sluicegate/src/store/**")
        .arguments("--exclude **/tests.rs --exclude **/tests/** --exclude **/models.rs");
    Ok(Servers::find_or_install(workspace)?.tell(library))
}

/// Runs cargo-mutants with its output in `folder`, and reads the lists that it wrote. The lists of an earlier run are removed
/// first. Their absence, or another exit code than those of a complete run, is an error: the lists are empty, too, after a
/// baseline that failed.
fn outcome_of(invocation: &Invocation, folder: &Path) -> Result<Outcome, Failure> {
    let lists = folder.join("mutants.out");
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(Failure::step(format!("cannot remove {}: {error}", folder.display())));
    }
    match invocation.exit_code()? {
        COMPLETE | MISSED | TIMED_OUT => read(&lists),
        BASELINE_FAILED => Err(Failure::step(format!(
            "the tests fail without any mutant; see {}",
            lists.join("log/baseline.log").display()
        ))),
        code => Err(Failure::step(format!("`{invocation}` failed with exit code {code}"))),
    }
}

fn read(folder: &Path) -> Result<Outcome, Failure> {
    let lines = |name: &str| -> Result<Vec<String>, Failure> {
        let path = folder.join(name);
        let text = fs::read_to_string(&path)
            .map_err(|error| Failure::step(format!("cannot read {}: {error}", path.display())))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let caught = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
    Ok(Outcome { caught, survivors: lines("missed.txt")? })
}

/// The mutants of the list, without their places.
fn accepted_of(text: &str) -> Vec<String> {
    let entries = text.lines().filter(|line| !line.starts_with('#'));
    entries.filter_map(|line| line.split_once(" | ")).map(|(mutant, _)| without_place(mutant)).collect()
}

/// `src/a.rs:12:9: replace x` without the line and the column.
fn without_place(mutant: &str) -> String {
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((place, change)) = mutant.split_once(": ") else { return mutant.to_owned() };
    let file: Vec<&str> = place.split(':').filter(|part| !is_number(part)).collect();
    format!("{}: {change}", file.join(":"))
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let unknown = || Failure::usage(format!("cannot read `{}`: {USAGE}", arguments.join(" ")));
        let (target, mut rest) = arguments.split_first().ok_or_else(unknown)?;
        let target = match target.as_str() {
            "core" => Target::Core,
            "library" => Target::Library,
            "script" => Target::Script,
            _ => return Err(unknown()),
        };
        let mut options = Self { target, shard: Shard { index: 0, of: 1 }, list: false };
        while let Some((word, after)) = rest.split_first() {
            rest = match (word.as_str(), after) {
                ("--list", after) => {
                    options.list = true;
                    after
                }
                ("--shard", [part, after @ ..]) => {
                    options.shard = Shard::parse(part).ok_or_else(unknown)?;
                    after
                }
                _ => return Err(unknown()),
            };
        }
        Ok(options)
    }
}

impl Shard {
    fn parse(text: &str) -> Option<Self> {
        let (index, of) = text.split_once('/')?;
        let shard = Self { index: index.parse().ok()?, of: of.parse().ok()? };
        (shard.index < shard.of).then_some(shard)
    }

    /// Whether the mutant at this place belongs to the shard.
    pub(super) fn has(self, place: usize) -> bool {
        place % self.of == self.index
    }
}

impl Outcome {
    /// The report, and whether enough were caught. Survivors that are accepted count as caught: they change nothing. An entry
    /// of the list accepts one survivor.
    fn judge(&self, accepted: &[String]) -> (String, bool) {
        let mut unused = accepted.to_vec();
        let mut is_accepted = |survivor: &&String| {
            let place = unused.iter().position(|entry| *entry == without_place(survivor));
            place.map(|place| unused.swap_remove(place)).is_some()
        };
        let (known, gaps): (Vec<&String>, Vec<&String>) =
            self.survivors.iter().partition(|each| is_accepted(each));
        let all = self.caught + self.survivors.len();
        let percent = ((self.caught + known.len()) * 100).checked_div(all).unwrap_or(0);
        let mut report = format!(
            "{all} mutants: {} caught, {} survived and accepted, {} survived: {percent} %",
            self.caught,
            known.len(),
            gaps.len()
        );
        for gap in gaps {
            report += &format!("\n  survived: {gap}");
        }
        (report, percent >= CAUGHT_PERCENT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_target_is_needed_and_a_shard_may_be_chosen() {
        let whole = Shard { index: 0, of: 1 };
        assert_eq!(parse("core").unwrap(), Options { target: Target::Core, shard: whole, list: false });
        let part = Options { target: Target::Script, shard: Shard { index: 2, of: 8 }, list: true };
        assert_eq!(parse("script --shard 2/8 --list").unwrap(), part);
        for bad in ["", "server", "core --shard", "core --shard 8/8", "core --shard x", "core --fast"] {
            assert!(parse(bad).unwrap_err().contains("`mutants` takes a target"), "{bad}");
        }
    }

    #[test]
    fn survivors_count_unless_a_reason_is_given() {
        let survivors = ["a.rs:1:2: replace x", "b.rs:7:1: replace y", "b.rs:9:1: replace y"];
        let outcome = Outcome { caught: 37, survivors: survivors.map(str::to_owned).to_vec() };
        let accepted = "# heading\nb.rs:3:1: replace y | means the same\n";
        let (report, is_enough) = outcome.judge(&accepted_of(accepted));
        assert_eq!(
            report,
            "40 mutants: 37 caught, 1 survived and accepted, 2 survived: 95 %\n  survived: a.rs:1:2: replace x\n  \
             survived: b.rs:9:1: replace y"
        );
        assert!(is_enough);
        assert!(!Outcome { caught: 18, ..outcome }.judge(&[]).1);
    }

    #[test]
    fn no_mutant_at_all_is_not_enough() {
        let (report, is_enough) = Outcome::default().judge(&[]);
        assert!(!is_enough && report.ends_with(": 0 %"), "{report}");
    }

    #[test]
    fn only_the_lists_of_a_complete_run_are_read() {
        let folder = std::env::temp_dir().join(format!("sluicegate-mutants-{}", std::process::id()));
        let lists = folder.join("mutants.out");
        let run = |lists_written: bool, code: i32| {
            // The lists of an earlier run, in which everything was caught.
            fs::create_dir_all(&lists).unwrap();
            for list in ["caught.txt", "missed.txt", "timeout.txt"] {
                fs::write(lists.join(list), "an earlier mutant\n").unwrap();
            }
            let write = format!(
                "mkdir -p {0} && cd {0} && echo a >caught.txt; : >missed.txt; : >timeout.txt; ",
                lists.display()
            );
            let script = format!("{}exit {code}", if lists_written { &*write } else { "" });
            let program = Invocation::new("sh").argument("-c").argument(script);
            outcome_of(&program, &folder).map_err(|failure| failure.to_string())
        };
        for code in [COMPLETE, MISSED, TIMED_OUT] {
            assert_eq!(run(true, code).unwrap(), Outcome { caught: 1, survivors: Vec::new() });
            assert!(run(false, code).unwrap_err().contains("cannot read"));
        }
        assert!(run(true, BASELINE_FAILED).unwrap_err().contains("without any mutant"));
        assert!(run(false, 101).unwrap_err().contains("exit code 101"));
        // The last run wrote no lists, so its folder is gone.
        assert!(!folder.exists());
    }

    #[test]
    fn shards_are_disjoint_and_complete() {
        for place in 0..20 {
            let owners = (0..3).filter(|index| Shard { index: *index, of: 3 }.has(place)).count();
            assert_eq!(owners, 1);
        }
    }
}
