//! Hostile tokens: each is signed with real keys and has exactly one defect. All are rejected, each by the check for
//! its defect.

mod algorithms;
mod claims;
mod headers;
mod shapes;
mod signatures;

use super::*;
use sluicegate::identify::token::TokenErrorKind;

/// A token that must be rejected.
struct Case {
    name: String,
    token: String,
    kind: TokenErrorKind,
}

fn case(name: impl Into<String>, kind: TokenErrorKind, token: impl Into<String>) -> Case {
    Case { name: name.into(), token: token.into(), kind }
}

fn cases() -> Vec<Case> {
    let groups = [algorithms::cases(), headers::cases(), shapes::cases(), signatures::cases(), claims::cases()];
    groups.into_iter().flatten().collect()
}

#[test]
fn hostile_tokens_are_rejected() {
    let tokens = tokens();
    let cases = cases();
    for Case { name, token, kind } in &cases {
        for attempt in ["first", "second"] {
            match verify(&tokens, token) {
                Ok(claims) => panic!("{name}: accepted as {claims:?}"),
                Err(error) => assert_eq!(error.kind(), *kind, "{name}, {attempt} time: {error}"),
            }
            assert_eq!(tokens.known(token, now()), None, "{name}");
        }
    }
    let mut names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "two cases have the same name");
    assert!(cases.len() >= 120, "only {} cases", cases.len());
}

#[test]
fn error_texts_reveal_nothing_of_the_token() {
    let tokens = tokens();
    for Case { name, token, kind } in cases() {
        let error = verify(&tokens, &token).unwrap_err();
        let (message, shown) = (error.to_string(), format!("{error:?}"));
        for part in token.split('.').filter(|part| part.len() > 8) {
            assert!(!message.contains(part) && !shown.contains(part), "{name}: {message}");
        }
        assert!(!message.contains("canary") && message.len() < 120 && message.is_ascii(), "{name}: {message}");
        let expected = match kind {
            TokenErrorKind::Expired => "the token has expired: get a new one",
            _ => "the token is not valid",
        };
        assert_eq!(error.for_client(), expected);
        assert!(!error.is_unavailable());
    }
}
