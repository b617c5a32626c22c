//! The claims of a token that rules need. No other claims are cached.

use super::members::{Member, Members};
use crate::identity::Values;
use std::sync::Arc;

/// The names of the cached claims, in order.
pub(super) type ClaimNames = [Box<str>];

/// The names, shared by all entries that were cached under them.
type SharedClaimNames = Arc<Box<ClaimNames>>;

/// The values of a token for the cached names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachedClaims {
    wanted: SharedClaimNames,
    /// The values of each name, in the order of the names. No more than a token can hold.
    values: Box<[Vec<Box<str>>]>,
}

impl CachedClaims {
    /// The values of a token with these members.
    pub(super) fn of(members: &Members<'_>, wanted: &SharedClaimNames) -> Self {
        let values = wanted.iter().map(|name| texts(members.get(name))).collect();
        Self { wanted: Arc::clone(wanted), values }
    }

    /// True if the entry has the names in use now.
    pub(super) fn is_for(&self, wanted: &SharedClaimNames) -> bool {
        Arc::ptr_eq(&self.wanted, wanted)
    }

    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Self { wanted: SharedClaimNames::default(), values: Box::default() }
    }
}

impl Values for CachedClaims {
    fn each(&self, name: &str, visit: &mut dyn FnMut(&str)) {
        if let Ok(place) = self.wanted.binary_search_by(|wanted| (**wanted).cmp(name)) {
            self.values[place].iter().for_each(|value| visit(value));
        }
    }
}

/// Numbers and booleans as they are written. Values of other types are not comparable.
fn texts(member: Option<&Member<'_>>) -> Vec<Box<str>> {
    match member {
        Some(Member::Text(text)) => vec![text.as_ref().into()],
        Some(Member::Texts(texts)) => texts.iter().map(|text| text.as_ref().into()).collect(),
        Some(Member::Whole(number)) => vec![number.to_string().into()],
        Some(Member::Truth(truth)) => vec![truth.to_string().into()],
        Some(Member::Other) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_claims_are_cached_as_text() {
        let json =
            br#"{"plan":"gold","groups":["a","b"],"level":7,"staff":true,"deep":{"plan":"x"},"secret":"s"}"#;
        let members = Members::read(json).unwrap();
        let wanted: Box<ClaimNames> = ["absent", "deep", "groups", "level", "plan", "staff"].map(Box::from).into();
        let kept = CachedClaims::of(&members, &Arc::new(wanted));
        let of = |name: &str| {
            let mut values = Vec::new();
            kept.each(name, &mut |value| values.push(value.to_owned()));
            values
        };
        assert_eq!(of("plan"), ["gold"]);
        assert_eq!(of("groups"), ["a", "b"]);
        assert_eq!((of("level"), of("staff")), (vec!["7".to_owned()], vec!["true".to_owned()]));
        assert!(["absent", "deep", "secret"].iter().all(|name| of(name).is_empty()));
    }
}
