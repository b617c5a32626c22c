//! "Did you mean": finds the known word that is closest to a misspelled one.

/// `remedy`, with the closest known word in front, if there is one.
pub(super) fn with_closest(word: &str, known: &[&str], remedy: &str) -> String {
    match closest(word, known) {
        Some(meant) => format!("did you mean {meant}? {remedy}"),
        None => remedy.to_owned(),
    }
}

/// Of `known`, the word closest to `word`, if it is close enough for a typing error.
fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let lower = |each: char| each.to_ascii_lowercase();
    let word: Vec<char> = word.chars().take(WORD_CHARS_MAX).map(lower).collect();
    let (mut letters, mut rows) = (Vec::new(), Rows::default());
    let mut closest = None;
    for &candidate in known {
        let slips = 1.max(candidate.len() / 3);
        // Only a word that is closer than all before it matters.
        let most = match closest {
            None => slips,
            Some((0, _)) => break,
            Some((distance, _)) => slips.min(distance - 1),
        };
        letters.clear();
        letters.extend(candidate.chars().map(lower));
        if let Some(distance) = rows.distance(&word, &letters, most) {
            closest = Some((distance, candidate));
        }
    }
    closest.map(|(_, candidate)| candidate)
}

/// Longer words are not typing errors, and comparison takes quadratic time.
const WORD_CHARS_MAX: usize = 32;

/// The rows of an edit distance computation. There are hundreds of time zones, and a file may have thousands of unknown
/// ones. So the rows are reused for the next comparison, and a hopeless comparison stops early.
#[derive(Debug, Default)]
struct Rows {
    before_last: Vec<usize>,
    last: Vec<usize>,
    current: Vec<usize>,
}

impl Rows {
    /// The number of insertions, deletions, replacements and swaps of neighbours, unless it exceeds `most`.
    fn distance(&mut self, one: &[char], other: &[char], most: usize) -> Option<usize> {
        if one.len().abs_diff(other.len()) > most {
            return None;
        }
        let Self { before_last, last, current } = self;
        last.clear();
        last.extend(0..=other.len());
        for (row, letter) in one.iter().enumerate() {
            current.clear();
            current.push(row + 1);
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
            // Later rows grow from this row, or by one from the row before it.
            let least = |row: &[usize]| row.iter().min().copied().unwrap_or(0);
            if least(current) > most && least(last) >= most {
                return None;
            }
            std::mem::swap(before_last, last);
            std::mem::swap(last, current);
        }
        last.last().copied().filter(|distance| *distance <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn typing_errors_are_recognised_and_other_words_are_not() {
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

    #[test]
    fn the_closest_word_wins_also_after_one_that_is_close() {
        assert_eq!(
            closest("Europe/Berlim", &["Europe/Bern", "Europe/Merlin", "Europe/Berlin"]),
            Some("Europe/Berlin")
        );
        assert_eq!(closest("limit", &["limits", "limit", "limit2"]), Some("limit"));
        // Far from the short word for its length, and close to the long one.
        assert_eq!(closest("abcdefxxx", &["abcdef", "abcdefghi"]), Some("abcdefghi"));
    }

    proptest! {
        #[test]
        fn a_comparison_that_stops_early_exceeds_the_bound(
            words in prop::collection::vec("[abc]{0,9}", 2..6),
            most in 0..10_usize,
        ) {
            let words: Vec<Vec<char>> = words.iter().map(|word| word.chars().collect()).collect();
            let mut rows = Rows::default();
            for pair in words.windows(2) {
                let whole = Rows::default().distance(&pair[0], &pair[1], usize::MAX);
                prop_assert!(whole.is_some());
                prop_assert_eq!(rows.distance(&pair[0], &pair[1], most), whole.filter(|whole| *whole <= most));
            }
        }
    }
}
