//! Compares `docs/bounds.md` with the code: every number on the page equals the number in the code, and every test
//! that the page names exists.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the crates, by their names on the page.
const CRATES: [(&str, &str); 3] = [
    ("server", "crates/sluicegate-server/src"),
    ("library", "crates/sluicegate/src"),
    ("core", "crates/sluicegate-core/src"),
];

/// Options of listeners. All of them are bounds and must be on the page.
const OPTIONS: [&str; 2] = ["server/net/options.rs", "server/resp.rs"];

/// Files and folders that parse the input of clients. Every constant `…_MAX` in them has a row on the page, or is listed below.
const PARSERS: [&str; 18] = [
    "server/body.rs",
    "server/grpc",
    "server/brute_force.rs",
    "server/http/api",
    "server/http/auth.rs",
    "server/http/check",
    "server/http/gateway",
    "server/http/http1_fast_check",
    "server/http/json_body.rs",
    "server/net",
    "server/resp",
    "server/wire",
    "library/authority.rs",
    "library/identify",
    "library/identity",
    "library/identity.rs",
    "library/path",
    "library/path.rs",
];
/// The constants of these files that bound nothing that a client can grow.
const NOT_OF_CLIENTS: [(&str, &[&str]); 3] = [
    (
        "the configuration, or the answers of servers that it names",
        &[
            "library/identify/address/trusted.rs::NETWORKS_MAX",
            "library/identify/api_key.rs::KEYS_MAX",
            "library/identify/token/keys.rs::RSA_BITS_MAX",
            "library/identify/token/keys.rs::TRIED_MAX",
            "library/identify/token/options.rs::ISSUERS_MAX",
            "library/identify/token/options.rs::KEEP_MAX",
            "library/identify/token/options.rs::LEEWAY_MAX",
            "library/identify/token/remote.rs::FETCH_MAX",
            "library/identify/token/remote.rs::RETRY_MAX",
            "library/identify/token/remote.rs::WAIT_MAX",
            "library/path/pattern.rs::PATTERN_BYTES_MAX",
            "server/http/gateway/upstream.rs::HTTP2_HEADER_LIST_BYTES_MAX",
            "server/http/gateway/upstream/http1.rs::BUFFER_BYTES_MAX",
            "server/http/gateway/upstream/http1.rs::HEADERS_MAX",
            "server/http/gateway/upstream/pool.rs::IDLE_MAX",
            "server/net/tls.rs::FILE_BYTES_MAX",
        ],
    ),
    (
        "the longest correct text, or the largest correct number",
        &[
            "library/identify/token/claims.rs::SECONDS_MAX",
            "server/http/gateway/forwarded.rs::ADDRESS_BYTES_MAX",
            "library/authority.rs::PORT_DIGITS_MAX",
            "server/resp/parse.rs::HEADER_BYTES_MAX",
            "server/resp/reply.rs::NUMBER_BYTES_MAX",
            "server/resp/throttle.rs::BYTES_MAX",
            "server/resp/throttle.rs::DIGITS_MAX",
            "server/resp/throttle.rs::PERIOD_SECS_MAX",
        ],
    ),
    (
        "the end of a fast path or of an error message",
        &[
            "library/identify/address/trusted.rs::ECHO_BYTES_MAX",
            "server/http/http1_fast_check/request.rs::HEADERS_MAX",
            "server/http/json_body.rs::SHOWN_CHARS_MAX",
            "server/wire/request.rs::SHOWN_CHARS_MAX",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

/// A row of the page.
#[derive(Debug)]
struct Row {
    /// The first number of the second column, in bytes, milliseconds or pieces.
    at_most: u64,
    file: String,
    name: String,
    test: String,
}

impl Row {
    fn read(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", _, at_most, _, place, test, ""] = cells[..] else { return None };
        let (file, name) = place.trim_matches('`').split_once("::")?;
        let (file, name, test) = (file.to_owned(), name.to_owned(), test.trim_matches('`').to_owned());
        Some(Self { at_most: number(at_most), file, name, test })
    }
}

/// The first number of a text, with its unit.
fn number(text: &str) -> u64 {
    let start = text.find(|first: char| first.is_ascii_digit()).unwrap_or_else(|| panic!("no number in `{text}`"));
    let text = &text[start..];
    let end = text.find(|next: char| !next.is_ascii_digit() && next != ',').unwrap_or(text.len());
    let number: u64 = text[..end].trim_end_matches(',').replace(',', "").parse().expect("a number");
    let unit = text[end..].split_whitespace().next().unwrap_or_default();
    match unit.trim_end_matches(',') {
        "KiB" => number * 1_024,
        "MiB" => number * 1_024 * 1_024,
        "s" => number * 1_000,
        _ => number,
    }
}

/// The text of a source file that the page names.
fn source(file: &str) -> String {
    let (name, path) = file.split_once('/').expect("a crate and a file");
    let folder = CRATES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no crate `{name}`")).1;
    fs::read_to_string(root().join(folder).join(path)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The value of a constant, of a field of a default, or the default of a configuration key.
fn expression(source: &str, name: &str) -> Option<String> {
    if let Some((_, declaration)) = source.split_once(&format!("static {name}: Field<")) {
        let (_, default) = declaration.split_once("Absent::Default(\"")?;
        return default.split('"').next().map(str::to_owned);
    }
    let constant = format!("const {name}:");
    if let Some((_, rest)) = source.split_once(&constant) {
        let (_, rest) = rest.split_once('=')?;
        return rest.split([';', '{']).next().map(str::to_owned);
    }
    let field = format!("{name}: ");
    let mut values = source.match_indices(&field).filter_map(|(at, _)| {
        let before = source[..at].trim_end_matches([' ', '\n']).chars().last()?;
        let is_field = matches!(before, ',' | '{');
        let value = source[at + field.len()..].split([',', '}', '\n']).next()?;
        (is_field && value.contains(|next: char| next.is_ascii_digit())).then(|| value.to_owned())
    });
    values.next()
}

/// Evaluates an expression; `named` resolves constants of other places.
fn value(expression: &str, named: &impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let text = expression.trim().trim_start_matches("match ").trim();
    let inner = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')').map(str::to_owned);
    if let Some(seconds) = inner("Duration::from_secs(") {
        return Some(value(&seconds, named)? * 1_000);
    }
    if let Some(inner) = inner("Duration::from_millis(").or_else(|| inner("NonZeroU32::new(")) {
        return value(&inner, named);
    }
    if let Some((left, right)) = text.split_once("<<") {
        return Some(value(left, named)? << value(right, named)?);
    }
    if let Some((left, right)) = text.split_once(" / ") {
        return value(left, named)?.checked_div(value(right, named)?);
    }
    if let Some((left, right)) = text.split_once('*') {
        return Some(value(left, named)? * value(right, named)?);
    }
    let digits = text.replace('_', "");
    digits.parse().ok().or_else(|| named(text))
}

/// The text of every source file of the crates.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, text);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            *text += &fs::read_to_string(&entry).expect("a source file");
        }
    }
}

#[test]
fn the_page_of_bounds_matches_the_code() {
    let page = fs::read_to_string(root().join("docs/bounds.md")).expect("the page");
    let rows: Vec<Row> = page.lines().filter_map(Row::read).collect();
    let places = page.lines().filter(|line| line.starts_with('|') && line.contains(".rs::")).count();
    assert!(rows.len() == places && places > 40, "{} rows of {places} could be read", rows.len());

    let mut tests = String::new();
    sources(&root().join("crates"), &mut tests);
    let mut texts: HashMap<&str, String> = HashMap::new();
    for row in &rows {
        texts.entry(&row.file).or_insert_with(|| source(&row.file));
    }
    let named = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.at_most);
    for row in &rows {
        let Row { file, name, at_most, test } = row;
        let set = expression(&texts[&**file], name).unwrap_or_else(|| panic!("{file} does not set `{name}`"));
        let found = value(&set, &named).unwrap_or_else(|| panic!("{file}: cannot read `{set}` of `{name}`"));
        assert_eq!(found, *at_most, "docs/bounds.md and {file} differ in `{name}`; correct the one that is wrong");
        assert!(
            tests.contains(&format!("fn {test}(")),
            "docs/bounds.md names the test `{test}`, which is not there"
        );
    }
}

#[test]
fn every_option_of_the_listeners_is_on_the_page() {
    let page = fs::read_to_string(root().join("docs/bounds.md")).expect("the page");
    for file in OPTIONS {
        let text = source(file);
        let default = text.split_once("fn default() -> Self {").expect("a default").1;
        let fields = default.split_once("\n        }\n").expect("its end").0;
        let names = fields.lines().filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| name);
        for name in names.filter(|name| *name != "connections_max") {
            let is_told = page.contains(&format!("`{file}::{name}`"));
            assert!(is_told, "docs/bounds.md lacks a row for `{file}::{name}`");
        }
    }
}

/// The constants of a source file with the name of a bound.
fn bounds(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| Some(line.split_once("const ")?.1.split_once(": ")?.0));
    names.filter(|name| name.ends_with("_MAX") || name.starts_with("MAX_"))
}

/// Every source file at or below a path.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|entry| files(&entry)).collect()
}

#[test]
fn every_bound_of_a_parser_is_on_the_page_or_is_not_about_clients() {
    let page = fs::read_to_string(root().join("docs/bounds.md")).expect("the page");
    let mut others: Vec<&str> = NOT_OF_CLIENTS.iter().flat_map(|(_, names)| *names).copied().collect();
    for parser in PARSERS {
        let (krate, path) = parser.split_once('/').expect("a crate and a path");
        let folder = root().join(CRATES.iter().find(|(known, _)| *known == krate).expect("a crate").1);
        let sources = files(&folder.join(path)).into_iter();
        for file in sources.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            let text = fs::read_to_string(&file).expect("a source file");
            let file = format!("{krate}/{}", file.strip_prefix(&folder).expect("below it").display());
            for name in bounds(&text).map(|name| format!("{file}::{name}")) {
                let place = others.iter().position(|other| *other == name);
                let is_known = place.map(|place| others.swap_remove(place)).is_some();
                let is_listed = page.contains(&format!("`{name}`"));
                assert!(
                    is_known != is_listed,
                    "`{name}` needs a row in docs/bounds.md, or a reason in NOT_OF_CLIENTS"
                );
            }
        }
    }
    assert!(others.is_empty(), "these are no longer there: {others:?}");
}
