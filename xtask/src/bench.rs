//! `cargo xtask bench <name>`: one short name per benchmark, everything behind it passed on unchanged.

use crate::command::Invocation;
use crate::failure::Failure;

/// The benchmarks of the `sluicegate-bench` package, each with what it measures.
const BENCHMARKS: &[(&str, &str)] = &[
    ("core", "decisions of the embedded store beside its peers, and bytes per key"),
    ("redis", "decisions through Redis beside the usual scripts, and bytes per key"),
];

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    invocation(words)?.run()
}

fn invocation(words: &[String]) -> Result<Invocation, Failure> {
    let Some((name, rest)) = words.split_first() else {
        return Err(Failure::usage(format!("which benchmark?\n{}", known())));
    };
    if !BENCHMARKS.iter().any(|(known, _)| known == name) {
        return Err(Failure::usage(format!("there is no benchmark `{name}`\n{}", known())));
    }
    let start = Invocation::cargo().words("run --release --locked --package sluicegate-bench --").word(name);
    Ok(rest.iter().fold(start, |invocation, word| invocation.word(word)))
}

fn known() -> String {
    let lines: Vec<String> = BENCHMARKS.iter().map(|(name, about)| format!("  {name:10} {about}")).collect();
    format!("The benchmarks are:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        match invocation(&words) {
            Ok(invocation) => invocation.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn further_words_reach_the_benchmark_unchanged() {
        assert_eq!(
            shown(&["core", "--seconds", "3"]),
            "cargo run --release --locked --package sluicegate-bench -- core --seconds 3"
        );
        assert_eq!(
            shown(&["redis", "--quick"]),
            "cargo run --release --locked --package sluicegate-bench -- redis --quick"
        );
    }

    #[test]
    fn an_unknown_or_missing_name_is_answered_with_the_known_ones() {
        assert!(shown(&["cor"]).starts_with("there is no benchmark `cor`\nThe benchmarks are:\n  core "));
        assert!(shown(&[]).starts_with("which benchmark?\nThe benchmarks are:\n  core "));
        assert!(shown(&[]).contains("\n  redis "));
    }
}
