//! Median and extremes of a few rounds, and the format of numbers.

/// The results of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Without rounds, every field is NaN.
    pub(crate) fn of(rounds: &[f64]) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Self { least: at(0), median: at(sorted.len() / 2), most: at(sorted.len().saturating_sub(1)) }
    }

    /// `median (least–most)`, or the one number there is.
    pub(crate) fn text(&self) -> String {
        let [least, median, most] = [self.least, self.median, self.most].map(compact);
        if least == most { median } else { format!("{median} ({least}–{most})") }
    }
}

/// Three digits, and the thousands apart.
pub(crate) fn compact(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        "–".to_owned()
    } else if size == 0.0 {
        "0".to_owned()
    } else if size < 0.095 {
        format!("{number:.3}")
    } else if size < 9.95 {
        format!("{number:.2}")
    } else if size < 99.5 {
        format!("{number:.1}")
    } else {
        grouped(number.round() as i64)
    }
}

/// The thousands apart.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The precision of kept numbers: no measurement here is more exact.
pub(crate) fn rounded(number: f64) -> f64 {
    if number.abs() >= 1_000.0 { number.round() } else { (number * 10_000.0).round() / 10_000.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_one_of_the_rounds() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { least: 1.0, median: 2.0, most: 3.0 });
        assert_eq!(Spread::of(&[3.0, 1.0]).median, 3.0);
        assert!(Spread::of(&[]).median.is_nan());
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.012_3, 0.123_4, 1.234, 12.34, 123.4, 1_234.4, 1_234_567.0].map(compact);
        assert_eq!(shown, ["0", "0.012", "0.12", "1.23", "12.3", "123", "1,234", "1,234,567"]);
        assert_eq!(compact(f64::NAN), "–");
    }
}
