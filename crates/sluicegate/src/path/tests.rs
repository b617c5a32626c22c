//! Paths that try to pass as others, and paths that are already normal.

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
fn the_forwarded_path_keeps_its_meaning() {
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
fn paths_that_programs_read_differently_are_rejected() {
    let cases = [
        ("", PathError::NoSlash),
        ("api", PathError::NoSlash),
        ("*", PathError::NoSlash),
        ("/a%2fb", PathError::EncodedSlash),
        ("/a%5Cb", PathError::EncodedBackslash),
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
fn encoded_slashes_can_be_kept_and_are_data_and_separators_then() {
    let cases: [(&str, &str, &[&str]); 18] = [
        ("/repos/a%2fb/x", "/repos/a%2fb/x", &["/repos/a%2fb/x", "/repos/a/b/x"]),
        ("/@Scope%2Fname", "/@Scope%2Fname", &["/@scope%2fname", "/@scope/name"]),
        ("//a%2F//b", "/a%2F/b", &["/a%2f/b", "/a/b"]),
        ("/%2Fadmin", "/%2Fadmin", &["/%2fadmin", "/admin"]),
        ("/admin%2f", "/admin%2f", &["/admin%2f", "/admin"]),
        ("/%2f", "/%2f", &["/%2f", "/"]),
        ("/x%2F..%2Fadmin", "/x%2F..%2Fadmin", &["/x%2f..%2fadmin", "/admin", "/x/../admin"]),
        ("/x%2f%2e%2E%2fadmin", "/x%2f..%2fadmin", &["/x%2f..%2fadmin", "/admin", "/x/../admin"]),
        (
            "/x/..%2F..%2F..%2Fadmin",
            "/x/..%2F..%2F..%2Fadmin",
            &["/x/..%2f..%2f..%2fadmin", "/admin", "/x/../../../admin"],
        ),
        ("/x%2F./.%2Fadmin", "/x%2F./.%2Fadmin", &["/x%2f/.%2fadmin", "/x/admin"]),
        ("/a%2F..", "/a%2F..", &["/a%2f", "/", "/a/.."]),
        ("/a%2Fb;x", "/a%2Fb;x", &["/a%2fb", "/a/b"]),
        ("/a%3Bx%2Fb", "/a%3Bx%2Fb", &["/a%3bx%2fb", "/a%3bx/b"]),
        // Encoded twice it is a percent sign, two digits and letters.
        ("/a%252Fb", "/a%252Fb", &["/a%252fb"]),
        ("/a%252F%2Fb", "/a%252F%2Fb", &["/a%252f%2fb", "/a%252f/b"]),
        // Dot segments that both readings resolve alike.
        ("/a/b/../c%2fd", "/a/c%2fd", &["/a/c%2fd", "/a/c/d"]),
        ("/public%2F../../admin", "/admin", &["/admin"]),
        ("/x%2Fy/../../a%2Fb/z", "/a%2Fb/z", &["/a%2fb/z", "/a/b/z"]),
    ];
    for (path, sent, readings) in cases {
        let parsed = Path::parse(path, EncodedSlashes::Keep).unwrap();
        assert_eq!((parsed.sent(), &*parsed.readings().collect::<Vec<_>>()), (sent, readings), "{path}");
    }
    let path = Path::parse("/repos/a%2fb/x", EncodedSlashes::Keep).unwrap();
    assert_eq!(path.resource(), "repos.a%2fb.x");
    assert_eq!(path.separated().first().map(Reading::resource), Some("repos.a.b.x"));
}

#[test]
fn paths_that_only_one_reading_allows_are_rejected() {
    for (path, error) in [
        // Parameters may end at an encoded slash, or at the next literal separator.
        ("/a;x%2Fadmin", PathError::EncodedSlashInParameter),
        ("/a%2F..;x%2Fadmin", PathError::EncodedSlashInParameter),
        ("/%2F..%2F/admin;a%252F%2F..%2F", PathError::EncodedSlashInParameter),
        ("/a%2F..;x", PathError::HiddenDots),
        ("/a%2F%20/b", PathError::HiddenDots),
        ("/a%2Fb/../c", PathError::AmbiguousDots),
        ("/x%2Fy/..", PathError::AmbiguousDots),
        ("/a%2Fb/x%2Fy/../z", PathError::AmbiguousDots),
        ("/a%2F..%5Cb", PathError::EncodedBackslash),
        ("/a%2F%00", PathError::Character),
    ] {
        assert_eq!(Path::parse(path, EncodedSlashes::Keep), Err(error), "{path}");
    }
    let many = format!("/{}", "a%2F".repeat(PATH_SEGMENTS_MAX));
    assert_eq!(Path::parse(&format!("{many}a"), EncodedSlashes::Keep), Err(PathError::TooManySegments));
    assert!(Path::parse(&many, EncodedSlashes::Keep).is_ok());
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
    /// Both forms are normal: parsing them again changes nothing, and no dot segment or empty segment remains.
    #[test]
    fn a_path_that_was_read_reads_the_same(path in "/?[a-cA-C./%;\\\\ 2eEfF5]{0,40}") {
        let Ok(first) = Path::parse(&path, EncodedSlashes::Keep) else { return Ok(()) };
        let again = Path::parse(first.sent(), EncodedSlashes::Keep).unwrap();
        prop_assert_eq!(again.sent(), first.sent());
        prop_assert_eq!(again.matched(), first.matched());
        prop_assert_eq!(again.separated(), first.separated());
        for form in first.readings().take(2).chain([first.sent()]) {
            prop_assert!(form.starts_with('/') && !form.contains("//"));
            prop_assert!(!form.split('/').any(|segment| segment == "." || segment == ".."));
        }
    }

    /// An application that decodes slashes first reaches a path that rules have seen, whether it gets the original
    /// path or the normalised one.
    #[test]
    fn the_second_reading_is_the_path_with_its_slashes_decoded(path in "/(%2[fF]|[abA./;]|%2[eE]|/){0,16}") {
        let Ok(read) = Path::parse(&path, EncodedSlashes::Keep) else { return Ok(()) };
        for text in [&*path, read.sent()] {
            let decoded = text.replace("%2f", "/").replace("%2F", "/");
            let decoded = Path::parse(&decoded, EncodedSlashes::Refuse).unwrap();
            prop_assert_eq!(Some(decoded.matched()), read.readings().take(2).last());
        }
        // An application that does not resolve dot segments after decoding sees as many segments as there are.
        if let [_, literal] = read.separated() {
            let decoded = read.sent().replace("%2f", "/").replace("%2F", "/");
            let segments = decoded.split('/').filter(|segment| !matches!(*segment, "" | "."));
            prop_assert_eq!(literal.path().split('/').skip(1).count(), segments.clone().count());
            prop_assert!(segments.clone().any(|segment| segment == ".."));
        }
        let first = Path::parse(&path, EncodedSlashes::Refuse);
        prop_assert_eq!(first.is_ok(), !path.to_ascii_lowercase().contains("%2f"));
    }

    /// The fast path and the general path give the same result.
    #[test]
    fn the_fast_path_agrees_with_the_general_path(path in "/[a-c./_~-]{0,12}") {
        if segments::is_plain(&path) {
            let resolved = resolve(&path, EncodedSlashes::Refuse).unwrap();
            prop_assert_eq!(resolved.sent(), &*path);
            prop_assert_eq!(resolved.matched(), &*path);
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
