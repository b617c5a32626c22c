//! The precedence of settings, and the errors of invalid ones.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::*;

fn env(variables: &[(&str, &str)]) -> Result<Env, SettingsError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    Env::read(|name| variables.get(name).map(OsString::from))
}

fn at(address: &str) -> Listen {
    Listen::At(address.parse::<SocketAddr>().expect("an address"))
}

/// One source with these values.
fn values(values: &[(&'static Setting, &str)]) -> SettingValues {
    values.iter().fold(SettingValues::default(), |all, (setting, value)| all.with(setting, Some(value)))
}

fn in_file(settings: &[(&'static Setting, &str)]) -> FileSettings {
    FileSettings { values: values(settings), ..FileSettings::default() }
}

/// The error text of one setting given as a flag.
fn flag_error(flags: Flags) -> String {
    merge(&flags, &Env::default(), &FileSettings::default()).expect_err("not usable").to_string()
}

fn api_error(value: &str) -> String {
    flag_error(values(&[(&API, value)]))
}

#[test]
fn defaults_are_on_loopback() {
    let settings = merge(&Flags::default(), &Env::default(), &FileSettings::default());
    let settings = settings.expect("defaults are usable");
    assert!(matches!(settings.store, StoreUrl::Memory));
    assert_eq!(settings.gateway, at("127.0.0.1:8080"));
    assert_eq!(settings.api, at("127.0.0.1:8081"));
    assert_eq!(settings.admin, at("127.0.0.1:8082"));
    assert_eq!(settings.resp, Listen::Off);
    assert!(settings.admin_token.is_none());
}

#[test]
fn flags_take_precedence_over_environment_file_and_defaults() {
    let file = in_file(&[
        (&GATEWAY, "127.0.0.1:1003"),
        (&API, "127.0.0.1:2003"),
        (&ADMIN, "127.0.0.1:3003"),
        (&RESP, "127.0.0.1:4003"),
    ]);
    let env = env(&[("SLUICEGATE_GATEWAY", "127.0.0.1:1002"), ("SLUICEGATE_API", "127.0.0.1:2002")]);
    let env = env.expect("valid");
    let flags = values(&[(&GATEWAY, "127.0.0.1:1001")]);

    let settings = merge(&flags, &env, &file).expect("usable");

    assert_eq!(settings.gateway, at("127.0.0.1:1001"));
    assert_eq!(settings.api, at("127.0.0.1:2002"));
    assert_eq!(settings.admin, at("127.0.0.1:3003"));
    assert_eq!(settings.resp, at("127.0.0.1:4003"));
}

#[test]
fn the_config_flag_takes_precedence_over_the_variable() {
    let variable = env(&[("SLUICEGATE_CONFIG", "variable.yaml")]).expect("valid");
    let flags = values(&[(&CONFIG, "flag.yaml")]);
    assert_eq!(config_path(&flags, &variable), Some(Path::new("flag.yaml")));
    assert_eq!(config_path(&Flags::default(), &variable), Some(Path::new("variable.yaml")));
    assert_eq!(config_path(&Flags::default(), &Env::default()), None);
}

#[test]
fn an_empty_variable_is_unset() {
    let env = env(&[("SLUICEGATE_API", ""), ("SLUICEGATE_ADMIN_TOKEN", ""), ("SLUICEGATE_LOG", "")]);
    let env = env.expect("valid");
    let file = in_file(&[(&API, "off")]);
    let settings = merge(&Flags::default(), &env, &file).expect("usable");
    assert_eq!(settings.api, Listen::Off);
    assert!(settings.admin_token.is_none());
    assert_eq!(env.text(&declared::LOG), None);
}

#[test]
fn an_error_names_the_source_the_value_and_the_remedy() {
    assert_eq!(api_error("8081"), "--api: `8081` is not HOST:PORT; give for example 127.0.0.1:8081, or `off`");
    let variable = env(&[("SLUICEGATE_API", "nonsense")]).expect("valid");
    let error = merge(&Flags::default(), &variable, &FileSettings::default()).expect_err("bad");
    assert_eq!(
        error.to_string(),
        "SLUICEGATE_API: `nonsense` is not HOST:PORT; give for example 127.0.0.1:8081, or `off`"
    );
    let file = in_file(&[(&GATEWAY, "a:b:c")]);
    let error = merge(&Flags::default(), &Env::default(), &file).expect_err("bad");
    assert_eq!(
        error.to_string(),
        "`gateway` in the configuration file: `a:b:c` is not HOST:PORT; \
         give for example 127.0.0.1:8080, or `off`"
    );
}

#[test]
fn the_resp_listener_is_off_by_default() {
    let variable = env(&[("SLUICEGATE_RESP", "127.0.0.1:6379")]).expect("valid");
    let settings = |flags, env| merge(&flags, env, &FileSettings::default()).expect("usable").resp;
    assert_eq!(settings(Flags::default(), &variable), at("127.0.0.1:6379"));
    assert_eq!(settings(values(&[(&RESP, "off")]), &variable), Listen::Off);
    assert_eq!(
        flag_error(values(&[(&RESP, "6379")])),
        "--resp: `6379` is not HOST:PORT; give for example 127.0.0.1:6379, or `off`"
    );
    let flags = values(&[(&GATEWAY, "off"), (&API, "off"), (&ADMIN, "off"), (&RESP, "127.0.0.1:0")]);
    assert_eq!(settings(flags, &Env::default()), at("127.0.0.1:0"));
}

#[test]
fn invalid_addresses_are_rejected() {
    for value in ["", ":8081", "127.0.0.1", "127.0.0.1:", "::1:8081", "[::1]", "host name:1", "é:1"] {
        let error = api_error(value);
        assert!(error.starts_with("--api: `") && error.contains("`off`"), "{value}: {error}");
    }
    assert_eq!(
        api_error("localhost:65536"),
        "--api: `localhost:65536` has no port from 0 to 65535; \
         give for example 127.0.0.1:8081, or `off`"
    );
}

#[test]
fn a_hostile_value_is_escaped_and_truncated() {
    let error = api_error(&format!("\u{1b}[2J{}", "x".repeat(10_000)));
    assert!(error.contains("`\\u{1b}[2Jxxx"), "{error}");
    assert!(error.len() < 400, "{} bytes", error.len());
}

#[test]
fn names_ports_and_off_are_understood() {
    let parse = |value| Listen::parse(value, "127.0.0.1:1").expect("valid");
    assert_eq!(parse("off"), Listen::Off);
    assert_eq!(parse("OFF"), Listen::Off);
    assert_eq!(parse("127.0.0.1:0"), at("127.0.0.1:0"));
    assert_eq!(parse("[::1]:8081"), at("[::1]:8081"));
    let Listen::At(localhost) = parse("localhost:8081") else {
        panic!("localhost is an address");
    };
    assert!(localhost.ip().is_loopback() && localhost.port() == 8081, "{localhost}");
}

#[test]
fn an_unknown_store_is_rejected_without_its_password() {
    assert_eq!(
        flag_error(values(&[(&STORE, "redis://user:canary@host:x")])),
        "--store: the port of `host` is not a number from 1 to 65535"
    );
}

#[test]
fn an_open_admin_listener_needs_a_token() {
    for address in ["0.0.0.0:8082", "[::]:8082", "10.1.2.3:8082", "[::ffff:10.1.2.3]:8082"] {
        let flags = values(&[(&ADMIN, address)]);
        let error = merge(&flags, &Env::default(), &FileSettings::default()).expect_err("open");
        let error = error.to_string();
        assert!(error.contains("SLUICEGATE_ADMIN_TOKEN"), "{error}");
        assert!(error.contains("--admin 127.0.0.1:8082"), "{error}");

        let env = env(&[("SLUICEGATE_ADMIN_TOKEN", "canary-of-tests-")]).expect("valid");
        let settings = merge(&flags, &env, &FileSettings::default()).expect("has a token");
        assert!(settings.admin_token.as_ref().is_some_and(|token| token.matches(b"canary-of-tests-")));
        assert!(!format!("{settings:?} {env:?}").contains("canary"));

        let listed = FileSettings { has_admin_tokens: true, ..FileSettings::default() };
        assert!(merge(&flags, &Env::default(), &listed).is_ok(), "{address}");
    }
    for address in ["127.0.0.2:8082", "[::1]:8082", "[::ffff:127.0.0.1]:8082", "off"] {
        let flags = values(&[(&ADMIN, address)]);
        assert!(merge(&flags, &Env::default(), &FileSettings::default()).is_ok(), "{address}");
    }
}

#[test]
fn a_short_token_is_rejected_and_not_shown() {
    for (token, is_good) in [("s3cret", false), ("s3cret-of-length", true), ("s3cret-of-15-ch", false)] {
        let env = env(&[("SLUICEGATE_ADMIN_TOKEN", token)]).expect("sendable");
        let merged = merge(&Flags::default(), &env, &FileSettings::default());
        assert_eq!(merged.is_ok(), is_good, "{token}");
        let error = merged.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(is_good || error.contains("use at least 16") && !error.contains("s3"), "{error}");
    }
}

#[test]
fn requiring_a_token_needs_a_token() {
    let required = FileSettings { requires_admin_token: true, ..FileSettings::default() };
    let error = merge(&Flags::default(), &Env::default(), &required).expect_err("no token");
    assert!(error.to_string().starts_with("admin.require_token: there is no token"), "{error}");
    let listed = FileSettings { has_admin_tokens: true, ..required.clone() };
    assert!(merge(&Flags::default(), &Env::default(), &listed).is_ok());
}

#[test]
fn a_token_with_invalid_characters_is_rejected_and_not_shown() {
    for token in ["s3 cret", "s3cret\n", "s3crét", "\ts3cret"] {
        let error = env(&[("SLUICEGATE_ADMIN_TOKEN", token)]).expect_err("not sendable").to_string();
        assert!(error.starts_with("SLUICEGATE_ADMIN_TOKEN: "), "{error}");
        assert!(!error.contains("s3"), "{error}");
    }
}

#[test]
fn a_variable_that_is_not_utf8_is_named() {
    use std::os::unix::ffi::OsStringExt as _;
    let error = Env::read(|name| (name == "SLUICEGATE_STORE").then(|| OsString::from_vec(vec![0xff])));
    let error = error.expect_err("not text").to_string();
    assert_eq!(error, "SLUICEGATE_STORE: the value is not valid UTF-8; set it again, or unset it");
}

#[test]
fn nothing_to_serve_is_an_error() {
    let flags = values(&[(&GATEWAY, "off"), (&API, "off"), (&ADMIN, "off")]);
    assert!(flag_error(flags).contains("every listener is off"));
}
