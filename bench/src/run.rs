//! The results of a benchmark: sheets of numbers and goals, as tables for people and as JSON in `bench/runs`.

use crate::Options;
use crate::cores;
use crate::goal::Goal;
use crate::sheet::Sheet;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One run of one benchmark.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The name of the benchmark on the command line.
    pub(crate) benchmark: String,
    /// The machine.
    pub(crate) machine: String,
    /// The load average of the last minute before it started.
    pub(crate) load_before: f64,
    /// The number of interleaved rounds.
    pub(crate) rounds: usize,
    /// True for `--quick`, with a tenth of the work.
    pub(crate) is_quick: bool,
    /// The measurements.
    pub(crate) sheets: Vec<Sheet>,
    /// The goals.
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

    /// Prints the results, and writes the file that the options name.
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

    /// Reads a kept run.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("reading {name}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))
    }
}
