//! `cargo xtask fuzz`: runs the fuzz targets, which feed mutated bytes to every parser of untrusted input.
//!
//! The targets are programs of the workspace in `fuzz/`; each documents its properties. libFuzzer drives them:
//! it keeps and mutates the inputs that reach new code. This needs coverage counters, which stable Rust can
//! insert. Discovered inputs stay in the target folder; inputs that break a target are kept in `fuzz/artifacts`.
//!
//! `cargo xtask test` runs each target for a few seconds on the inputs of `fuzz/corpus`, the seeds of every run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers;
use crate::tools::printable;
use crate::workspace::Workspace;

/// The programs of `fuzz/Cargo.toml` with a description of their input.
const TARGETS: &[(&str, &str)] = &[
    ("decide", "decisions of the core beside the exact model"),
    ("envoy", "questions of Envoy's rate limit service"),
    ("envoy_file", "configuration files of envoyproxy/ratelimit"),
    ("framing", "where HTTP/1 requests begin and end"),
    ("hops", "client addresses behind proxies"),
    ("log_combined", "lines of access logs in the combined format"),
    ("log_envoy", "lines of access logs of Envoy"),
    ("log_json", "lines of access logs in JSON"),
    ("path", "paths and the patterns of rules"),
    ("proxy_v2", "headers of the PROXY protocol"),
    ("resp", "commands of the RESP listener"),
    ("rule_file", "files of rules"),
    ("token", "signed tokens"),
];

/// The default duration of a target.
const SECONDS: u32 = 180;
/// Its duration in the tests: enough for tens of thousands of inputs.
const SECONDS_IN_TEST: u32 = 3;

/// The compiler flags of libFuzzer: a counter for every edge, a table of the edges, and hooks for comparisons.
/// cargo-fuzz passes the same, except for `--cfg fuzzing`, under which libraries behave differently.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The bounds of one input: bytes, seconds, and megabytes of memory.
const BOUNDS: &str = "-max_len=4096 -timeout=10 -rss_limit_mb=1024";

const COMPILER_REMEDY: &str = "Install a C++ compiler yourself: libFuzzer is compiled with it";

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    targets: Vec<&'static str>,
    seconds: u32,
    replay: Option<String>,
}

/// `cargo xtask fuzz [TARGET…] [--seconds N] [--replay FILE]`.
pub(crate) fn run(arguments: &[String], workspace: &Workspace) -> Result<(), Failure> {
    let wanted = Wanted::parse(arguments)?;
    let programs = build(workspace, &wanted.targets)?;
    for (number, &target) in wanted.targets.iter().enumerate() {
        let program = Invocation::new(printable(&programs.join(target))?);
        if let Some(file) = &wanted.replay {
            program.argument(file).run()?;
            println!("{target}: {file} breaks nothing");
            continue;
        }
        println!("\n[{}/{}] {target}: for {} s", number + 1, wanted.targets.len(), wanted.seconds);
        let found = folder(workspace.target.join("fuzz/found").join(target))?;
        // libFuzzer would print a line per new input; periodic statistics are enough.
        let program = program.argument("-print_new=0");
        let tried = search(workspace, program, target, wanted.seconds, &found)?;
        println!("{target}: {} inputs tried, {} of them new and kept in {found}", tried.inputs, tried.kept);
    }
    Ok(())
}

/// Runs all targets for a few seconds each, from the inputs of `fuzz/corpus` only.
pub(crate) fn check(workspace: &Workspace) -> Result<String, Failure> {
    let targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let programs = build(workspace, &targets)?;
    let mut inputs = 0;
    for target in &targets {
        let found = workspace.target.join("fuzz/test").join(target);
        // Remove the inputs that an earlier run discovered.
        let _ = fs::remove_dir_all(&found);
        let program = Invocation::new(printable(&programs.join(target))?).argument("-verbosity=0");
        let tried = search(workspace, program, target, SECONDS_IN_TEST, &folder(found)?)?;
        if tried.kept == 0 {
            return Err(Failure::step(format!(
                "`{target}` came no further than its first inputs: is it compiled with counters?"
            )));
        }
        inputs += tried.inputs;
    }
    Ok(format!("{} targets, {inputs} inputs", targets.len()))
}

/// A Cargo command in the workspace of the targets, with their compiler flags. It uses the target folder of the main
/// workspace, so that shared dependencies are built once; with `--target`, the flags do not apply to build scripts.
pub(crate) fn cargo(workspace: &Workspace, command: &str) -> Result<Invocation, Failure> {
    servers::of_debian("c++", "g++", COMPILER_REMEDY)?;
    Ok(Invocation::cargo()
        .arguments(command)
        .arguments("--release --locked --manifest-path fuzz/Cargo.toml --target")
        .argument(platform()?)
        .argument("--target-dir")
        .argument(printable(&workspace.target)?)
        .variable("RUSTFLAGS", FLAGS)
        .within(&workspace.root))
}

fn platform() -> Result<String, Failure> {
    let about = Invocation::new("rustc").argument("-vV").output()?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::step("`rustc -vV` does not say what it compiles for"))
}

/// The folder of the programs, which are built if necessary.
fn build(workspace: &Workspace, targets: &[&str]) -> Result<PathBuf, Failure> {
    let build = cargo(workspace, "build")?;
    targets.iter().fold(build, |build, target| build.argument("--bin").argument(*target)).run()?;
    Ok(workspace.target.join(platform()?).join("release"))
}

/// The statistics of a run.
#[derive(Debug, PartialEq, Eq)]
struct Tried {
    inputs: u64,
    kept: u64,
}

/// Runs a target and keeps the input that breaks it.
fn search(
    workspace: &Workspace,
    program: Invocation,
    target: &str,
    seconds: u32,
    found: &str,
) -> Result<Tried, Failure> {
    let artifacts = folder(workspace.root.join("fuzz/artifacts").join(target))?;
    let before = files(Path::new(&artifacts));
    let printed = program
        .arguments(BOUNDS)
        .argument(format!("-max_total_time={seconds}"))
        .argument("-print_final_stats=1")
        .argument(format!("-artifact_prefix={artifacts}/"))
        .argument(found)
        .argument(printable(&workspace.root.join("fuzz/corpus").join(target))?)
        .run_and_keep_errors();
    let new = files(Path::new(&artifacts)).difference(&before).last().map(|(name, _)| name.clone());
    match (printed, new) {
        (Err(failure), Some(file)) => Err(Failure::step(broken(target, &file, &failure))),
        (Err(failure), None) => Err(failure),
        (Ok(printed), _) => Tried::read(&printed),
    }
}

fn broken(target: &str, file: &str, failure: &Failure) -> String {
    let path = format!("fuzz/artifacts/{target}/{file}");
    format!(
        "{failure}\n`{target}` was broken by an input, which is kept as {path}\n\
         To replay it: cargo xtask fuzz {target} --replay {path}\n\
         Once repaired, with a test, move it to fuzz/corpus/{target} under a name that says what it is"
    )
}

impl Tried {
    /// Parses the statistics that libFuzzer prints at the end.
    fn read(printed: &str) -> Result<Self, Failure> {
        let number = |name: &str| {
            let value = printed.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse().ok())
        };
        match (number("stat::number_of_executed_units:"), number("stat::new_units_added:")) {
            (Some(inputs @ 1..), Some(kept)) => Ok(Self { inputs, kept }),
            _ => Err(Failure::step("libFuzzer did not say that it tried anything")),
        }
    }
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut wanted = Self { targets: Vec::new(), seconds: SECONDS, replay: None };
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(word) = arguments.next() {
            match word {
                "--seconds" => wanted.seconds = seconds(arguments.next())?,
                "--replay" => {
                    let file = arguments.next().ok_or_else(|| Failure::usage("`--replay` needs a file"))?;
                    wanted.replay = Some(file.to_owned());
                }
                name => wanted.targets.push(target(name)?),
            }
        }
        if wanted.replay.is_some() && wanted.targets.len() != 1 {
            return Err(Failure::usage("`--replay` needs the one target that the file is for"));
        }
        if wanted.targets.is_empty() {
            wanted.targets = TARGETS.iter().map(|(name, _)| *name).collect();
        }
        Ok(wanted)
    }
}

fn seconds(word: Option<&str>) -> Result<u32, Failure> {
    let number = word.and_then(|word| word.parse().ok()).filter(|seconds| *seconds > 0);
    number.ok_or_else(|| Failure::usage("`--seconds` needs a whole number above zero, for example 60"))
}

fn target(name: &str) -> Result<&'static str, Failure> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(known, _)| *known).ok_or_else(|| {
        let lines: Vec<String> = TARGETS.iter().map(|(name, about)| format!("  {name:10} {about}")).collect();
        Failure::usage(format!(
            "there is no target or option `{name}`\nThe targets are:\n{}\n\
             The options are `--seconds N` and `--replay FILE`",
            lines.join("\n")
        ))
    })
}

fn folder(path: PathBuf) -> Result<String, Failure> {
    fs::create_dir_all(&path)
        .map_err(|error| Failure::step(format!("cannot make the folder {}: {error}", path.display())))?;
    printable(&path)
}

/// The files of a folder with their modification times: an input that breaks a target again is written again under the
/// same name.
fn files(folder: &Path) -> BTreeSet<(String, Option<SystemTime>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let written = |entry: &fs::DirEntry| entry.metadata().and_then(|about| about.modified()).ok();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), written(&entry))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wanted, String> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        Wanted::parse(&arguments).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_targets_are_those_of_the_manifest_and_each_has_inputs_to_start_from() {
        let manifest = include_str!("../../fuzz/Cargo.toml");
        let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \"targets/"));
        let programs: Vec<&str> = paths.filter_map(|path| path.strip_suffix(".rs\"")).collect();
        assert_eq!(programs, TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for target in programs {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
            assert!((1..=50).contains(&files(&corpus).len()), "{target}");
        }
    }

    #[test]
    fn targets_and_options_come_in_any_order() {
        let all = parsed(&[]).unwrap();
        assert_eq!((all.targets.len(), all.seconds, all.replay), (TARGETS.len(), SECONDS, None));
        let some = Wanted { targets: vec!["path", "hops"], seconds: 7, replay: None };
        assert_eq!(parsed(&["path", "--seconds", "7", "hops"]), Ok(some));
        let replay = Wanted { targets: vec!["path"], seconds: SECONDS, replay: Some("a".to_owned()) };
        assert_eq!(parsed(&["--replay", "a", "path"]), Ok(replay));
    }

    #[test]
    fn an_invalid_command_line_lists_the_valid_options() {
        let unknown = parsed(&["paths"]).unwrap_err();
        assert!(
            unknown.starts_with("there is no target or option `paths`\nThe targets are:\n  decide "),
            "{unknown}"
        );
        for arguments in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "soon"]] {
            assert!(parsed(arguments).unwrap_err().contains("above zero"), "{arguments:?}");
        }
        for arguments in [&["--replay", "a"][..], &["--replay", "a", "path", "hops"], &["path", "--replay"]] {
            assert!(parsed(arguments).unwrap_err().starts_with("`--replay` needs"), "{arguments:?}");
        }
    }

    #[test]
    fn a_run_that_tried_nothing_is_seen() {
        let printed =
            "Done 12 runs in 3 second(s)\nstat::number_of_executed_units: 12\nstat::new_units_added:          3\n";
        assert_eq!(Tried::read(printed).unwrap(), Tried { inputs: 12, kept: 3 });
        assert!(Tried::read(&printed.replace("12", "0")).is_err());
        assert!(Tried::read("").is_err());
    }

    #[test]
    fn a_broken_target_prints_the_replay_command() {
        let told = broken("hops", "crash-1", &Failure::step("it failed"));
        assert!(told.starts_with("it failed\n`hops` was broken by an input"), "{told}");
        assert!(told.contains("cargo xtask fuzz hops --replay fuzz/artifacts/hops/crash-1\n"), "{told}");
    }
}
