//! The tables of the reference pages are rendered from the declarations of the keys and settings.
//!
//! To rewrite them after a change of a declaration:
//! `UPDATE_DOCS=1 cargo test -p sluicegate-server --all-features config::tests::reference`.

use super::documents::docs;
use super::*;
use crate::config::gateway;
use crate::rule_documents::read;
use crate::settings::declared::{SETTINGS, Setting};
use sluicegate::rules::file::field::Declared;
use sluicegate::rules::file::limit::{FIXED_WINDOW, TOKEN_BUCKET};
use sluicegate::rules::file::rule::{RULE, SELECTOR};
use sluicegate::rules::file::{descriptor, lease, tier};

/// The end of a table of keys.
const KEYS_END: &str = "<!-- end of keys -->";

/// The ends of the table of settings.
const SETTINGS_START: &str = "<!-- settings -->\n";
const SETTINGS_END: &str = "<!-- end of settings -->";

/// A table by the name in its marker, and the keys that it leaves out because the page describes them elsewhere.
type Table = (&'static str, &'static Mapping, &'static [&'static str]);

/// The tables of each page.
const PAGES: &[(&str, &[Table])] =
    &[("configuration.md", CONFIGURATION), ("identity.md", IDENTITY), ("observability.md", OBSERVABILITY)];

const CONFIGURATION: &[Table] = &[
    ("file", &TOP, &[]),
    ("rule", &RULE, &[]),
    ("match", &SELECTOR, &[]),
    ("descriptor", &descriptor::ENTRY, &[]),
    ("tier", &tier::TIER, &[]),
    ("lease", &lease::LEASE_FIELDS, &[]),
    ("token_bucket", &TOKEN_BUCKET, &["algorithm", "name"]),
    ("window", &FIXED_WINDOW, &["algorithm", "name", "timezone", "anchor"]),
    ("calendar", &FIXED_WINDOW, &["algorithm", "name", "limit", "window", "align"]),
    ("tenant", &read::TENANT_ENTRY, &[]),
    ("override", &read::OVERRIDE, &[]),
    ("key", &read::KEY, &[]),
    ("admin", &admin::ADMIN, &[]),
    ("token", &admin::TOKEN, &[]),
    ("api", &api::API, &[]),
    ("memory", &MEMORY_FIELDS, &[]),
    ("redis", &redis::REDIS, &[]),
    ("listen", &listeners::LISTEN, &[]),
    ("listener", &listeners::LISTENER, &[]),
    ("listener tls", &listeners::LISTENER_TLS, &[]),
    ("gateway", &gateway::GATEWAY, &[]),
    ("route", &gateway::route::ROUTE, &[]),
    ("route tls", &gateway::route::UPSTREAM_TLS, &[]),
    ("cors", &gateway::CORS_FIELDS, &[]),
    ("resp", &RESP_FIELDS, &[]),
    ("headers", &HEADERS_FIELDS, &[]),
];

const IDENTITY: &[Table] = &[
    ("jwt", &crate::config::identity::JWT_FIELDS, &[]),
    ("api_key", &crate::config::identity::API_KEY_FIELDS, &[]),
    ("ip", &crate::config::identity::IP_FIELDS, &[]),
];

const OBSERVABILITY: &[Table] =
    &[("log", &log::LOG, &[]), ("decisions", &log::DECISION_SHARES, &[]), ("traces", &traces::TRACES, &[])];

#[test]
fn the_tables_of_the_pages_are_those_of_the_declarations() {
    for (page, tables) in PAGES {
        check_page(page, tables);
    }
}

fn check_page(name: &str, tables: &[Table]) {
    let path = docs().join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    let mut rendered = page.clone();
    for (table, mapping, left_out) in tables {
        let fields = mapping.fields.iter().filter(|field| !left_out.contains(&field.key()));
        let rows: String = fields.map(|field| row(*field)).collect();
        let text = format!("\n| key | type | default | |\n|---|---|---|---|\n{rows}\n");
        replace_between(&mut rendered, &format!("<!-- keys of {table} -->\n"), KEYS_END, &text);
    }
    if name == "configuration.md" {
        replace_between(&mut rendered, SETTINGS_START, SETTINGS_END, &settings_table());
    }
    #[expect(clippy::disallowed_methods, reason = "an argument of `cargo test` would select tests")]
    let is_update = std::env::var_os("UPDATE_DOCS").is_some();
    if is_update {
        std::fs::write(&path, &rendered).unwrap();
    } else {
        assert!(page == rendered, "docs/{name} is not up to date; see the head of this file");
    }
}

/// Replaces the text between two markers of a page.
fn replace_between(page: &mut String, start: &str, end: &str, text: &str) {
    let begin = page.find(start).unwrap_or_else(|| panic!("no {start} on the page")) + start.len();
    let end = begin + page[begin..].find(end).unwrap_or_else(|| panic!("no end of {start}"));
    page.replace_range(begin..end, text);
}

/// The table of flags and environment variables.
fn settings_table() -> String {
    let code = |text: &str| format!("`{text}`");
    let rows = SETTINGS.iter().map(|setting| {
        let flag = setting.flag.map(|placeholder| code(&format!("--{} {placeholder}", setting.name)));
        let key = key_of(setting).map(|key| code(&key));
        let default = setting.default.map_or_else(|| "none".to_owned(), code);
        let doc = format!("{} {}", setting.doc, setting.details);
        let cells = [flag.unwrap_or_default(), code(setting.variable), key.unwrap_or_default(), default];
        let cells = cells.map(|cell| cell.replace('|', "\\|")).join(" | ");
        format!("| {cells} | {} |\n", doc.trim_end())
    });
    let rows: String = rows.collect();
    format!("\n| flag | variable | key | default | |\n|---|---|---|---|---|\n{rows}\n")
}

/// The key of the file that is declared by a setting.
fn key_of(setting: &Setting) -> Option<String> {
    let has_key = |mapping: &Mapping| {
        mapping.fields.iter().any(|field| field.key() == setting.name && field.doc() == setting.doc)
    };
    let listen = has_key(&listeners::LISTEN).then(|| format!("listen.{}", setting.name));
    listen.or_else(|| has_key(&TOP).then(|| setting.name.to_owned()))
}

fn row(field: &dyn Declared) -> String {
    let default = match field.absent() {
        Absent::Required(_) => "required".to_owned(),
        Absent::Default(text) => format!("`{text}`"),
        Absent::Nothing(text) => text.to_owned(),
    };
    let cells = [format!("`{}`", field.key()), type_of(&field.form()), default, field.doc().to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

fn type_of(form: &Form) -> String {
    let quoted = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match form {
        Form::Boolean => quoted(&["true", "false"]),
        Form::Integer { min, max } => format!("{min} to {max}"),
        Form::Words(words) | Form::Literal(words) => quoted(words),
        Form::Named("address") => "`HOST:PORT` or `off`".to_owned(),
        Form::Named("limits") => "[limits](#limits)".to_owned(),
        Form::Named("listener" | "rule") => "mapping".to_owned(),
        Form::Named(name) => (*name).to_owned(),
        Form::Duration { min, max } => format!("duration, {min} to {max}"),
        Form::Text(shape) => shape.about.to_owned(),
        Form::List { noun, min: 0, max: Some(max), .. } => format!("list of {noun}, at most {max}"),
        Form::List { noun, min, max: Some(max), .. } => format!("list of {min} to {max} {noun}"),
        Form::List { noun, .. } => format!("list of {noun}"),
        Form::Mapping(_) => "mapping".to_owned(),
        Form::Map { about, .. } => (*about).to_owned(),
        Form::Any(forms) => forms.iter().map(type_of).collect::<Vec<_>>().join(" or "),
        other => panic!("{other:?} has no words"),
    }
}
