//! From host and path to the route that answers.
//!
//! Of the routes that match, the one with the most specific host wins (a name, then the longest name below which the
//! host is, then routes for any host), and of those the one whose path pattern says most. The table is sorted once, so that
//! the first match is the one.

use std::borrow::Cow;
use std::collections::HashMap;

use sluicegate::path::PathPattern;

use super::host::HostPattern;

/// Routes, ready to be asked.
#[derive(Debug)]
pub(super) struct RouteTable<R> {
    exact: HashMap<Box<str>, Paths<R>>,
    /// By the end of the host, the longest first.
    below: Vec<(Box<str>, Paths<R>)>,
    any: Paths<R>,
}

/// The routes of one host, the most specific first.
type Paths<R> = Vec<(PathPattern, R)>;

impl<R> RouteTable<R> {
    /// A table of these routes.
    pub(super) fn new(routes: impl IntoIterator<Item = (Option<HostPattern>, PathPattern, R)>) -> Self {
        let (mut exact, mut any) = (HashMap::<_, Paths<R>>::new(), Paths::new());
        let mut below = HashMap::<_, Paths<R>>::new();
        for (host, path, route) in routes {
            let paths = match host {
                Some(HostPattern::Exact(name)) => exact.entry(name).or_default(),
                Some(HostPattern::Below(end)) => below.entry(end).or_default(),
                None => &mut any,
            };
            paths.push((path, route));
        }
        let mut below: Vec<_> = below.into_iter().collect();
        below.sort_by_key(|(end, _)| std::cmp::Reverse(end.len()));
        let all = exact.values_mut().chain(below.iter_mut().map(|(_, paths)| paths)).chain([&mut any]);
        all.for_each(|paths| paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.precision())));
        Self { exact, below, any }
    }

    /// The route for `path`, as rules see it, at `host`, which may have a port.
    pub(super) fn find(&self, host: Option<&str>, path: &str) -> Option<&R> {
        if self.exact.is_empty() && self.below.is_empty() {
            return first(&self.any, path);
        }
        let host = host.map(name_of);
        let host = host.as_deref();
        let exact = host.and_then(|host| self.exact.get(host));
        let below = self.below.iter().filter(|(end, _)| host.is_some_and(|host| host.ends_with(&**end)));
        let candidates = exact.into_iter().chain(below.map(|(_, paths)| paths)).chain([&self.any]);
        candidates.into_iter().find_map(|paths| first(paths, path))
    }
}

fn first<'r, R>(paths: &'r Paths<R>, path: &str) -> Option<&'r R> {
    paths.iter().find(|(pattern, _)| pattern.matches(path)).map(|(_, route)| route)
}

/// The name in `host`, without its port and the dot that may end it, in lower case.
fn name_of(host: &str) -> Cow<'_, str> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(routes: &[(&str, &'static str)]) -> RouteTable<&'static str> {
        RouteTable::new(routes.iter().map(|(host, path)| {
            let host = (!host.is_empty()).then(|| HostPattern::parse(host).expect("a host"));
            (host, PathPattern::parse(path).expect("a path"), *path)
        }))
    }

    #[test]
    fn the_most_specific_host_wins_and_then_the_most_specific_path() {
        let table = table(&[
            ("", "/**"),
            ("", "/api/**"),
            ("*.example.com", "/below/**"),
            ("*.example.com", "/**"),
            ("*.eu.example.com", "/eu/**"),
            ("api.example.com", "/api/*"),
            ("api.example.com", "/api/v1"),
        ]);
        for (host, path, expected) in [
            ("api.example.com", "/api/v1", "/api/v1"),
            ("API.example.com.:8080", "/api/v1", "/api/v1"),
            ("api.example.com", "/api/v2", "/api/*"),
            ("api.example.com", "/other", "/**"),
            ("x.example.com", "/below/x", "/below/**"),
            ("x.eu.example.com", "/eu/x", "/eu/**"),
            ("x.eu.example.com", "/below/x", "/below/**"),
            ("example.com", "/below/x", "/**"),
            ("other.org", "/api/v1", "/api/**"),
        ] {
            assert_eq!(table.find(Some(host), path), Some(&expected), "{host}{path}");
        }
        assert_eq!(table.find(None, "/api/x"), Some(&"/api/**"));
    }

    #[test]
    fn what_no_route_is_for_has_none() {
        let table = table(&[("api.example.com", "/api/**"), ("[::1]", "/six")]);
        assert_eq!(table.find(Some("api.example.com"), "/other"), None);
        assert_eq!(table.find(Some("evil-api.example.com"), "/api/x"), None);
        assert_eq!(table.find(None, "/api/x"), None);
        assert_eq!(table.find(Some("[::1]:8080"), "/six"), Some(&"/six"));
        assert_eq!(table.find(Some("[::1]"), "/six"), Some(&"/six"));
    }
}
