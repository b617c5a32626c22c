//! A share such as `5%` or `0.01%`, kept in millionths. Parsing uses no floats.

use sluicegate::rules::file::ValueError;
use sluicegate::rules::file::field::{Form, Shape, Text};

/// The whole, in millionths.
const WHOLE: u32 = 1_000_000;
/// The millionths of one percent.
const PERCENT: u32 = WHOLE / 100;
/// The most digits after the point: one millionth is 0.0001 %.
const FRACTION_DIGITS_MAX: usize = 4;

/// A share as it stands in a file.
pub(super) const SHARE: Text<Share> = Text {
    parse: Share::parse,
    form: || Form::Text(Shape::matching("share", r"^(100(\.0{1,4})?|(0|[1-9][0-9]?)(\.[0-9]{1,4})?)%$")),
};

/// A share in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);
    /// All.
    pub(crate) const ALL: Self = Self(WHOLE);

    /// Samples: true with the probability of the share.
    #[inline]
    pub(crate) fn takes_one(self) -> bool {
        match self {
            Self::NONE => false,
            Self::ALL => true,
            Self(millionths) => fastrand::u32(..WHOLE) < millionths,
        }
    }

    /// The share as the ratio that the sampler of OpenTelemetry takes.
    #[expect(clippy::float_arithmetic, reason = "it chooses what is traced, and decides nothing")]
    pub(crate) fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// The share nearest to `ratio`; `None` unless that is from 0 to 1.
    #[expect(clippy::float_arithmetic, reason = "it chooses what is traced, and decides nothing")]
    pub(crate) fn of_ratio(ratio: f64) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to a million")]
        (0.0..=1.0).contains(&ratio).then(|| Self((ratio * f64::from(WHOLE)).round() as u32))
    }

    fn parse(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::new("not a share", "write a percentage from 0% to 100%, such as 5% or 0.01%");
        let number = text.strip_suffix('%').ok_or_else(wrong)?;
        let (percent, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let has_no_leading_zero = percent.len() == 1 || !percent.starts_with('0');
        if !is_plain(percent)
            || !is_plain(fraction)
            || fraction.len() > FRACTION_DIGITS_MAX
            || !has_no_leading_zero
        {
            return Err(wrong());
        }
        let fraction: u32 = format!("{fraction:0<FRACTION_DIGITS_MAX$}").parse().map_err(|_| wrong())?;
        let percent: u32 = percent.parse().map_err(|_| wrong())?;
        let share = percent.checked_mul(PERCENT).and_then(|whole| whole.checked_add(fraction));
        share.filter(|share| *share <= WHOLE).map(Self).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_millionths() {
        let parsed = |text| Share::parse(text).ok().map(|share| share.0);
        for (text, millionths) in [
            ("0%", 0),
            ("5%", 50_000),
            ("99.9999%", 999_999),
            ("0.0001%", 1),
            ("0.1%", 1_000),
            ("100%", WHOLE),
            ("100.0%", WHOLE),
        ] {
            assert_eq!(parsed(text), Some(millionths), "{text}");
        }
        for text in
            ["", "%", "5", "05%", "-1%", "+1%", "101%", "100.0001%", "1.%", ".5%", "1.00001%", "5 %", "1e1%"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_share_samples_its_fraction() {
        let taken = |share: Share| (0..10_000).filter(|_| share.takes_one()).count();
        assert_eq!((taken(Share::NONE), taken(Share::ALL)), (0, 10_000));
        // Ten standard deviations around a half: chance does not get there.
        assert!((4_500..5_500).contains(&taken(Share(WHOLE / 2))));
    }

    #[test]
    fn a_share_is_a_ratio_and_back() {
        for share in [Share::NONE, Share(1), Share(123_456), Share::ALL] {
            assert_eq!(Share::of_ratio(share.ratio()), Some(share));
        }
        for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::of_ratio(ratio), None);
        }
    }
}
