//! The word that was probably meant.

/// `remedy`, after the word that was probably meant.
pub(super) fn with_closest(word: &str, known: &[&str], remedy: &str) -> String {
    match closest(word, known) {
        Some(meant) => format!("did you mean {meant}? {remedy}"),
        None => remedy.to_owned(),
    }
}

/// Of `known`, the word that is closest to `word`, if it is close enough to be a slip of the finger.
fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> = word.chars().take(WORD_CHARS_MAX).map(|each| each.to_ascii_lowercase()).collect();
    let lower = |each: char| each.to_ascii_lowercase();
    let distance_to = |candidate: &str| distance(&word, &candidate.chars().map(lower).collect::<Vec<_>>());
    let (distance, candidate) = known.iter().map(|&each| (distance_to(each), each)).min_by_key(|pair| pair.0)?;
    (distance <= 1.max(candidate.len() / 3)).then_some(candidate)
}

/// Longer words are no slips, and comparing takes time with the square of the length.
const WORD_CHARS_MAX: usize = 32;

/// How many letters must be put in, left out, replaced or swapped with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other_letter);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            let is_swapped =
                row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *other_letter;
            if is_swapped {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["capacity", "refill", "per", "mode", "limits", "limit"];
        let cases = [
            ("capasity", Some("capacity")),
            ("capacty", Some("capacity")),
            ("reflil", Some("refill")),
            ("Refill", Some("refill")),
            ("prr", Some("per")),
            ("modes", Some("mode")),
            ("limits", Some("limits")),
            ("", None),
            ("window", None),
            ("database", None),
            ("deadline", None),
        ];
        for (word, expected) in cases {
            assert_eq!(closest(word, &known), expected, "{word}");
        }
        assert_eq!(closest("anything", &[]), None);
        assert_eq!(closest(&"mode".repeat(100_000), &known), None);
    }
}
