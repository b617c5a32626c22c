//! Paths that try to be others, and paths that are fine as they are.

use super::*;
use proptest::prelude::*;

fn forms(path: &str) -> Result<(String, String), PathError> {
    Path::parse(path, EncodedSlashes::Refuse).map(|path| (path.sent().to_owned(), path.matched().to_owned()))
}

#[test]
fn the_same_path_written_otherwise_is_the_same_to_rules() {
    let same = [
        "/api/pay",
        "//api//pay",
        "/api/./pay",
        "/api/x/../pay",
        "/%61pi/p%61y",
        "/api/%2e/pay",
        "/api/x/%2E%2E/pay",
        "/API/Pay",
        "/api/pay/",
        "/api/pay//",
        "/api/pay/.",
        "/api/pay/x/..",
        "/api/pay;jsessionid=1",
        "/api;v=1/pay;",
        "/api/pay.",
        "/api/pay%20",
        "/api./pay..",
        "/../api/pay",
        "/./../%2e%2E/api/pay",
    ];
    for path in same {
        assert_eq!(forms(path).map(|(_, matched)| matched), Ok("/api/pay".to_owned()), "{path}");
    }
}

#[test]
fn what_is_sent_keeps_its_meaning() {
    let cases = [
        ("/", "/", "/"),
        ("/a/", "/a/", "/a"),
        ("/A%7e", "/A~", "/a~"),
        ("/a%2fb".replace("%2f", "%3f").leak(), "/a%3Fb", "/a%3fb"),
        ("/a;b=c/d", "/a;b=c/d", "/a/d"),
        ("/%c3%bc", "/%C3%BC", "/%c3%bc"),
        ("/a%3Bb", "/a%3Bb", "/a%3bb"),
        ("/a%21!", "/a%21!", "/a!!"),
        ("/...", "/...", "/..."),
        ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
        ("/a/..", "/", "/"),
        ("/%2525", "/%2525", "/%2525"),
    ];
    for (path, sent, matched) in cases {
        assert_eq!(forms(path), Ok((sent.to_owned(), matched.to_owned())), "{path}");
    }
}

#[test]
fn what_programs_read_differently_is_refused() {
    let cases = [
        ("", PathError::NoSlash),
        ("api", PathError::NoSlash),
        ("*", PathError::NoSlash),
        ("/a%2fb", PathError::EncodedSlash),
        ("/a%5Cb", PathError::EncodedSlash),
        ("/..%2F..%2Fadmin", PathError::EncodedSlash),
        ("/a\\b", PathError::Character),
        ("/a%00", PathError::Character),
        ("/a%0d%0aX: y", PathError::Character),
        ("/a%7f", PathError::Character),
        ("/a b", PathError::Character),
        ("/ü", PathError::Character),
        ("/a%", PathError::BrokenEscape),
        ("/a%2", PathError::BrokenEscape),
        ("/a%zz", PathError::BrokenEscape),
        ("/a%+1", PathError::BrokenEscape),
        ("/a/..;/b", PathError::HiddenDots),
        ("/a/..;x=1/b", PathError::HiddenDots),
        ("/a/.;/b", PathError::HiddenDots),
        ("/a/%2e%2e;/b", PathError::HiddenDots),
        ("/a/..%20/b", PathError::HiddenDots),
        ("/;x/b", PathError::HiddenDots),
    ];
    for (path, error) in cases {
        assert_eq!(forms(path), Err(error), "{path}");
    }
    assert_eq!(forms(&format!("/{}", "a".repeat(PATH_BYTES_MAX))), Err(PathError::TooLong));
    assert_eq!(forms(&"/a".repeat(PATH_SEGMENTS_MAX + 1)), Err(PathError::TooManySegments));
    assert!(forms(&"/a".repeat(PATH_SEGMENTS_MAX)).is_ok());
}

#[test]
fn encoded_slashes_can_be_kept_and_are_no_slashes_then() {
    let path = Path::parse("/repos/a%2fb/x", EncodedSlashes::Keep).unwrap();
    assert_eq!((path.sent(), path.matched()), ("/repos/a%2Fb/x", "/repos/a%2fb/x"));
    assert_eq!(path.resource(), "repos.a%2fb.x");
}

#[test]
fn patterns_match_as_documented() {
    let cases = [
        ("/", "/", true),
        ("/", "/a", false),
        ("/**", "/", true),
        ("/**", "/a/b", true),
        ("/api/**", "/api", true),
        ("/api/**", "/api/a/b", true),
        ("/api/**", "/apis", false),
        ("/api/*", "/api", false),
        ("/api/*", "/api/a", true),
        ("/api/*", "/api/a/b", false),
        ("/API/Pay", "/api/pay", true),
        ("/api/pay/", "/api/pay", true),
        ("/v*/x", "/v2/x", true),
        ("/v*/x", "/w2/x", false),
        ("/**/admin", "/a/b/admin", true),
        ("/**/admin", "/admin", true),
        ("/**/admin", "/admin/x", false),
        ("/a/**/b/**/c", "/a/x/b/y/c", true),
        ("/a/**/b/**/c", "/a/b/c", true),
        ("/a/**/b/**/c", "/a/c/b", false),
        ("/a/**/b/**/b", "/a/b", false),
        ("/ünï", "/%c3%bcn%c3%af", true),
        ("/**/**", "/", true),
    ];
    for (pattern, path, expected) in cases {
        assert_eq!(PathPattern::parse(pattern).unwrap().matches(path), expected, "{pattern} on {path}");
    }
}

#[test]
fn patterns_that_match_nothing_are_refused() {
    for text in ["", "api", "/a?b=1", "/**/..", "/a**", "/a/**b", "/a;x=*", "/a\\b", "/a%2", &"/a".repeat(600)] {
        assert!(PathPattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_hostile_path_costs_no_more_than_its_segments() {
    let pattern = PathPattern::parse("/**/a/a/a/a/a/a/a/b/**/a/a/a/c").unwrap();
    assert!(!pattern.matches(&"/a".repeat(PATH_SEGMENTS_MAX)));
}

proptest! {
    /// Both forms are normal: reading them again changes nothing, and no dot segment or empty segment is left.
    #[test]
    fn a_path_that_was_read_reads_the_same(path in "/?[a-cA-C./%;\\\\ 2eEfF5]{0,40}") {
        let Ok(first) = Path::parse(&path, EncodedSlashes::Keep) else { return Ok(()) };
        let again = Path::parse(first.sent(), EncodedSlashes::Keep).unwrap();
        prop_assert_eq!(again.sent(), first.sent());
        prop_assert_eq!(again.matched(), first.matched());
        for form in [first.sent(), first.matched()] {
            prop_assert!(form.starts_with('/') && !form.contains("//"));
            prop_assert!(!form.split('/').any(|segment| segment == "." || segment == ".."));
        }
    }

    /// The short way says what the long way says.
    #[test]
    fn plain_paths_are_what_the_long_way_makes_of_them(path in "/[a-c./_~-]{0,12}") {
        if segments::is_plain(&path) {
            let (kept, has_slash_at_end) = resolve(&path, EncodedSlashes::Refuse).unwrap();
            prop_assert_eq!(joined(kept.iter().map(|segment| &*segment.sent), has_slash_at_end), &*path);
            prop_assert_eq!(joined(kept.iter().map(|segment| &*segment.matched), false), &*path);
        }
    }

    #[test]
    fn no_text_makes_it_panic(path in any::<String>(), pattern in any::<String>()) {
        let parsed = Path::parse(&path, EncodedSlashes::Refuse);
        if let (Ok(path), Ok(pattern)) = (parsed, PathPattern::parse(&pattern)) {
            let _ = pattern.matches(path.matched());
        }
    }
}
