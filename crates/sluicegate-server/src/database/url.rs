//! The URL of a database: `sqlite://PATH`, or `postgres://…`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;

/// The location of the rule documents.
#[derive(Clone)]
pub(crate) enum DatabaseUrl {
    /// In a file.
    Sqlite(PathBuf),
    /// In PostgreSQL.
    Postgres(Box<PgConnectOptions>),
}

const REMEDY: &str = "write sqlite://PATH or postgres://USER:PASSWORD@HOST:5432/DATABASE";

impl DatabaseUrl {
    /// Reads a URL. The error has a remedy, and never contains a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("sqlite", path)) => sqlite(path),
            Some(("postgres" | "postgresql", rest)) if !rest.is_empty() => {
                let options = PgConnectOptions::from_str(text);
                // The parser's message may contain the password.
                let options = options.map_err(|_| format!("not a URL of PostgreSQL; {REMEDY}"))?;
                Ok(Self::Postgres(Box::new(options)))
            }
            _ => Err(format!("not a URL of a database; {REMEDY}")),
        }
    }
}

fn sqlite(path: &str) -> Result<DatabaseUrl, String> {
    if path.is_empty() || path.ends_with('/') || path.starts_with(':') || path.contains('?') {
        let remedy =
            "write sqlite://PATH with the path of a file, for example sqlite:///var/lib/sluicegate/rules.db";
        return Err(format!("not the path of a file; {remedy}"));
    }
    Ok(DatabaseUrl::Sqlite(path.into()))
}

/// Without user and password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(formatter, "sqlite://{}", path.display()),
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or_default();
                match options.get_socket() {
                    Some(socket) => write!(formatter, "postgres://{}/{database}", socket.display()),
                    None => {
                        write!(formatter, "postgres://{}:{}/{database}", options.get_host(), options.get_port())
                    }
                }
            }
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_secrets() {
        let shown = |text: &str| DatabaseUrl::parse(text).expect(text).to_string();
        assert_eq!(shown("sqlite://rules.db"), "sqlite://rules.db");
        assert_eq!(shown("sqlite:///var/lib/rules.db"), "sqlite:///var/lib/rules.db");
        assert_eq!(shown("postgres://user:canary@h:7/rules"), "postgres://h:7/rules");
        assert_eq!(shown("postgresql://user:canary@h/rules"), "postgres://h:5432/rules");
        let debug = format!("{:?}", DatabaseUrl::parse("postgres://user:canary@h/rules"));
        assert!(!debug.contains("canary") && !debug.contains("user"), "{debug}");
    }

    #[test]
    fn an_invalid_url_is_an_error_with_a_remedy() {
        let refused = |text: &str| DatabaseUrl::parse(text).expect_err(text);
        for text in
            ["", "rules.db", "mysql://u:canary@h/d", "canary@h", "postgres://u:canary@h:port/d", "postgres://"]
        {
            assert!(refused(text).contains("write sqlite://PATH or postgres://"), "{}", refused(text));
            assert!(!refused(text).contains("canary"));
        }
        for text in ["sqlite://", "sqlite:///", "sqlite://:memory:", "sqlite://a.db?mode=ro"] {
            assert!(refused(text).contains("write sqlite://PATH with the path of a file"), "{}", refused(text));
        }
    }
}
