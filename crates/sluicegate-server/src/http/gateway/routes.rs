//! The route table: finds the route for a host and a path.
//!
//! The most specific host wins: a name, then the host pattern with the most fixed characters, then routes for any host.
//! Among the routes of that host, the most specific path pattern wins. The table is sorted once, so the first match is the
//! result.

use std::collections::HashMap;

use sluicegate::authority::{self, HostPattern};
use sluicegate::path::PathPattern;

/// All routes, sorted for lookups.
#[derive(Debug)]
pub(super) struct RouteTable<R> {
    /// Routes of host names, by the name.
    exact: HashMap<Box<str>, Paths<R>>,
    /// Routes of host patterns with stars, the most specific first.
    patterns: Vec<(HostPattern, Paths<R>)>,
    /// Routes for any host.
    any: Paths<R>,
}

/// The readings of a path lead to different routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ambiguous;

/// The routes of one host, the most specific first.
type Paths<R> = Vec<(PathPattern, R)>;

impl<R> RouteTable<R> {
    /// Sorts the routes. Of two patterns that are equally specific, the earlier one wins.
    pub(super) fn new(routes: impl IntoIterator<Item = (Option<HostPattern>, PathPattern, R)>) -> Self {
        let (mut exact, mut any) = (HashMap::<_, Paths<R>>::new(), Paths::new());
        let mut patterns = Vec::<(HostPattern, Paths<R>)>::new();
        for (host, path, route) in routes {
            let paths = match host {
                Some(host) if host.is_exact() => exact.entry(host.text().into()).or_default(),
                Some(host) => {
                    let known = patterns.iter().position(|(known, _)| *known == host);
                    let index = known.unwrap_or_else(|| {
                        patterns.push((host, Paths::new()));
                        patterns.len() - 1
                    });
                    &mut patterns[index].1
                }
                None => &mut any,
            };
            paths.push((path, route));
        }
        patterns.sort_by_key(|(host, _)| std::cmp::Reverse(host.fixed_bytes()));
        let all = exact.values_mut().chain(patterns.iter_mut().map(|(_, paths)| paths)).chain([&mut any]);
        all.for_each(|paths| paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.precision())));
        Self { exact, patterns, any }
    }

    /// The route that all readings of a path share, at `host`, which may have a port.
    pub(super) fn find_same<'p>(
        &self,
        host: Option<&str>,
        mut readings: impl Iterator<Item = &'p str>,
    ) -> Result<Option<&R>, Ambiguous> {
        let route = readings.next().and_then(|path| self.find(host, path));
        let is_same = readings.all(|path| match (route, self.find(host, path)) {
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        });
        if is_same { Ok(route) } else { Err(Ambiguous) }
    }

    /// The route for one reading of a path at `host`, which may have a port.
    fn find(&self, host: Option<&str>, path: &str) -> Option<&R> {
        if self.exact.is_empty() && self.patterns.is_empty() {
            return first(&self.any, path);
        }
        let host = host.and_then(authority::matched_host);
        let host = host.as_deref();
        let exact = host.and_then(|host| self.exact.get(host));
        let patterns = self.patterns.iter().filter(|(pattern, _)| host.is_some_and(|host| pattern.matches(host)));
        let candidates = exact.into_iter().chain(patterns.map(|(_, paths)| paths)).chain([&self.any]);
        candidates.into_iter().find_map(|paths| first(paths, path))
    }
}

fn first<'r, R>(paths: &'r Paths<R>, path: &str) -> Option<&'r R> {
    paths.iter().find(|(pattern, _)| pattern.matches(path)).map(|(_, route)| route)
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
            ("eu-*.example.com", "/dash/**"),
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
            ("eu-1.example.com", "/dash/x", "/dash/**"),
            ("eu-1.example.com", "/below/x", "/below/**"),
            ("example.com", "/below/x", "/**"),
            ("other.org", "/api/v1", "/api/**"),
        ] {
            assert_eq!(table.find(Some(host), path), Some(&expected), "{host}{path}");
        }
        assert_eq!(table.find(None, "/api/x"), Some(&"/api/**"));
    }

    #[test]
    fn readings_with_different_routes_are_ambiguous() {
        let table = table(&[("", "/a/**"), ("", "/b/**"), ("api.example.com", "/b/**")]);
        let find = |host, readings: &[&'static str]| table.find_same(host, readings.iter().copied());
        assert_eq!(find(None, &["/a/x%2fy", "/a/x/y"]), Ok(Some(&"/a/**")));
        assert_eq!(find(None, &["/a/..%2fb", "/b"]), Err(Ambiguous));
        assert_eq!(find(None, &["/a%2fb", "/a/b"]), Err(Ambiguous));
        assert_eq!(find(None, &["/a/..%2fc", "/c"]), Err(Ambiguous));
        assert_eq!(find(None, &["/c%2fd", "/c/d"]), Ok(None));
        // The routes of two hosts do not mix.
        assert_eq!(find(Some("api.example.com"), &["/b/x%2fy", "/b/x/y"]), Ok(Some(&"/b/**")));
        assert_eq!(find(None, &["/b"]), Ok(Some(&"/b/**")));
    }

    #[test]
    fn unmatched_requests_have_no_route() {
        let table = table(&[("api.example.com", "/api/**"), ("[::1]", "/six")]);
        assert_eq!(table.find(Some("api.example.com"), "/other"), None);
        assert_eq!(table.find(Some("evil-api.example.com"), "/api/x"), None);
        assert_eq!(table.find(None, "/api/x"), None);
        assert_eq!(table.find(Some("[::1]:8080"), "/six"), Some(&"/six"));
        assert_eq!(table.find(Some("[::1]"), "/six"), Some(&"/six"));
    }
}
