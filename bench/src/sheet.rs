//! One table of a benchmark: contenders as rows, measured quantities as columns, every round in every cell.

use crate::statistics::{Spread, compact, rounded};
use serde::{Deserialize, Serialize};

/// One table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sheet {
    /// The workload.
    pub(crate) title: String,
    /// The row of the reference.
    pub(crate) reference: String,
    /// All contenders, in the order of the table.
    pub(crate) rows: Vec<Row>,
}

/// One contender.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// One measured quantity.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Column {
    /// Its name with the unit.
    pub(crate) name: String,
    /// The result of each round, in order: the rounds of two rows correspond.
    pub(crate) rounds: Vec<f64>,
}

impl Sheet {
    /// An empty table.
    pub(crate) fn new(title: impl Into<String>, reference: &str) -> Self {
        Self { title: title.into(), reference: reference.to_owned(), rows: Vec::new() }
    }

    /// Adds the result of one round.
    pub(crate) fn add(&mut self, row: &str, numbers: &[(&str, f64)]) {
        let at = self.rows.iter().position(|each| each.name == row).unwrap_or_else(|| {
            self.rows.push(Row { name: row.to_owned(), columns: Vec::new() });
            self.rows.len() - 1
        });
        numbers.iter().for_each(|(column, number)| self.rows[at].add(column, *number));
    }

    /// The results of all rounds; `None` if it was not measured.
    pub(crate) fn rounds(&self, row: &str, column: &str) -> &[f64] {
        let row = self.rows.iter().find(|each| each.name == row);
        row.and_then(|row| row.column(column)).map_or(&[], |column| &column.rounds)
    }

    /// The median of all rounds.
    pub(crate) fn median(&self, row: &str, column: &str) -> f64 {
        Spread::of(self.rounds(row, column)).median
    }

    /// The ratio of two rows, taken within each round: a disturbance of a round affects both.
    pub(crate) fn ratios(&self, column: &str, over: &str, under: &str) -> Vec<f64> {
        let (over, under) = (self.rounds(over, column), self.rounds(under, column));
        over.iter().zip(under).map(|(over, under)| over / under).collect()
    }

    /// The names of the columns, in the order of the first row that has them.
    pub(crate) fn columns(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for column in self.rows.iter().flat_map(|row| &row.columns) {
            if !names.contains(&column.name.as_str()) {
                names.push(&column.name);
            }
        }
        names
    }

    /// The ratio of the first column of a row to that of the reference.
    fn ratio(&self, row: &Row) -> Option<Spread> {
        let column = row.columns.first()?;
        let ratios = self.ratios(&column.name, &row.name, &self.reference);
        (!ratios.is_empty() && row.name != self.reference).then(|| Spread::of(&ratios))
    }

    fn has_ratio(&self) -> bool {
        self.rows.iter().any(|row| self.ratio(row).is_some())
    }

    /// The reference of the ratios; empty if there are none.
    fn compared(&self, before: &str, after: &str) -> String {
        if self.has_ratio() { format!("{before}× = times {}{after}", self.reference) } else { String::new() }
    }

    fn cells(&self, row: &Row, has_ratio: bool) -> Vec<String> {
        let shown = |column: &&str| row.column(column).map_or("–".to_owned(), |found| found.spread().text());
        let mut cells: Vec<String> = self.columns().iter().map(shown).collect();
        if has_ratio {
            let ratio = self.ratio(row).map_or(String::new(), |ratio| format!("{}×", compact(ratio.median)));
            cells.insert(1, ratio);
        }
        cells
    }

    /// The head and the rows, as text.
    fn grid(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let has_ratio = self.has_ratio();
        let mut head: Vec<String> = self.columns().into_iter().map(str::to_owned).collect();
        if has_ratio {
            head.insert(1, "×".to_owned());
        }
        head.insert(0, String::new());
        let line = |row: &Row| [vec![row.name.clone()], self.cells(row, has_ratio)].concat();
        (head, self.rows.iter().map(line).collect())
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let (head, rows) = self.grid();
        let width = |at: usize| {
            let cells = std::iter::once(&head).chain(&rows).filter_map(|line| line.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                if at == 0 { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") }
            });
            cells.collect::<String>().trim_end().to_owned()
        };
        let lines: Vec<String> = std::iter::once(&head).chain(&rows).map(line).collect();
        format!("{}{}\n{}", self.title, self.compared("; ", ""), lines.join("\n"))
    }

    /// For a document.
    pub(crate) fn markdown(&self) -> String {
        let (head, rows) = self.grid();
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let mut lines = vec![line(&head), format!("|---|{}", "--:|".repeat(head.len() - 1))];
        lines.extend(rows.iter().map(|row| line(row)));
        format!("**{}**{}\n\n{}\n", self.title, self.compared(" (", ")"), lines.join("\n"))
    }
}

impl Row {
    fn add(&mut self, column: &str, number: f64) {
        match self.columns.iter_mut().find(|each| each.name == column) {
            Some(found) => found.rounds.push(rounded(number)),
            None => self.columns.push(Column { name: column.to_owned(), rounds: vec![rounded(number)] }),
        }
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl Column {
    pub(crate) fn spread(&self) -> Spread {
        Spread::of(&self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let mut sheet = Sheet::new("work", "peer");
        for (ours, peers) in [(10.0, 5.0), (30.0, 10.0), (20.0, 40.0)] {
            sheet.add("ours", &[("per s", ours), ("µs", 1.0)]);
            sheet.add("peer", &[("per s", peers)]);
        }
        sheet
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        assert_eq!(sheet().ratios("per s", "ours", "peer"), [2.0, 3.0, 0.5]);
        assert!(sheet().ratios("per s", "ours", "nobody").is_empty());
    }

    #[test]
    fn a_table_shows_medians_spreads_and_how_the_first_column_compares() {
        assert_eq!(
            sheet().markdown(),
            "**work** (× = times peer)\n\n|  | per s | × | µs |\n|---|--:|--:|--:|\n\
             | ours | 20.0 (10.0–30.0) | 2.00× | 1.00 |\n| peer | 10.0 (5.00–40.0) |  | – |\n"
        );
        assert!(sheet().text().contains("\n  ours  20.0 (10.0–30.0)  2.00×  1.00\n"), "{}", sheet().text());
    }
}
