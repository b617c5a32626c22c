//! What was hoped for beside what was reached: ratios within one run wherever a ratio says it.

use crate::statistics::{Spread, compact, rounded};
use serde::{Deserialize, Serialize};

/// One goal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// What is measured.
    pub(crate) what: String,
    /// What it is measured against; empty if it stands for itself.
    pub(crate) beside: String,
    /// What follows the number: `×`, `MB`, …
    pub(crate) unit: String,
    /// Whether the bound is the least or the most that is good.
    pub(crate) sense: Sense,
    pub(crate) bound: f64,
    /// What each round reached.
    pub(crate) reached: Vec<f64>,
}

/// Which side of a bound is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sense {
    AtLeast,
    AtMost,
}

impl Goal {
    /// So many times as much, at least.
    pub(crate) fn at_least(what: impl Into<String>, beside: &str, bound: f64, reached: Vec<f64>) -> Self {
        Self::new(what.into(), beside, Sense::AtLeast, bound, reached)
    }

    /// So many times as much, at most.
    pub(crate) fn at_most(what: impl Into<String>, beside: &str, bound: f64, reached: Vec<f64>) -> Self {
        Self::new(what.into(), beside, Sense::AtMost, bound, reached)
    }

    fn new(what: String, beside: &str, sense: Sense, bound: f64, reached: Vec<f64>) -> Self {
        let reached = reached.into_iter().map(rounded).collect();
        Self { what, beside: beside.to_owned(), unit: "×".to_owned(), sense, bound, reached }
    }

    /// The same goal, which is not a ratio but so many of these.
    pub(crate) fn of(self, unit: &str) -> Self {
        Self { unit: unit.to_owned(), ..self }
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread::of(&self.reached)
    }

    /// True if the median is on the good side.
    pub(crate) fn is_met(&self) -> bool {
        match self.sense {
            Sense::AtLeast => self.spread().median >= self.bound,
            Sense::AtMost => self.spread().median <= self.bound,
        }
    }

    /// `≥ 3.00×`.
    pub(crate) fn bound_text(&self) -> String {
        let sign = if self.sense == Sense::AtLeast { '≥' } else { '≤' };
        format!("{sign} {}{}", plain(self.bound), self.unit_text())
    }

    /// `2.71× (2.5–2.9)`.
    pub(crate) fn reached_text(&self) -> String {
        let Spread { least, median, most } = self.spread();
        let median = format!("{}{}", compact(median), self.unit_text());
        let [least, most] = [least, most].map(compact);
        if least == most { median } else { format!("{median} ({least}–{most})") }
    }

    fn unit_text(&self) -> String {
        if self.unit == "×" { self.unit.clone() } else { format!(" {}", self.unit) }
    }

    /// `what beside whom`.
    pub(crate) fn title(&self) -> String {
        if self.beside.is_empty() { self.what.clone() } else { format!("{}, beside {}", self.what, self.beside) }
    }
}

/// A bound as a person would write it.
fn plain(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// All goals, for a terminal.
pub(crate) fn text(goals: &[Goal]) -> String {
    let widest =
        |of: fn(&Goal) -> String| goals.iter().map(|goal| of(goal).chars().count()).max().unwrap_or_default();
    let (width, bound_width) = (widest(Goal::title), widest(Goal::bound_text));
    let line = |goal: &Goal| {
        let mark = if goal.is_met() { "reached" } else { "missed" };
        let (title, bound, reached) = (goal.title(), goal.bound_text(), goal.reached_text());
        format!("  {title:<width$}  {bound:>bound_width$}  {mark:<7}  {reached}")
    };
    let lines: Vec<String> = goals.iter().map(line).collect();
    format!("goals\n{}", lines.join("\n"))
}

/// All goals, for a document.
pub(crate) fn markdown<'a>(goals: impl Iterator<Item = &'a Goal>) -> String {
    let line = |goal: &Goal| {
        let mark = if goal.is_met() { "yes" } else { "**no**" };
        let beside = if goal.beside.is_empty() { "–" } else { &goal.beside };
        format!("| {} | {beside} | {} | {} | {mark} |\n", goal.what, goal.bound_text(), goal.reached_text())
    };
    format!(
        "| what | beside | goal | reached | met |\n|---|---|--:|--:|---|\n{}",
        goals.map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides_on_the_right_side() {
        assert!(Goal::at_least("a", "b", 3.0, vec![2.0, 3.0, 9.0]).is_met());
        assert!(!Goal::at_least("a", "b", 3.0, vec![2.0, 2.9, 9.0]).is_met());
        assert!(Goal::at_most("a", "b", 1.1, vec![1.0, 1.1, 9.0]).is_met());
        assert!(!Goal::at_most("a", "b", 1.1, vec![1.2]).is_met());
        // What was not measured is not reached.
        assert!(!Goal::at_most("a", "b", 1.1, vec![]).is_met());
    }

    #[test]
    fn a_goal_reads_as_a_sentence() {
        let goal = Goal::at_most("an idle server", "", 15.0, vec![7.25]).of("MB");
        assert_eq!(text(&[goal]), "goals\n  an idle server  ≤ 15 MB  reached  7.25 MB");
        let goal = Goal::at_least("a hot key", "a script each", 0.125, vec![0.1, 0.2, 0.3]);
        assert_eq!(
            markdown([goal].iter()).lines().last(),
            Some("| a hot key | a script each | ≥ 0.125× | 0.20× (0.10–0.30) | yes |")
        );
    }
}
