//! `rules`: the cost of a decision as the number of rules grows, while only one or two of them match.
//!
//! Half of the rules name their resource, half a prefix of it; requests cycle through all resources.

use crate::Options;
use crate::core_bench::now;
use crate::goal::Goal;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::statistics::grouped;
use sluicegate::clock::SystemClock;
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::{Limiter, MemoryStore, Request};
use std::hint::black_box;
use std::time::Duration;

const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
/// How long one measurement lasts.
const LASTS: Duration = Duration::from_millis(500);
/// Decisions between two reads of the clock.
const BETWEEN_LOOKS: usize = 16;
/// The number of identities.
const IDENTITIES: usize = 1_000;
/// The stride through the resources.
const STRIDE: usize = 7_919;

/// The columns of its tables, which `growth` draws.
pub(crate) const PER_SECOND: &str = "decisions/s";
const NANOS: &str = "ns per decision";

/// A limiter and its requests.
struct Subject {
    row: String,
    limiter: Limiter<MemoryStore>,
    resources: Vec<String>,
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("rules", options);
    for (title, is_twice) in [("rules, one matches", false), ("rules, two match", true)] {
        let sheet = measure(options, title, is_twice)?;
        let [least, .., most] = COUNTS.map(row);
        let what = format!("10,000 {title}, time per decision");
        run.goals.push(Goal::at_most(what, "10 rules", 2.0, sheet.ratios(NANOS, &most, &least)));
        run.sheets.push(sheet);
    }
    run.finish(options)
}

fn measure(options: &Options, title: &str, is_twice: bool) -> Result<Sheet, String> {
    eprintln!("{title}, {} rounds …", options.rounds);
    let subjects: Vec<Subject> =
        COUNTS.iter().map(|count| Subject::new(*count, is_twice)).collect::<Result<_, _>>()?;
    let names: Vec<String> = (0..IDENTITIES).map(|index| format!("user-{index:019}")).collect();
    let lasts = if options.quick { LASTS / 10 } else { LASTS };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let mut sheet = Sheet::new(title, &row(COUNTS[0]));
    for _ in 0..options.rounds {
        for subject in &subjects {
            runtime.block_on(subject.ask_for(&names, lasts / 10))?;
            let per_second = runtime.block_on(subject.ask_for(&names, lasts))?;
            sheet.add(&subject.row, &[(PER_SECOND, per_second), (NANOS, 1e9 / per_second)]);
        }
    }
    Ok(sheet)
}

fn row(count: usize) -> String {
    format!("{} rules", grouped(count as i64))
}

impl Subject {
    fn new(count: usize, is_twice: bool) -> Result<Self, String> {
        let rate = Rate::new(1, Micros::from_secs(10)).map_err(|error| error.to_string())?;
        let quota = Quota::from(TokenBucket::new(30_000_000, rate).map_err(|error| error.to_string())?);
        let rule = |name: &str, pattern: &str| {
            let mut rule = Rule::new(name, Limits::all(name, [(None, quota.clone())]));
            rule.selector.resource = Some(Pattern::new(pattern));
            rule
        };
        let services = count - usize::from(is_twice);
        let mut rules: Vec<Rule> = (0..services).map(|at| rule(&format!("service-{at}"), &pattern(at))).collect();
        if is_twice {
            rules.push(rule("everything", "service.*"));
        }
        let rules = RuleSet::new(rules, Vec::new(), Unmatched::Deny).map_err(|error| error.to_string())?;
        let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
        Ok(Self { row: row(count), limiter, resources: (0..services).map(resource).collect() })
    }

    /// Decisions per second.
    async fn ask_for(&self, names: &[String], lasts: Duration) -> Result<f64, String> {
        let (started, mut step) = (now(), 0_usize);
        while started.elapsed() < lasts {
            for _ in 0..BETWEEN_LOOKS {
                let resource = &self.resources[step * STRIDE % self.resources.len()];
                let request = Request::new(resource, &names[step % names.len()]);
                let decision = black_box(self.limiter.check(&request).await).map_err(|error| error.to_string())?;
                if !decision.is_allowed() {
                    return Err(format!("{resource} was denied"));
                }
                step += 1;
            }
        }
        Ok(step as f64 / started.elapsed().as_secs_f64())
    }
}

fn resource(at: usize) -> String {
    format!("service.{at:05}.read")
}

fn pattern(at: usize) -> String {
    if at.is_multiple_of(2) { resource(at) } else { format!("service.{at:05}.*") }
}
