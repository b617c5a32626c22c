//! `cargo xtask bench <name>`: builds the programs that a benchmark needs, passes their paths, and forwards further arguments.
//!
//! `--keep` writes the raw numbers to `bench/runs`. `all` runs every benchmark with `--keep` and then renders the
//! charts.

use crate::command::Invocation;
use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{peers, servers, tools};

/// A benchmark of the `sluicegate-bench` package.
struct Benchmark {
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
}

/// A program that the benchmark measures from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Ours,
    /// The benchmark itself finds the program where it is installed.
    Nginx,
    Throttlecrab,
    Limitador,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "core",
        about: "decisions of the embedded store beside its peers, and bytes per key",
        needs: &[],
    },
    Benchmark {
        name: "redis",
        about: "decisions through Redis beside the usual scripts, and bytes per key",
        needs: &[],
    },
    Benchmark {
        name: "protocols",
        about: "the whole server beside bare ones, Redis' own GET, and throttlecrab's server",
        needs: &[Need::Ours, Need::Throttlecrab],
    },
    Benchmark {
        name: "gateway",
        about: "our gateway beside nginx, with and without a limit, and beside no proxy",
        needs: &[Need::Ours, Need::Nginx],
    },
    Benchmark {
        name: "dashboard",
        about: "what it costs the server to be watched, and not to be",
        needs: &[Need::Ours],
    },
    Benchmark { name: "rules", about: "what a decision costs as rules grow", needs: &[] },
    Benchmark { name: "growth", about: "decisions and their tail as keys and instances grow", needs: &[] },
    Benchmark {
        name: "simulate",
        about: "logs replayed: lines per second, and memory as a log grows",
        needs: &[Need::Ours],
    },
    Benchmark {
        name: "peers",
        about: "whole servers of others beside ours, which it builds",
        needs: &[Need::Ours, Need::Throttlecrab, Need::Limitador],
    },
];

const ALL: &str = "all";
const PLOT: &str = "plot";
const KEEP: &str = "--keep";
const RUNS: &str = "bench/runs";

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::usage(format!("which benchmark?\n{}", known())));
    };
    match name.as_str() {
        ALL => BENCHMARKS.iter().try_for_each(|each| run_one(each, &with_keep(rest))).and_then(|()| plot()),
        PLOT if rest.is_empty() => plot(),
        PLOT => Err(Failure::usage(format!("`{PLOT}` takes no options, not `{}`", rest.join(" ")))),
        _ => run_one(find(name)?, rest),
    }
}

fn find(name: &str) -> Result<&'static Benchmark, Failure> {
    let found = BENCHMARKS.iter().find(|each| each.name == name);
    found.ok_or_else(|| Failure::usage(format!("there is no benchmark `{name}`\n{}", known())))
}

fn run_one(benchmark: &Benchmark, arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::find()?;
    let mut programs = Vec::new();
    for need in benchmark.needs {
        let program = need.program(&workspace)?;
        programs.extend(need.option().map(|option| (option, program)));
    }
    let file = arguments.iter().any(|word| word == KEEP).then(|| kept(&workspace, benchmark.name)).transpose()?;
    invocation(benchmark.name, &programs, file, arguments).within(&workspace.root).run()
}

fn plot() -> Result<(), Failure> {
    invocation(PLOT, &[], None, &[]).within(&Workspace::find()?.root).run()
}

/// The same arguments plus `--keep`.
fn with_keep(arguments: &[String]) -> Vec<String> {
    let is_missing = !arguments.iter().any(|word| word == KEEP);
    arguments.iter().cloned().chain(is_missing.then(|| KEEP.to_owned())).collect()
}

/// The file of today's run of a benchmark. Documents cite runs, so no run is ever overwritten.
fn kept(workspace: &Workspace, name: &str) -> Result<String, Failure> {
    let today = Invocation::new("date").argument("--utc").argument("+%F").output()?;
    first_free(today.trim(), name, |path| workspace.root.join(path).exists())
}

/// The first run of a day has the date as its name, the second a `b` after it, and so on: names sort by age.
fn first_free(today: &str, name: &str, exists: impl Fn(&str) -> bool) -> Result<String, Failure> {
    let letters = std::iter::once(String::new()).chain(('b'..='z').map(String::from));
    let mut paths = letters.map(|letter| format!("{RUNS}/{today}{letter}-{name}.json"));
    let free = paths.find(|path| !exists(path));
    free.ok_or_else(|| Failure::step(format!("{RUNS} holds 26 runs of `{name}` of {today} already: remove some")))
}

fn invocation(name: &str, programs: &[(&str, String)], file: Option<String>, arguments: &[String]) -> Invocation {
    let start =
        Invocation::cargo().arguments("run --release --locked --package sluicegate-bench --").argument(name);
    let start = programs.iter().fold(start, |start, (option, path)| start.argument(*option).argument(path));
    let start = file.into_iter().fold(start, |start, file| start.argument("--json").argument(file));
    arguments.iter().filter(|word| *word != KEEP).fold(start, |start, word| start.argument(word))
}

impl Need {
    /// The option that passes the path to the benchmark, if there is one.
    fn option(self) -> Option<&'static str> {
        match self {
            Self::Ours => Some("--ours"),
            Self::Nginx => None,
            Self::Throttlecrab => Some("--throttlecrab"),
            Self::Limitador => Some("--limitador"),
        }
    }

    /// The path of the program, which is built or installed if necessary.
    fn program(self, workspace: &Workspace) -> Result<String, Failure> {
        match self {
            Self::Ours => {
                Invocation::cargo().arguments("build --release --locked --package sluicegate-server").run()?;
                tools::printable(&workspace.target.join("release/sluicegate"))
            }
            Self::Nginx => servers::nginx(),
            Self::Throttlecrab => peers::throttlecrab(workspace),
            Self::Limitador => peers::limitador(workspace),
        }
    }
}

fn known() -> String {
    let own = [
        (ALL, "all of them, kept in bench/runs, and then `plot`"),
        (PLOT, "draws the pictures and fills the tables of docs/ from the kept runs"),
    ];
    let each = BENCHMARKS.iter().map(|each| (each.name, each.about));
    let lines: Vec<String> = each.chain(own).map(|(name, about)| format!("  {name:10} {about}")).collect();
    format!(
        "The benchmarks are:\n{}\n  {KEEP:10} as an option: keeps the raw numbers in bench/runs",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_arguments(arguments: &[&str]) -> Vec<String> {
        arguments.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn further_words_reach_the_benchmark_unchanged() {
        assert_eq!(
            invocation("core", &[], None, &text_arguments(&["--rounds", "3"])).to_string(),
            "cargo run --release --locked --package sluicegate-bench -- core --rounds 3"
        );
    }

    #[test]
    fn a_benchmark_receives_the_paths_of_programs_and_of_its_output() {
        let programs = [("--ours", "/out/sluicegate".to_owned())];
        let file = Some("bench/runs/2026-01-02-peers.json".to_owned());
        assert_eq!(
            invocation("peers", &programs, file, &text_arguments(&["--quick", "--keep"])).to_string(),
            "cargo run --release --locked --package sluicegate-bench -- peers --ours /out/sluicegate \
             --json bench/runs/2026-01-02-peers.json --quick"
        );
    }

    #[test]
    fn a_kept_run_is_never_overwritten() {
        let after = |there: &[&str]| first_free("2026-01-02", "core", |path| there.contains(&path)).unwrap();
        let (first, second) = ("bench/runs/2026-01-02-core.json", "bench/runs/2026-01-02b-core.json");
        assert_eq!(after(&[]), first);
        assert_eq!(after(&[first]), second);
        assert_eq!(after(&[first, second]), "bench/runs/2026-01-02c-core.json");
        assert!(first < second);
        assert!(first_free("2026-01-02", "core", |_| true).is_err());
    }

    #[test]
    fn all_keeps_its_runs_with_and_without_the_option() {
        assert_eq!(with_keep(&text_arguments(&["--quick"])), text_arguments(&["--quick", "--keep"]));
        assert_eq!(with_keep(&text_arguments(&["--keep", "--quick"])), text_arguments(&["--keep", "--quick"]));
    }

    #[test]
    fn an_unknown_or_missing_name_is_answered_with_the_known_ones() {
        let text = |arguments: &[String]| run(arguments).unwrap_err().to_string();
        let unknown = text(&text_arguments(&["cor"]));
        assert!(unknown.starts_with("there is no benchmark `cor`\nThe benchmarks are:\n  core "), "{unknown}");
        let missing = text(&[]);
        assert!(missing.starts_with("which benchmark?\nThe benchmarks are:\n  core "), "{missing}");
        for name in
            ["redis", "protocols", "gateway", "dashboard", "rules", "growth", "simulate", "peers", "all", "plot"]
        {
            assert!(missing.contains(&format!("\n  {name} ")), "{name}");
        }
        assert!(text(&text_arguments(&["plot", "--quick"])).contains("takes no options"));
    }
}
