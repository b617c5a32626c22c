//! User names and passwords that cannot be printed by accident.

use std::fmt;

/// A password. `Debug` hides it, `Display` does not exist, and only the dialer reads it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(String);

/// The credentials of this client at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The user name, unless it is the server's default user.
    pub(crate) user: Option<String>,
    pub(crate) password: Password,
}

impl Password {
    /// Wraps a password.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The plain text, to be sent to a server and nowhere else.
    pub(crate) fn reveal(&self) -> &str {
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
    fn debug_hides_the_password() {
        let credentials = Credentials { user: None, password: Password::new("canary") };
        assert!(!format!("{credentials:?} {credentials:#?}").contains("canary"));
    }
}
