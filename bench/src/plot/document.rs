//! Fills the tables of the document: the program writes the text between two markers, people write the rest.

use super::{BENCHMARKS, Kept};
use crate::goal;
use crate::run::Run;
use crate::sheet::Sheet;

const OPENING: &str = "<!-- numbers: ";
const CLOSING: &str = "<!-- end of numbers -->";

/// The text with every marked part replaced by the results of the runs.
pub(super) fn filled(text: &str, kept: &[Kept]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPENING) {
        let (name, after) = after.split_once(" -->").ok_or("a marker without its end")?;
        let (_, after) = after.split_once(CLOSING).ok_or_else(|| format!("`{name}` has no `{CLOSING}`"))?;
        out += &format!("{before}{OPENING}{name} -->\n\n{}\n{CLOSING}", part(name, kept)?);
        rest = after;
    }
    Ok(out + rest)
}

fn part(name: &str, kept: &[Kept]) -> Result<String, String> {
    match name {
        "goals" => Ok(goal::markdown(kept.iter().flat_map(|kept| &kept.run.goals))),
        "runs" => Ok(runs(kept)),
        _ if BENCHMARKS.contains(&name) => {
            let found = kept.iter().find(|kept| kept.run.benchmark == name);
            let sheets = |kept: &Kept| kept.run.sheets.iter().map(Sheet::markdown).collect::<Vec<_>>().join("\n");
            Ok(found.map_or("No run is kept yet.\n".to_owned(), sheets))
        }
        _ => Err(format!("there is no benchmark `{name}`")),
    }
}

/// The runs behind the numbers.
fn runs(kept: &[Kept]) -> String {
    let line = |kept: &Kept| {
        let Kept { date, path, run } = kept;
        let quick = if run.is_quick { ", a first look with a tenth of the work" } else { "" };
        let file = path.rsplit('/').next().unwrap_or_default();
        let Run { benchmark, rounds, machine, load_before, .. } = run;
        format!("| {benchmark} | {date} | {rounds}{quick} | {machine} | {load_before} | [{file}](../{path}) |\n")
    };
    let head = "| benchmark | date | rounds | machine | load before | raw numbers |\n|---|---|---|---|---|---|\n";
    format!("{head}{}", kept.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let text = r#"{"benchmark":"core","machine":"M","load_before":0.5,"rounds":3,"is_quick":false,"sheets":[],"goals":[]}"#;
        let run: Run = serde_json::from_str(text).unwrap();
        Kept { date: "2026-01-02".to_owned(), path: "bench/runs/2026-01-02-core.json".to_owned(), run }
    }

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let text = "a\n<!-- numbers: runs -->old<!-- end of numbers -->\nb\n";
        let once = filled(text, &[kept()]).unwrap();
        assert!(once.starts_with("a\n<!-- numbers: runs -->\n\n| benchmark |"), "{once}");
        assert!(once.contains("| core | 2026-01-02 | 3 | M | 0.5 |") && once.ends_with("-->\nb\n"), "{once}");
        assert_eq!(filled(&once, &[kept()]).unwrap(), once);
    }

    #[test]
    fn a_benchmark_without_a_run_is_reported() {
        let text = filled("<!-- numbers: peers --><!-- end of numbers -->", &[kept()]).unwrap();
        assert!(text.contains("No run is kept yet."), "{text}");
    }

    #[test]
    fn an_unknown_marker_is_named() {
        let of = |text: &str| filled(text, &[kept()]).unwrap_err();
        assert_eq!(of("<!-- numbers: cor --><!-- end of numbers -->"), "there is no benchmark `cor`");
        assert!(of("<!-- numbers: core --> x").contains("`core` has no"));
    }
}
