//! The name of a limit's rule: its domain and the path to its node, in the characters that rule names may have.
//!
//! A name is part of the state's key and a metric label, so it depends only on that path: adding a descriptor
//! renames no other. `edge.path--login.remote_address` is the limit of `remote_address` below `path` with the value `login`
//! in the domain `edge`. A path that does not fit, because of its length or of a character such as `/` or `*`, is
//! written approximately and ends in `..` and a digest of the whole path, so different paths have different names.

use super::tree::Written;
use crate::rules::RULE_NAME_BYTES_MAX;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The separator of two levels.
const LEVEL: &str = ".";
/// The separator of a key and its value.
const VALUE: &str = "--";
/// The separator before a digest. No name without a digest contains it, because no level is empty.
const DIGEST: &str = "..";
/// The digest's length in letters, four bits each: 64 bits distinguish the maximum number of rules, and in case of a
/// collision the set is an error.
const DIGEST_BYTES: usize = 8;

/// The name of the rule whose limit is at the end of `way`.
pub(super) fn of(domain: &str, way: &[Written]) -> String {
    let mut name = String::from(domain);
    for Written { key, value, .. } in way {
        name.push_str(LEVEL);
        name.push_str(key);
        if let Some(value) = value {
            name.push_str(VALUE);
            name.push_str(value);
        }
    }
    let parts = [domain].into_iter().chain(way.iter().flat_map(parts_of));
    if name.len() <= RULE_NAME_BYTES_MAX && parts.into_iter().all(is_plain) {
        return name;
    }
    with_digest(&name, domain, way)
}

fn parts_of(written: &Written) -> impl Iterator<Item = &str> {
    [Some(&*written.key), written.value.as_deref()].into_iter().flatten()
}

/// True if the part is unambiguous between separators: it has no `.`, and every `-` has another character on both sides.
fn is_plain(part: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    part.split('-').all(is_word)
}

fn with_digest(readable: &str, domain: &str, way: &[Written]) -> String {
    let is_known = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    let room = RULE_NAME_BYTES_MAX - DIGEST.len() - 2 * DIGEST_BYTES;
    let known = readable.chars().map(|character| if is_known(character) { character } else { '_' });
    let mut name: String = known.take(room).collect();
    name.push_str(DIGEST);
    for byte in digest(domain, way).iter().take(DIGEST_BYTES) {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Hashes every part with its length before it, so that different paths have different inputs.
fn digest(domain: &str, way: &[Written]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |part: Option<&str>| {
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        digest.update(length.to_le_bytes());
        digest.update(part.unwrap_or_default());
    };
    add(Some(domain));
    for Written { key, value, .. } in way {
        add(Some(key));
        add(value.as_deref());
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::file::value;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn way(parts: &[(&str, Option<&str>)]) -> Vec<Written> {
        let written = |(key, value): &(&str, Option<&str>)| Written {
            key: (*key).into(),
            value: value.map(Into::into),
            is_shared: false,
        };
        parts.iter().map(written).collect()
    }

    #[test]
    fn names_follow_the_path_and_are_stable() {
        let long = "x".repeat(70);
        let cases = [
            (way(&[("remote_address", None)]), "edge.remote_address"),
            (way(&[("path", Some("login")), ("remote_address", None)]), "edge.path--login.remote_address"),
            (way(&[("path", Some("/login"))]), "edge.path--_login..6682a2e22fd26f3b"),
            (way(&[("client_ip", Some("10.0.0.*"))]), "edge.client_ip--10.0.0._..d3f25f11828bba7c"),
            (way(&[(&long, None)]), "edge.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..3cb1529c28613567"),
        ];
        let names: Vec<String> = cases.iter().map(|(way, _)| of("edge", way)).collect();
        let expected: Vec<&str> = cases.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, expected);
    }

    proptest! {
        /// Different paths have different names, whatever they contain, and every name is valid.
        #[test]
        fn no_two_ways_have_one_name(
            ways in proptest::collection::vec(
                ("[a.-]{1,3}", proptest::collection::vec(("[a._*-]{1,3}", proptest::option::of("[a._*é-]{1,3}")), 1..3)),
                2..200,
            ),
        ) {
            let mut named: HashMap<String, &_> = HashMap::new();
            for each in &ways {
                let (domain, parts) = each;
                let parts: Vec<(&str, Option<&str>)> =
                    parts.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                let name = of(domain, &way(&parts));
                prop_assert!(value::name(&name).is_ok(), "{}", name);
                let first = *named.entry(name).or_insert(each);
                prop_assert_eq!(first, each);
            }
        }
    }
}
