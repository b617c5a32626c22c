//! The URL of a store: `memory`, or the address of Redis or Valkey.

use std::fmt;

use sluicegate::store::redis::RedisOptions;

/// A store.
#[derive(Clone, Debug)]
pub(crate) enum StoreUrl {
    /// In this process; the state ends with it.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<RedisOptions>),
}

impl StoreUrl {
    /// Reads a URL. The error contains a remedy and no password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        if !text.contains("://") {
            let remedy = "use memory, or a URL such as redis://127.0.0.1:6379";
            // Text without a scheme may contain a password.
            let shown: String = if text.contains(['@', ':']) { "this".to_owned() } else { shown(text) };
            return Err(format!("{shown} is not a store; {remedy}"));
        }
        text.parse().map(|options| Self::Redis(Box::new(options))).map_err(|error| format!("{error}"))
    }

    /// Whether other servers may use the same state.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Redis(_) => true,
        }
    }
}

fn shown(text: &str) -> String {
    format!("`{}`", text.chars().take(32).flat_map(char::escape_debug).collect::<String>())
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => formatter.write_str("memory"),
            Self::Redis(options) => options.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_secrets() {
        let shown = |text: &str| StoreUrl::parse(text).expect(text).to_string();
        assert_eq!(shown("memory"), "memory");
        assert_eq!(shown("redis://user:canary@h:7/2"), "redis://h:7/2");
        assert_eq!(shown("rediss+sentinel://:canary@a,b/limits"), "rediss+sentinel://a:26379,b:26379/limits");
        assert_eq!(shown("redis+cluster://a:1,[::1]:2"), "redis+cluster://a:1,[::1]:2");
    }

    #[test]
    fn an_invalid_store_is_rejected_with_a_remedy() {
        let refused = |text: &str| StoreUrl::parse(text).expect_err(text);
        assert_eq!(
            refused("memoria"),
            "`memoria` is not a store; use memory, or a URL such as redis://127.0.0.1:6379"
        );
        assert!(
            refused("postgres://h").contains("a store URL starts with redis://"),
            "{}",
            refused("postgres://h")
        );
        assert!(!refused("user:canary@host:6379").contains("canary"));
    }
}
