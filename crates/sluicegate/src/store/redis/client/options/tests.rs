//! Every form of a URL, and every error.

use super::*;

fn parse(text: &str) -> RedisOptions {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn address(host: &str, port: u16) -> Address {
    Address { host: host.to_owned(), port }
}

#[test]
fn one_server() {
    let single = |host, port, database| ServerNames::Single { address: address(host, port), database };
    assert_eq!(parse("redis://localhost").servers, single("localhost", 6379, 0));
    assert_eq!(parse("redis://localhost/").servers, single("localhost", 6379, 0));
    assert_eq!(parse("redis://10.0.0.1:7000/3").servers, single("10.0.0.1", 7000, 3));
    assert_eq!(parse("redis://[::1]").servers, single("::1", 6379, 0));
    assert_eq!(parse("rediss://[fe80::1]:7000").servers, single("fe80::1", 7000, 0));
    assert!(parse("rediss://host").encrypted);
    assert!(!parse("redis://host").encrypted);
}

#[test]
fn sentinels() {
    let options = parse("redis+sentinel://a,b:1,[::1]:2/limits");
    let sentinels = vec![address("a", 26379), address("b", 1), address("::1", 2)];
    let service = "limits".to_owned();
    assert_eq!(options.servers, ServerNames::Sentinel { sentinels, service, database: 0 });
    let ServerNames::Sentinel { database, .. } = parse("rediss+sentinel://a/limits/4").servers else { panic!() };
    assert_eq!(database, 4);
}

#[test]
fn clusters() {
    let options = parse("rediss+cluster://a:7000,b");
    assert_eq!(options.servers, ServerNames::Cluster { seeds: vec![address("a", 7000), address("b", 6379)] });
    assert!(options.encrypted);
}

#[test]
fn names_and_passwords_are_decoded() {
    let credentials = |text: &str| parse(text).credentials.expect("credentials");
    assert_eq!(credentials("redis://:secret@h").user, None);
    assert_eq!(credentials("redis://:secret@h").password, Password::new("secret"));
    let escaped = credentials("redis://ann%40x:p%3Aa%2Fs%25%C3%A9@h:1/2");
    assert_eq!(escaped.user.as_deref(), Some("ann@x"));
    assert_eq!(escaped.password, Password::new("p:a/s%é"));
    assert_eq!(credentials("redis://u:a:b@c@h").password, Password::new("a:b@c"));
}

#[test]
fn errors_name_the_remedy() {
    let check = |text: &str, part: &str| {
        let error = text.parse::<RedisOptions>().expect_err(text);
        assert!(error.message.contains(part), "{text}: {error}");
    };
    check("localhost:6379", "starts with redis://");
    check("memcached://h", "starts with redis://");
    check("redis+proxy://h", "starts with redis://");
    check("redis://", "host is missing");
    check("redis://:7000", "host is missing");
    check("redis+cluster://a,,b", "host is missing");
    check("redis://h:0", "port of `h`");
    check("redis://h:70000", "port of `h`");
    check("redis://h:", "of `h` is not a number");
    check("redis://h:x", "of `h` is not a number");
    check("redis://[::1]x", "of `::1` is not a number");
    check("redis://[::1", "closing `]`");
    check("redis://::1", "host is missing");
    check("redis://fe80::1", "write IPv6 as [::1]:6379");
    check("redis://h/one", "database `one`");
    check("redis://h/-1", "database `-1`");
    check("redis://h/70000", "database `70000`");
    check("redis://h/1/2", "database `1/2`");
    check("redis://a,b", "names one host");
    check("redis+sentinel://a,b", "service name is missing");
    check("redis+sentinel://a,b/", "service name is missing");
    check("redis+sentinel://a/limits/x", "database `x`");
    check("redis+cluster://a/1", "only database 0");
    check("redis://user@h", "have no `:`");
    check("redis://h?db=1", "no `?` or `#`");
    check("redis://:%ff@h", "not UTF-8");
}

#[test]
fn no_message_and_no_debug_shows_a_password() {
    let misspelt = [
        "canary",
        "redis://u:canary",
        "redis://u:can/ary@h",
        "redis://u:canary?@h",
        "redis://u:canary#@h",
        "redis://u:canary@",
        "redis://u:canary@h:x",
        "redis://u:canary@h/x",
        "redis:u:canary@h",
        "canary://u:canary@h",
        "redis://canary@h",
        "redis://:canary%ff@h",
    ];
    for text in misspelt {
        let error = text.parse::<RedisOptions>().expect_err(text);
        assert!(!format!("{error} {error:?}").contains("canary"), "{text}: {error}");
        assert!(!error.message.contains("ary@"), "{text}: {error}");
    }
    let options = parse("redis+sentinel://u:canary@h/s")
        .sentinel_credentials(None, "canary".to_owned())
        .client_certificate(b"canary".to_vec(), b"canary".to_vec());
    assert!(!format!("{options:?} {options:#?}").contains("canary"));
}
