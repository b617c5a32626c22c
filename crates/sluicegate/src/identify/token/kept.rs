//! The claims of a token that rules ask for: no others are kept.

use super::members::{Member, Members};
use crate::identity::Values;
use std::sync::Arc;

/// The names of the claims that are kept, in order.
pub(super) type Wanted = [Box<str>];

/// The names, shared by all that was kept by them.
type Shared = Arc<Box<Wanted>>;

/// What a token says under the names that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    wanted: Shared,
    /// The values of each name, in the order of the names. No more than a token can hold.
    values: Box<[Vec<Box<str>>]>,
}

impl Kept {
    /// What is wanted of a token with these members.
    pub(super) fn of(members: &Members<'_>, wanted: &Shared) -> Self {
        let values = wanted.iter().map(|name| texts(members.get(name))).collect();
        Self { wanted: Arc::clone(wanted), values }
    }

    /// Whether this is all that is wanted now.
    pub(super) fn is_for(&self, wanted: &Shared) -> bool {
        Arc::ptr_eq(&self.wanted, wanted)
    }

    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Self { wanted: Shared::default(), values: Box::default() }
    }
}

impl Values for Kept {
    fn each(&self, name: &str, tell: &mut dyn FnMut(&str)) {
        if let Ok(place) = self.wanted.binary_search_by(|wanted| (**wanted).cmp(name)) {
            self.values[place].iter().for_each(|value| tell(value));
        }
    }
}

/// Numbers and truths as they are written; what is neither of these nor a text has nothing to compare.
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
    fn what_is_wanted_is_kept_as_text_and_nothing_else() {
        let json =
            br#"{"plan":"gold","groups":["a","b"],"level":7,"staff":true,"deep":{"plan":"x"},"secret":"s"}"#;
        let members = Members::read(json).unwrap();
        let wanted: Box<Wanted> = ["absent", "deep", "groups", "level", "plan", "staff"].map(Box::from).into();
        let kept = Kept::of(&members, &Arc::new(wanted));
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
