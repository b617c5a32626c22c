//! Compares the tree with a slow, obvious matcher, which keeps the descriptors as written and checks all of
//! them for every entry.

use super::*;
use proptest::prelude::*;

/// A descriptor as written.
#[derive(Clone, Debug)]
struct Plain {
    key: &'static str,
    value: &'static str,
    is_shared: bool,
    has_limit: bool,
    below: Vec<Plain>,
}

/// The number of the limit, and the identifier of its state.
type Answer = Option<(u32, Vec<String>)>;

const KEYS: &[&str] = &["k", "m"];
const VALUES: &[&str] = &["", "a", "ab", "b", "a*", "*b", "*", "a*b"];
const REQUESTED: &[&str] = &["", "a", "ab", "b", "aab", "bb", "a*", "*", "c"];

fn plain() -> impl Strategy<Value = Plain> {
    let leaf = (prop::sample::select(KEYS), prop::sample::select(VALUES), any::<bool>(), any::<bool>());
    let made = |(key, value, is_shared, has_limit): (&'static str, &'static str, bool, bool), below| Plain {
        key,
        value,
        is_shared: is_shared && value.contains('*'),
        has_limit,
        below,
    };
    let last = leaf.clone().prop_map(move |leaf| made(leaf, Vec::new()));
    last.prop_recursive(3, 60, 6, move |inner| {
        (leaf.clone(), proptest::collection::vec(inner, 0..6)).prop_map(move |(leaf, below)| made(leaf, below))
    })
}

/// Removes duplicates: a second descriptor with the same key and value is an error.
fn without_doubles(list: Vec<Plain>) -> Vec<Plain> {
    let mut kept: Vec<Plain> = Vec::new();
    for mut each in list {
        if !kept.iter().any(|other| (other.key, other.value) == (each.key, each.value)) {
            each.below = without_doubles(each.below);
            kept.push(each);
        }
    }
    kept
}

/// The descriptors as YAML, and with every limit its number.
fn written(list: &[Plain], number: &mut u32) -> String {
    let one = |each: &Plain, number: &mut u32| {
        let Plain { key, value, is_shared, has_limit, below } = each;
        let limit = if *has_limit {
            *number += 1;
            format!(", rate_limit: {{ unit: day, requests_per_unit: {number} }}")
        } else {
            String::new()
        };
        let below = written(below, number);
        format!("{{ key: {key}, value: \"{value}\", share_threshold: {is_shared}{limit}, descriptors: {below} }}")
    };
    let items: Vec<String> = list.iter().map(|each| one(each, number)).collect();
    format!("[{}]", items.join(", "))
}

/// Every descriptor with the number of its limit, in the order in which they are written.
fn numbered<'p>(list: &'p [Plain], numbers: &mut Vec<(&'p Plain, u32)>) {
    for each in list {
        let last = numbers.iter().filter(|(plain, _)| plain.has_limit).count() as u32;
        numbers.push((each, last + u32::from(each.has_limit)));
        numbered(&each.below, numbers);
    }
}

/// True if `pattern` matches `text`, by trying every expansion of each star.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => text.is_empty(),
        Some(("*", rest)) => (0..=text.len()).any(|at| fits(rest, &text[at..])),
        Some((letter, rest)) => text.strip_prefix(letter).is_some_and(|text| fits(rest, text)),
    }
}

fn answer(list: &[Plain], entries: &[Entry<'_>]) -> Answer {
    let mut numbers = Vec::new();
    numbered(list, &mut numbers);
    let mut level = list;
    let mut found: Option<&Plain> = None;
    let mut counted = Vec::new();
    for entry in entries {
        let with_key: Vec<&Plain> = level.iter().filter(|each| each.key == entry.key).collect();
        let exact = with_key.iter().find(|each| !each.value.is_empty() && each.value == entry.value);
        let pattern = with_key.iter().find(|each| each.value.contains('*') && fits(each.value, entry.value));
        let any = with_key.iter().find(|each| each.value.is_empty());
        let each = *exact.or(pattern).or(any)?;
        counted.push(if each.is_shared { each.value.to_owned() } else { entry.value.to_owned() });
        (level, found) = (&each.below, Some(each));
    }
    let found = found.filter(|each| each.has_limit)?;
    let (_, number) = numbers.iter().find(|(each, _)| std::ptr::eq(*each, found))?;
    Some((*number, counted))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_tree_agrees_with_the_obvious_matcher(
        list in proptest::collection::vec(plain(), 1..12).prop_map(without_doubles),
        sent in proptest::collection::vec(
            proptest::collection::vec((prop::sample::select(KEYS), prop::sample::select(REQUESTED)), 0..5),
            1..40,
        ),
    ) {
        let text = format!("{{ domain: d, descriptors: {} }}", written(&list, &mut 0));
        let rules = read(&text);
        let envoy = rules.envoy().unwrap();
        for pairs in &sent {
            let entries: Vec<Entry<'_>> = pairs.iter().map(|(key, value)| Entry::new(key, value)).collect();
            let found = envoy.find("d", &entries);
            let expected = answer(&list, &entries).map(|(number, counted)| (number, counted.join("|")));
            let found = found.map(|found| (found.limit.unwrap().0, found.identifier));
            prop_assert_eq!(&found, &expected, "{:?} in {}", pairs, text);
            let explained = envoy.explain("d", &entries);
            prop_assert_eq!(matches!(explained.end, explain::End::Limit(_)), expected.is_some());
        }
    }
}
