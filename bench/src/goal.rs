//! Goals and results: ratios within one run wherever possible.

use crate::statistics::{Spread, compact, rounded};
use serde::{Deserialize, Serialize};

/// One goal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// The measured quantity.
    pub(crate) what: String,
    /// The reference; empty for an absolute goal.
    pub(crate) beside: String,
    /// The unit after the number: `×`, `MB`, …
    pub(crate) unit: String,
    /// Whether the bound is a minimum or a maximum.
    pub(crate) sense: Sense,
    pub(crate) bound: f64,
    /// The result of each round.
    pub(crate) reached: Vec<f64>,
}

/// The good side of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sense {
    AtLeast,
    AtMost,
}

impl Goal {
    /// A ratio of at least this.
    pub(crate) fn at_least(what: impl Into<String>, beside: &str, bound: f64, reached: Vec<f64>) -> Self {
        Self::new(what.into(), beside, Sense::AtLeast, bound, reached)
    }

    /// A ratio of at most this.
    pub(crate) fn at_most(what: impl Into<String>, beside: &str, bound: f64, reached: Vec<f64>) -> Self {
        Self::new(what.into(), beside, Sense::AtMost, bound, reached)
    }

    fn new(what: String, beside: &str, sense: Sense, bound: f64, reached: Vec<f64>) -> Self {
        let reached = reached.into_iter().map(rounded).collect();
        Self { what, beside: beside.to_owned(), unit: "×".to_owned(), sense, bound, reached }
    }

    /// The same goal as an absolute number with a unit.
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

    /// `quantity beside reference`.
    pub(crate) fn title(&self) -> String {
        if self.beside.is_empty() { self.what.clone() } else { format!("{}, beside {}", self.what, self.beside) }
    }
}

/// A bound without superfluous zeros.
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
        // A quantity that was not measured misses its goal.
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
