//! Reads `Authorization`.
//!
//! An application behind this server may parse the field more generously: it may trim other blanks, split lists, or
//! take the second word whatever the first one is. A token that the application accepts and this server overlooks
//! would bypass its owner's limits. So a value is one of three things: a bearer token exactly as in RFC 6750 §2.1,
//! credentials of another scheme that cannot be mistaken for a token, or rejected.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};

use super::{Reason, Unauthorized, is_spelled_otherwise, only};

const SCHEME: &[u8] = b"bearer";

/// The header of a signed token is a JSON object with at least an algorithm, in base64url: it has at least this
/// length.
const TOKEN_HEADER_LEN_MIN: usize = 16;
/// `{` and a quote, a space, a line feed, a carriage return or a tab, in base64url.
const OBJECT_STARTS: [&[u8]; 5] = [b"eyJ", b"eyA", b"ewo", b"ew0", b"ewk"];

/// The token of `Authorization: Bearer`. `None` without the field, or with credentials of another scheme.
///
/// # Errors
/// If the field occurs more than once, if it is neither a bearer token nor credentials of another scheme, or if
/// `Proxy-Authorization` contains a possible token.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Unauthorized> {
    let is_refused = |value: &HeaderValue| !is_other_scheme(value.as_bytes());
    if only(headers, &PROXY_AUTHORIZATION)?.is_some_and(is_refused)
        || is_spelled_otherwise(&PROXY_AUTHORIZATION, headers)
    {
        return Err(refused(PROXY_AUTHORIZATION));
    }
    let Some(value) = only(headers, &AUTHORIZATION)? else { return Ok(None) };
    let value = value.as_bytes();
    match strict_bearer(value) {
        Some(token) => Ok(Some(token)),
        None if is_other_scheme(value) => Ok(None),
        None => Err(refused(AUTHORIZATION)),
    }
}

fn refused(name: HeaderName) -> Unauthorized {
    Unauthorized::new(Reason::Token, Some(name))
}

/// The text after `Bearer` and at least one space or tab, without trailing blanks. Empty if nothing follows, which is
/// an invalid token.
fn strict_bearer(value: &[u8]) -> Option<&str> {
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    let is_separated = rest.first().is_none_or(|byte| is_blank(*byte));
    if !scheme.eq_ignore_ascii_case(SCHEME) || !is_separated {
        return None;
    }
    let token = rest.trim_ascii();
    if token.iter().all(u8::is_ascii_graphic) { str::from_utf8(token).ok() } else { None }
}

/// True for `SCHEME` or `SCHEME credentials` of a scheme other than Bearer that contains no possible token.
fn is_other_scheme(value: &[u8]) -> bool {
    let scheme_len = value.iter().position(|byte| !is_scheme_byte(*byte)).unwrap_or(value.len());
    let is_well_formed = scheme_len > 0
        && value.get(scheme_len).is_none_or(|byte| is_blank(*byte))
        && value.iter().all(|byte| byte.is_ascii_graphic() || is_blank(*byte));
    is_well_formed && !value.split(|byte| *byte == b',').any(begins_with_bearer) && !holds_token(value)
}

/// True if an element of a list begins with the word, after any blanks, quotes and so on.
fn begins_with_bearer(element: &[u8]) -> bool {
    let start = element.iter().position(u8::is_ascii_alphanumeric).unwrap_or(element.len());
    element[start..].get(..SCHEME.len()).is_some_and(|word| word.eq_ignore_ascii_case(SCHEME))
}

/// True if a word of the value has the form of a signed or encrypted token: parts in base64url, of which one is an
/// object and at least two follow.
fn holds_token(value: &[u8]) -> bool {
    value.split(|byte| !(is_base64url(*byte) || *byte == b'.')).any(is_token)
}

fn is_token(word: &[u8]) -> bool {
    let is_header = |part: &[u8]| {
        part.len() >= TOKEN_HEADER_LEN_MIN && OBJECT_STARTS.iter().any(|start| part.starts_with(start))
    };
    let parts = word.split(|byte| *byte == b'.');
    parts.clone().position(is_header).is_some_and(|header| parts.skip(header).count() >= 3)
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// A token byte as in RFC 9110 §5.6.2, which a scheme consists of.
fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl";

    fn read(name: HeaderName, value: &[u8]) -> Result<Option<String>, Reason> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value).expect("a value"));
        bearer(&headers).map(|token| token.map(str::to_owned)).map_err(|error| error.reason())
    }

    fn with_token(pattern: &str) -> Vec<u8> {
        // Latin-1, so that U+00A0 is the single byte at which some applications split.
        pattern.replace('T', TOKEN).chars().map(|character| character as u32 as u8).collect()
    }

    #[test]
    fn a_bearer_token_is_read_with_any_number_of_blanks_after_the_scheme() {
        for value in ["Bearer T", "bearer   T", "BEARER\tT", "Bearer \t T\t"] {
            assert_eq!(read(AUTHORIZATION, &with_token(value)), Ok(Some(TOKEN.to_owned())), "{value:?}");
        }
        assert_eq!(read(AUTHORIZATION, b"Bearer"), Ok(Some(String::new())), "an empty token, which is not valid");
    }

    #[test]
    fn a_token_for_a_generous_parser_is_never_overlooked() {
        let values = [
            " Bearer T",
            "\tBearer T",
            "\u{a0}Bearer T",
            "Bearer\u{a0}T",
            "Bearer\u{85}T",
            "Bearer\u{a0} T",
            "Bearer T\u{a0}",
            "Bearer:T",
            "Bearer=T",
            "Bearer\"T\"",
            "\"Bearer T\"",
            "Bearers T",
            "BearerT",
            "Bearer T, Basic eDp5",
            "Bearer T Bearer T",
            "Basic eDp5, Bearer T",
            "Basic eDp5,bearer T",
            "Basic eDp5,\u{a0}Bearer T",
            ",Bearer T",
            ", Bearer opaque",
            "Basic x, Bearer opaque",
            "Token T",
            "JWT T",
            "Basic T",
            "T",
            "Digest x=\"T\"",
            "Token.T",
            "Token x.y.T",
            "Token T.eA.eA",
            "Bearer%20T",
            "Negotiate/T",
            "Token token=T",
            "\u{e9} T",
            "",
        ];
        for value in values {
            let outcome = read(AUTHORIZATION, &with_token(value));
            // A token with invalid bytes is rejected when it is verified.
            let is_invalid_token = matches!(&outcome, Ok(Some(token)) if token != TOKEN);
            assert!(outcome == Err(Reason::Token) || is_invalid_token, "{value:?}: {outcome:?}");
        }
        for value in ["Bearer T", " Bearer T", "Basic T"] {
            assert_eq!(read(PROXY_AUTHORIZATION, &with_token(value)), Err(Reason::Token), "{value:?}");
        }
        for name in ["proxy_authorization", "proxy.authorization"] {
            assert_eq!(read(HeaderName::from_static(name), b"Basic eDp5"), Err(Reason::Token), "{name}");
        }
    }

    #[test]
    fn credentials_of_other_schemes_are_left_to_the_next_source() {
        for value in [
            "Basic eDp5",
            "Basic",
            "Negotiate YII=",
            "NTLM TlRMTVNTUAAB",
            "Digest username=\"bearer\", uri=\"/eye-catching-styles.min.js?a=1.2.3\"",
            "AWS4-HMAC-SHA256 Credential=A/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;range, Signature=fe5f",
            "Bear x",
            "ApiKey abc",
            "Token 9944b09199c62bcf9418ad846dd0e4bbdfc6ee4b",
        ] {
            assert_eq!(read(AUTHORIZATION, value.as_bytes()), Ok(None), "{value:?}");
            assert_eq!(read(PROXY_AUTHORIZATION, value.as_bytes()), Ok(None), "{value:?}");
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused() {
        for name in [AUTHORIZATION, PROXY_AUTHORIZATION] {
            let mut headers = HeaderMap::new();
            headers.append(&name, HeaderValue::from_static("Basic eDp5"));
            headers.append(&name, HeaderValue::from_static("Basic eDp5"));
            assert_eq!(bearer(&headers).unwrap_err().reason(), Reason::Repeated);
        }
    }
}
