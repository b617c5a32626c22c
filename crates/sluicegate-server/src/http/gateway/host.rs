//! Which hosts a route is for: a name, an address, or `*.` and a name, which stands for all names below it.

/// The longest name of a host (RFC 1035).
pub(crate) const HOST_BYTES_MAX: usize = 253;

/// A pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// This one.
    Exact(Box<str>),
    /// All below this one; kept with the dot before it.
    Below(Box<str>),
}

impl HostPattern {
    /// Reads a pattern; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, is_below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let is_name = text.len() <= HOST_BYTES_MAX && name.split('.').all(is_label);
        let is_address = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|inside| inside.parse::<std::net::Ipv6Addr>().is_ok());
        if !is_name && (!is_address || is_below) {
            return None;
        }
        let name = name.to_ascii_lowercase();
        Some(if is_below { Self::Below(format!(".{name}").into()) } else { Self::Exact(name.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["", "*", "*.", "a..b", ".a", "a.", "a:80", "*.*.a", "a b", "*.[::1]", "[::1", "é.example"] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
        assert_eq!(HostPattern::parse(&"a".repeat(HOST_BYTES_MAX + 1)), None);
    }

    #[test]
    fn hosts_are_names_addresses_or_all_below_a_name() {
        assert_eq!(HostPattern::parse("API.Example.com"), Some(HostPattern::Exact("api.example.com".into())));
        assert_eq!(HostPattern::parse("*.example.com"), Some(HostPattern::Below(".example.com".into())));
        assert_eq!(HostPattern::parse("192.0.2.7"), Some(HostPattern::Exact("192.0.2.7".into())));
        assert_eq!(HostPattern::parse("[::1]"), Some(HostPattern::Exact("[::1]".into())));
    }
}
