//! The tables of the reference page are rendered from the declarations of the keys.
//!
//! To rewrite them after a change of a declaration:
//! `UPDATE_DOCS=1 cargo test -p sluicegate-server --all-features config::tests::reference`.

use super::documents::docs;
use super::*;
use crate::config::gateway;
use crate::rule_documents::read;
use sluicegate::rules::file::field::Declared;
use sluicegate::rules::file::limit::{FIXED_WINDOW, TOKEN_BUCKET};
use sluicegate::rules::file::rule::{RULE, SELECTOR};
use sluicegate::rules::file::{descriptor, lease, tier};

/// The end of a table on the page.
const END: &str = "<!-- end of keys -->";

/// A table by the name in its marker, and the keys that it leaves out because the page describes them elsewhere.
const TABLES: &[(&str, &Mapping, &[&str])] = &[
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

#[test]
fn the_tables_of_the_page_are_those_of_the_declarations() {
    let path = docs().join("configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut rendered = page.clone();
    for (name, mapping, left_out) in TABLES {
        let start = format!("<!-- keys of {name} -->\n");
        let begin = rendered.find(&start).unwrap_or_else(|| panic!("no table {name} on the page")) + start.len();
        let end = begin + rendered[begin..].find(END).unwrap_or_else(|| panic!("no end of {name}"));
        let fields = mapping.fields.iter().filter(|field| !left_out.contains(&field.key()));
        let rows: String = fields.map(|field| row(*field)).collect();
        rendered.replace_range(begin..end, &format!("\n| key | type | default | |\n|---|---|---|---|\n{rows}\n"));
    }
    #[expect(clippy::disallowed_methods, reason = "an argument of `cargo test` would select tests")]
    let is_update = std::env::var_os("UPDATE_DOCS").is_some();
    if is_update {
        std::fs::write(&path, &rendered).unwrap();
    } else {
        assert!(page == rendered, "docs/configuration.md is not up to date; see the head of this file");
    }
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
