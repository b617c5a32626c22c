//! Which of the limits that were tried to take.

use std::str::FromStr;

use super::Tried;

/// How much may be denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    pub(crate) identities: Option<Share>,
    pub(crate) requests: Option<Share>,
}

/// A share in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share(u64);

impl Share {
    /// One in a hundred.
    pub(crate) const ONE_PERCENT: Self = Self(100);

    fn holds(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 10_000 <= u128::from(whole) * u128::from(self.0)
    }
}

impl FromStr for Share {
    type Err = String;

    /// Reads `1%` or `0.25%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a share; write 0% to 100%, for example 1% or 0.25%");
        let number = text.trim().strip_suffix('%').ok_or_else(wrong)?.trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 3 || fraction.len() > 2 || !is_number(whole) || !is_number(fraction) {
            return Err(wrong());
        }
        let hundredths: u64 = format!("{whole}{fraction:0<2}").parse().map_err(|_| wrong())?;
        if hundredths > 10_000 { Err(wrong()) } else { Ok(Self(hundredths)) }
    }
}

impl Targets {
    /// The first, and so the smallest, that denies no more than it may.
    pub(super) fn first_good(self, table: &[Tried], requests: u64, identities: u64) -> Option<usize> {
        let by_identities = if self.requests.is_none() { Some(Share::ONE_PERCENT) } else { None };
        let (of_identities, of_requests) = (self.identities.or(by_identities), self.requests);
        table.iter().position(|tried| {
            of_identities.is_none_or(|share| share.holds(tried.identities_denied, identities))
                && of_requests.is_none_or(|share| share.holds(tried.denied, requests))
        })
    }
}

/// Where a falling curve bends most: the point furthest below the straight line from its first point to its last. Nothing
/// where it does not fall.
pub(super) fn knee(denied: &[u64]) -> Option<usize> {
    let (first, last) = (*denied.first()?, *denied.last()?);
    let fall = i128::from(first) - i128::from(last);
    let steps = i128::try_from(denied.len() - 1).ok()?;
    let below = |(place, denied): (usize, &u64)| {
        let place_wide = i128::try_from(place).unwrap_or_default();
        ((i128::from(first) - i128::from(*denied)) * steps - fall * place_wide, place)
    };
    // Of several, the first: the smaller limit.
    let furthest = denied.iter().enumerate().map(below).max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)))?;
    (fall > 0 && furthest.0 > 0).then_some(furthest.1)
}
