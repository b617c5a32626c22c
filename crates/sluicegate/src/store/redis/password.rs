//! A password that cannot be printed.

use std::fmt;

/// A password. Its `Debug` shows nothing, it has no `Display`, and only the part that connects can read it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Password(String);

/// Whom we are to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    /// The name, if it is not the server's default user.
    pub(super) user: Option<String>,
    /// The password.
    pub(super) password: Password,
}

impl Password {
    /// Takes a password in.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password, for the server and nobody else.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_it() {
        let credentials = Credentials { user: None, password: Password::new("canary") };
        assert!(!format!("{credentials:?} {credentials:#?}").contains("canary"));
    }
}
