//! A value that cannot be printed.
//!
//! [`Secret`] has no `Display` and its `Debug` shows nothing, so that no log line, error text or panic message can
//! carry it by accident. Comparison takes constant time, and code that sends the secret calls [`Secret::reveal`].

use std::fmt;

use subtle::ConstantTimeEq as _;

/// A secret from the configuration or the environment, such as the admin token.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub(crate) fn new(value: String) -> Self {
        Self(value)
    }

    /// The secret itself, for code that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `candidate` is this secret. The duration reveals at most whether the lengths are equal.
    pub(crate) fn matches(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(candidate).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_it() {
        let nested = Some(Secret::new("canary".to_owned()));
        assert_eq!(format!("{nested:?}"), "Some(Secret(…))");
        assert!(!format!("{nested:#?}").contains("canary"));
    }

    #[test]
    fn only_the_same_bytes_match() {
        let secret = Secret::new("canary".to_owned());
        assert!(secret.matches(b"canary"));
        for other in [&b""[..], b"canar", b"canary\0", b"Canary", b"yranac"] {
            assert!(!secret.matches(other), "{other:?}");
        }
    }
}
