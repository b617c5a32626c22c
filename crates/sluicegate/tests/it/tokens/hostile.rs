//! Hostile tokens: each is signed with real keys and has exactly one thing wrong with it. None is believed, and each is
//! refused by the check that is there for it.

mod algorithms;
mod claims;
mod headers;
mod shapes;
mod signatures;

use super::*;
use sluicegate::identify::token::TokenErrorKind;

/// One token that must not be believed.
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
fn no_hostile_token_is_believed() {
    let tokens = tokens();
    let cases = cases();
    for Case { name, token, kind } in &cases {
        for attempt in ["first", "second"] {
            match verify(&tokens, token) {
                Ok(claims) => panic!("{name}: believed as {claims:?}"),
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
fn messages_hold_nothing_of_the_token_and_clients_hear_only_what_helps_the_honest() {
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
