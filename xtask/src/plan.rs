//! A task as a list of numbered steps: they run in order and stop at the first failure, and a summary follows.

use std::time::Duration;

use crate::clock::timed;
use crate::failure::Failure;
use crate::workspace::Workspace;

/// One step of a task.
pub(crate) struct Step {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Runs the step; the text is its line in the summary.
    pub(crate) run: fn(&Workspace) -> Result<String, Failure>,
}

/// The steps that the command line selects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    All,
    Only(String),
    List,
}

impl Selection {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match arguments[..] {
            [] => Ok(Self::All),
            ["--list"] => Ok(Self::List),
            ["--only", step] => Ok(Self::Only(step.to_owned())),
            ["--only"] => Err(Failure::usage("`--only` needs the name of a step; `--list` shows them")),
            _ => Err(Failure::usage(format!(
                "cannot read `{}`: the options are `--list` and `--only <step>`",
                arguments.join(" ")
            ))),
        }
    }

    fn of<'a>(&self, steps: &'a [Step]) -> Result<Vec<&'a Step>, Failure> {
        let Self::Only(wanted) = self else {
            return Ok(steps.iter().collect());
        };
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        match steps.iter().find(|step| step.name == wanted) {
            Some(step) => Ok(vec![step]),
            None => {
                Err(Failure::usage(format!("there is no step `{wanted}`; the steps are {}", names.join(", "))))
            }
        }
    }
}

/// Prints the plan of the task and, unless only the list was requested, runs it.
pub(crate) fn run(
    task: &str,
    steps: &[Step],
    selection: &Selection,
    workspace: &Workspace,
) -> Result<(), Failure> {
    let chosen = selection.of(steps)?;
    announce(task, &chosen);
    if *selection == Selection::List {
        return Ok(());
    }
    let mut done = Vec::with_capacity(chosen.len());
    for (index, step) in chosen.iter().enumerate() {
        let (number, count) = (index + 1, chosen.len());
        println!("\n[{number}/{count}] {}", step.name);
        let (result, took) = timed(|| (step.run)(workspace));
        let remark = result.map_err(|cause| stopped(task, step, number, count, &cause))?;
        done.push((step.name, took, remark));
    }
    sum_up(task, &done);
    Ok(())
}

fn announce(task: &str, steps: &[&Step]) {
    println!("The plan of `{task}`:");
    for (index, step) in steps.iter().enumerate() {
        println!("  {}. {:10} {}", index + 1, step.name, step.about);
    }
}

fn stopped(task: &str, step: &Step, number: usize, count: usize, cause: &Failure) -> Failure {
    let name = step.name;
    Failure::step(format!(
        "`{task}` stopped at step {number} of {count}, {name}: {cause}\n\
         To repeat only this step: cargo xtask {task} --only {name}"
    ))
}

fn sum_up(task: &str, done: &[(&str, Duration, String)]) {
    let total: Duration = done.iter().map(|(_, took, _)| *took).sum();
    println!("\n`{task}` passed in {total:.1?}:");
    for (name, took, remark) in done {
        println!("  {name:10} {:>8}  {remark}", format!("{took:.1?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const STEPS: &[Step] = &[
        Step { name: "good", about: "passes", run: |_| Ok("fine".to_owned()) },
        Step { name: "bad", about: "fails", run: |_| Err(Failure::step("the sky fell")) },
    ];

    fn run_with(arguments: &[&str]) -> Result<(), String> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), packages: Vec::new() };
        Selection::parse(&arguments)
            .and_then(|selection| run("demo", STEPS, &selection, &workspace))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_first_failing_step_stops_the_task_and_is_named() {
        assert_eq!(
            run_with(&[]).unwrap_err(),
            "`demo` stopped at step 2 of 2, bad: the sky fell\n\
             To repeat only this step: cargo xtask demo --only bad"
        );
    }

    #[test]
    fn one_step_can_be_run_alone_and_a_list_runs_nothing() {
        run_with(&["--only", "good"]).unwrap();
        run_with(&["--list"]).unwrap();
    }

    #[test]
    fn an_unknown_step_or_option_lists_the_known_ones() {
        assert_eq!(run_with(&["--only", "best"]).unwrap_err(), "there is no step `best`; the steps are good, bad");
        assert!(run_with(&["--only"]).unwrap_err().contains("needs the name"));
        assert!(run_with(&["--fast"]).unwrap_err().contains("cannot read `--fast`"));
    }
}
