//! The members of a JSON object, read strictly: the same name twice is an error, and every value keeps its type.
//!
//! Names are compared after their escapes are resolved, so `"\u0065xp"` is `"exp"`. Only the top level is kept,
//! because no deeper value is needed; deeper values only have to be JSON.

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// The value of one member, with the types that matter here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Member<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// A list of strings only.
    Texts(Vec<Cow<'a, str>>),
    /// A whole number that is not negative, written without a fraction or an exponent.
    Whole(u64),
    /// `true` or `false`.
    Truth(bool),
    /// Anything else.
    Other,
}

/// All members of one object.
#[derive(Debug)]
pub(super) struct Members<'a>(HashMap<Cow<'a, str>, Member<'a>>);

impl<'a> Members<'a> {
    /// Reads one object with nothing before or after it. The error describes the first violation.
    pub(super) fn read(json: &'a [u8]) -> Result<Self, &'static str> {
        // The reader skips values that are not needed and would accept invalid UTF-8 in them.
        let text = std::str::from_utf8(json).map_err(|_| "is not UTF-8")?;
        let object: Object<'a> = serde_json::from_str(text).map_err(|_| "is not a JSON object")?;
        if object.has_duplicate { Err("names a member twice") } else { Ok(Self(object.members)) }
    }

    /// The member of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Member<'a>> {
        self.0.get(name)
    }
}

struct Object<'a> {
    members: HashMap<Cow<'a, str>, Member<'a>>,
    has_duplicate: bool,
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Object { members: HashMap::new(), has_duplicate: false };
        while let Some((name, value)) = map.next_entry::<Member<'de>, Member<'de>>()? {
            let Member::Text(name) = name else {
                return Err(A::Error::custom("a name is not a string"));
            };
            object.has_duplicate |= object.members.insert(name, value).is_some();
        }
        Ok(object)
    }
}

impl<'de> Deserialize<'de> for Member<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Member<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Member::Whole(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Self::Value, E> {
        Ok(Member::Truth(truth))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(member) = list.next_element::<Member<'de>>()? {
            let Member::Text(text) = member else {
                while list.next_element::<Member<'de>>()?.is_some() {}
                return Ok(Member::Other);
            };
            texts.push(text);
        }
        Ok(Member::Texts(texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // As members rather than arbitrary values, so that the bound of the depth applies here too.
        while map.next_entry::<IgnoredAny, Member<'de>>()?.is_some() {}
        Ok(Member::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_keeps_its_type() {
        let json = br#"{"t":"x","\u0075":"\u0079","l":["a","b"],"e":[],"n":7,"m":-7,"f":7.0,"x":7e0,"h":18446744073709551616,
            "y":true,"z":null,"o":{"a":1,"a":2},"p":["a",1,[{}]],"q":[["a"]]}"#;
        let members = Members::read(json).unwrap();
        let text = |text: &'static str| Member::Text(Cow::Borrowed(text));
        assert_eq!(members.get("t"), Some(&text("x")));
        assert_eq!(members.get("u"), Some(&text("y")));
        assert_eq!(members.get("e"), Some(&Member::Texts(Vec::new())));
        assert_eq!(members.get("l"), Some(&Member::Texts(vec!["a".into(), "b".into()])));
        assert_eq!(members.get("n"), Some(&Member::Whole(7)));
        assert_eq!(members.get("y"), Some(&Member::Truth(true)));
        for other in ["m", "f", "x", "h", "z", "o", "p", "q"] {
            assert_eq!(members.get(other), Some(&Member::Other), "{other}");
        }
        assert_eq!(members.get("absent"), None);
    }

    #[test]
    fn only_objects_with_unique_names_are_accepted() {
        for (json, problem) in [
            (&b"{\"a\":1,\"a\":1}"[..], "names a member twice"),
            (b"{\"a\":1,\"\\u0061\":1}", "names a member twice"),
            (b"{\"a\":\xff}", "is not UTF-8"),
            (b"{\"a\":\"\xff\"}", "is not UTF-8"),
            (b"", "is not a JSON object"),
            (b"[]", "is not a JSON object"),
            (b"\"{}\"", "is not a JSON object"),
            (b"null", "is not a JSON object"),
            (b"{} {}", "is not a JSON object"),
            (b"{}\0", "is not a JSON object"),
            (b"\xef\xbb\xbf{}", "is not a JSON object"),
            (b"{\"a\":1,}", "is not a JSON object"),
            (b"{'a':1}", "is not a JSON object"),
            (b"{\"a\":01}", "is not a JSON object"),
            (b"{\"a\":NaN}", "is not a JSON object"),
            (b"{\"a\":\"\x01\"}", "is not a JSON object"),
            (b"{\"a\":\"\\ud800\"}", "is not a JSON object"),
        ] {
            assert_eq!(Members::read(json).err(), Some(problem), "{}", json.escape_ascii());
        }
    }

    #[test]
    fn deep_nesting_ends_in_an_error_and_not_in_a_full_stack() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]"), ("[1,[", "]]")] {
            let nested = |depth: usize| format!("{{\"a\":{}1{}}}", open.repeat(depth), close.repeat(depth));
            assert!(Members::read(nested(20).as_bytes()).is_ok(), "{open}");
            assert!(Members::read(nested(4_000).as_bytes()).is_err(), "{open}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(json in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Members::read(&json);
        }

        #[test]
        fn nothing_that_looks_like_json_makes_it_panic(json in r#"[\[\]{}:,"\\au0-9eE.+\-truefalsn ]{0,80}"#) {
            let _ = Members::read(json.as_bytes());
        }
    }
}
