//! `plot`: renders the charts and tables of `docs/` from the newest kept run of each benchmark, without measuring.
//! The output depends only on the runs.

mod bars;
mod document;
mod lines;
mod svg;

use crate::run::Run;
use std::path::{Path, PathBuf};

/// The benchmarks, in the order of the document.
const BENCHMARKS: [&str; 9] =
    ["core", "redis", "protocols", "gateway", "dashboard", "rules", "growth", "simulate", "peers"];

const DOCUMENT: &str = "docs/benchmarks.md";
const BARS: &str = "docs/benchmarks.svg";
const LINES: &str = "docs/growth.svg";

/// The newest run of one benchmark.
struct Kept {
    /// The date in the name of its file.
    date: String,
    /// The path of its file from the root of the repository.
    path: String,
    run: Run,
}

/// Writes all files.
pub(crate) fn run() -> Result<(), String> {
    let root = root()?;
    for (path, text) in made(&root)? {
        let whole = root.join(path);
        std::fs::write(&whole, text).map_err(|error| format!("writing {}: {error}", whole.display()))?;
        println!("{path}");
    }
    Ok(())
}

/// The expected content of each file.
fn made(root: &Path) -> Result<[(&'static str, String); 3], String> {
    let kept = BENCHMARKS.iter().filter_map(|name| newest(root, name).transpose());
    let kept: Vec<Kept> = kept.collect::<Result<_, _>>()?;
    let document = root.join(DOCUMENT);
    let text =
        std::fs::read_to_string(&document).map_err(|error| format!("reading {}: {error}", document.display()))?;
    Ok([(DOCUMENT, document::filled(&text, &kept)?), (BARS, bars::picture(&kept)), (LINES, lines::picture(&kept))])
}

/// The root of the repository, the parent of this package's folder.
fn root() -> Result<PathBuf, String> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(Path::to_owned).ok_or_else(|| format!("{} is the root", package.display()))
}

/// The newest kept run of this benchmark. Older ones may have another format.
fn newest(root: &Path, benchmark: &str) -> Result<Option<Kept>, String> {
    let folder = root.join("bench/runs");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ending = format!("-{benchmark}.json");
    let newest = names.filter(|name| name.ends_with(&ending)).max();
    let Some(name) = newest else { return Ok(None) };
    let run = Run::read(&folder.join(&name))?;
    let date = name.trim_end_matches(&ending).to_owned();
    Ok(Some(Kept { date, path: format!("bench/runs/{name}"), run }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_match_the_kept_runs() {
        let root = root().unwrap();
        for (path, text) in made(&root).unwrap() {
            let found = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(found == text, "{path} is not what the kept runs say: run `cargo xtask bench plot`");
        }
    }
}
