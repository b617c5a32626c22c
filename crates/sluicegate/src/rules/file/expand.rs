//! Replaces `${NAME}` in text by the environment variable. `$${` is a literal `${`.
//!
//! Replacement is not recursive: the value of a variable stays as it is.

use super::problem::{ValueError, shown};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Variables by name. This crate does not read the environment of the process; the program passes the variables that
/// files may use.
pub type Environment = BTreeMap<String, String>;

const ESCAPE: &str = "write $${ for a plain ${";

/// `text` with its variables replaced, or all problems with them.
pub(super) fn expand<'t>(text: &'t str, environment: &Environment) -> Result<Cow<'t, str>, Vec<ValueError>> {
    if !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut expanded = String::with_capacity(text.len());
    let mut wrongs = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(escaped) = before.strip_suffix('$') {
            expanded.push_str(escaped);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        }
        expanded.push_str(before);
        match variable(&from[2..], environment) {
            Ok((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            Err((wrong, after)) => {
                wrongs.push(wrong);
                rest = after;
            }
        }
    }
    expanded.push_str(rest);
    if wrongs.is_empty() { Ok(Cow::Owned(expanded)) } else { Err(wrongs) }
}

/// Reads `NAME}`: the value of the variable and the rest of the text.
fn variable<'t, 'e>(
    text: &'t str,
    environment: &'e Environment,
) -> Result<(&'e str, &'t str), (ValueError, &'t str)> {
    let Some((name, after)) = text.split_once('}') else {
        return Err((ValueError::new("${ without }", format!("write ${{NAME}}, or {ESCAPE}")), ""));
    };
    if !is_name(name) {
        let message = format!("{} is no name of a variable", shown(name, true));
        let remedy = format!("use letters, digits and _, not starting with a digit; or {ESCAPE}");
        return Err((ValueError::new(message, remedy), after));
    }
    match environment.get(name) {
        Some(value) => Ok((value, after)),
        None => {
            let remedy = format!("set it in the environment, or {ESCAPE}");
            Err((ValueError::new(format!("the variable {} is not set", shown(name, false)), remedy), after))
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()) && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, Vec<String>> {
        let environment = [("A", "alpha"), ("B_2", "${A}"), ("EMPTY", "")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        match expand(text, &environment) {
            Ok(text) => Ok(text.into_owned()),
            Err(wrongs) => Err(wrongs.into_iter().map(|wrong| wrong.message).collect()),
        }
    }

    #[test]
    fn variables_are_replaced_once_and_anything_else_stays() {
        let cases = [
            ("", ""),
            ("plain $ text $A {A}", "plain $ text $A {A}"),
            ("${A}", "alpha"),
            ("x${A}y${A}z", "xalphayalphaz"),
            ("${B_2}", "${A}"),
            ("[${EMPTY}]", "[]"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("$${A} ${A}", "${A} alpha"),
            ("é${A}é", "éalphaé"),
        ];
        for (text, expected) in cases {
            assert_eq!(expanded(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_problem_with_a_text_is_reported() {
        let cases: [(&str, &[&str]); 5] = [
            ("${A", &["${ without }"]),
            ("${}", &["\"\" is no name of a variable"]),
            ("${1A} ${a-b}", &["\"1A\" is no name of a variable", "\"a-b\" is no name of a variable"]),
            ("${C} ${A} ${D}", &["the variable C is not set", "the variable D is not set"]),
            ("${A} ${C} ${", &["the variable C is not set", "${ without }"]),
        ];
        for (text, expected) in cases {
            assert_eq!(expanded(text).unwrap_err(), expected, "{text}");
        }
    }
}
