//! What a benchmark found: sheets of numbers and goals, as tables for people and as JSON that is kept.

use crate::Options;
use crate::cores;
use crate::goal::Goal;
use crate::sheet::Sheet;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One run of one benchmark.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The name by which it was asked for.
    pub(crate) benchmark: String,
    /// Where it ran.
    pub(crate) machine: String,
    /// How busy the machine was before it began: the average number of those who wanted a core in the last minute.
    pub(crate) load_before: f64,
    /// How many interleaved rounds there were.
    pub(crate) rounds: usize,
    /// True if it was only a first look, with a tenth of the work.
    pub(crate) is_quick: bool,
    /// What was measured.
    pub(crate) sheets: Vec<Sheet>,
    /// What was hoped for.
    pub(crate) goals: Vec<Goal>,
}

impl Run {
    /// An empty run.
    pub(crate) fn new(benchmark: &str, options: &Options) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            machine: cores::machine(),
            load_before: cores::load(),
            rounds: options.rounds,
            is_quick: options.quick,
            sheets: Vec::new(),
            goals: Vec::new(),
        }
    }

    /// Prints everything, and keeps it where the options say.
    pub(crate) fn finish(&self, options: &Options) -> Result<(), String> {
        let Self { benchmark, machine, load_before, rounds, .. } = self;
        println!("{benchmark}: {machine}, load {load_before} before, {rounds} rounds, median (least–most)");
        self.sheets.iter().for_each(|sheet| println!("\n{}", sheet.text()));
        if !self.goals.is_empty() {
            println!("\n{}", crate::goal::text(&self.goals));
        }
        options.json.as_ref().map_or(Ok(()), |path| self.write(Path::new(path)))
    }

    fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(path, format!("{text}\n")).map_err(|error| format!("writing {}: {error}", path.display()))
    }

    /// A run that was kept.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("reading {name}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))
    }
}
