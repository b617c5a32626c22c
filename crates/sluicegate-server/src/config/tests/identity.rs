//! `trusted_proxies` and `identity`: accepted and rejected values.

use super::*;
use crate::config::identity::{IdentitySettings, KeyLocation, SourceSettings};
use sluicegate::identify::api_key::KeyHash;

const HASH: &str = "c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c";

#[test]
fn every_key_is_read() {
    let config = good(&format!(
        "trusted_proxies: [10.0.0.0/8, '2001:db8::1']
trusted_header: forwarded
identity:
  - jwt: {{ issuer: i, audience: [a, b], jwks_url: 'https://id.example/k', claim: c, tier_claim: t, tenant_claim: o, namespace: n,
      leeway: 60s, refresh: 10s, keep: 7d, ca_file: ca.pem }}
  - api_key: {{ header: X-Key, keys: [{{ sha256: {HASH}, identifier: demo, tier: free, tenant: shop }}] }}
  - ip: {{ ipv6_prefix: 56 }}
rules: []"
    ));
    assert!(config.proxies.contains("10.1.2.3".parse().unwrap()));
    let IdentitySettings { sources, ipv6_prefix } = config.identity.unwrap();
    assert_eq!(ipv6_prefix, 56);
    let [SourceSettings::Jwt(jwt), SourceSettings::ApiKey(keys), SourceSettings::Ip] = &*sources else {
        panic!("{sources:?}")
    };
    assert_eq!((&*jwt.issuer, &*jwt.audience, &*jwt.claim), ("i", &["a".to_owned(), "b".to_owned()][..], "c"));
    assert_eq!((jwt.tier_claim.as_deref(), jwt.tenant_claim.as_deref()), (Some("t"), Some("o")));
    assert_eq!((jwt.leeway.as_secs(), jwt.namespace.as_deref()), (60, Some("n")));
    let KeyLocation::JwksUrl { refresh, keep, ca_file, .. } = &jwt.keys else { panic!("{:?}", jwt.keys) };
    assert_eq!((refresh.as_secs(), keep.as_secs(), ca_file.is_some()), (10, 7 * 86_400, true));
    assert_eq!((keys.header.as_str(), keys.is_verified, keys.keys.len()), ("x-key", true, 1));
    assert_eq!(keys.keys[0].0, KeyHash::of(b"demo-key"));
}

#[test]
fn without_identity_clients_are_identified_by_address_and_in_the_demo_by_its_key() {
    assert!(good("rules: []").identity.is_none());
    let [SourceSettings::ApiKey(_), SourceSettings::Ip] = &*IdentitySettings::usual(true).sources else {
        panic!()
    };
    let [SourceSettings::Ip] = &*IdentitySettings::usual(false).sources else { panic!() };
}

#[test]
fn every_problem_is_reported_and_no_key_is_shown() {
    let one = "write one of jwt, api_key and ip for each entry of the list";
    let from = "give one of jwks_url, jwks_file, secret_env and public_key_file";
    let own = "use a field of its own, for example X-API-Key";
    let sha = "give the SHA-256 of the key, for example from `printf %s KEY | sha256sum`";
    let cases: Vec<(&str, String)> = vec![
        ("[]", "1:11: identity: 0 entries: name 1 to 64 ways to know callers, or leave the key out to know them by ip".into()),
        ("[{}]", format!("1:12: identity[0]: no kind of identity: {one}")),
        ("[{ ip: {}, api_key: {} }]", format!("1:12: identity[0]: several kinds of identity: {one}")),
        (
            "[{ ip: {} }, { ip: {} }]",
            "1:24: identity[1]: never applies: move `ip` to the end: every request has an address, so nothing after it ever applies".into(),
        ),
        ("[{ ip: { ipv6_prefix: 129 } }]", "1:33: identity[0].ip.ipv6_prefix: out of range (value 129): use a whole number from 32 to 128".into()),
        ("[{ jwt: { issuer: i, audience: a } }]", format!("1:19: identity[0].jwt: no keys: {from}")),
        (
            "[{ jwt: { issuer: i, audience: a, jwks_file: f, secret_env: S } }]",
            format!("1:19: identity[0].jwt: several places of keys: {from}"),
        ),
        ("[{ jwt: { issuer: i, audience: [], jwks_file: f } }]", "1:42: identity[0].jwt.audience: 0 audiences: name at least one, at most 64".into()),
        ("[{ jwt: { issuer: i, audience: a, jwks_file: f, leeway: 61s } }]", "1:67: identity[0].jwt.leeway: out of range (value 61s): use at least 0s and at most 60s".into()),
        (
            "[{ jwt: { issuer: i, audience: a, jwks_file: f, namespace: 'a|b' } }]",
            "1:70: identity[0].jwt.namespace: not 1 to 256 bytes without `|` and control characters (value \"a|b\"): \
             write a short name, for example namespace: staff".into(),
        ),
        (
            "[{ jwt: { issuer: 'i|', audience: a, jwks_file: f } }, { jwt: { issuer: j, audience: a, jwks_file: f } }]",
            "1:12: identity[0]: one of several issuers, and its name is no namespace: it is too long, or holds a `|`: \
             give it a namespace, for example namespace: staff".into(),
        ),
        (
            "[{ api_key: {} }]",
            "1:23: identity[0].api_key: no keys, so no credential could ever be valid: \
             list the keys, or name a database that holds them, or write verify: false to take any key for the name of its sender".into(),
        ),
        (
            "[{ api_key: { verify: false, header: Authorization } }]",
            format!("1:48: identity[0].api_key.header: the field of tokens (value Authorization): {own}"),
        ),
        (
            "[{ api_key: { verify: false, header: X-Forwarded-For } }]",
            format!(
                "1:48: identity[0].api_key.header: a field about the way of a request, not about its sender \
                 (value X-Forwarded-For): {own}"
            ),
        ),
        (
            "[{ api_key: { keys: [{ sha256: my-secret-key, identifier: x }] } }]",
            format!("1:42: identity[0].api_key.keys[0].sha256: not 64 hexadecimal digits: {sha}"),
        ),
    ];
    for (identity, expected) in cases {
        check(&format!("identity: {identity}"), &[&expected]);
    }
    let remedy = "write an address or a network, for example 10.0.0.0/8 or 2001:db8::/32";
    check(
        "trusted_proxies: [10.0.0.0/33, x]",
        &[
            &format!("1:19: trusted_proxies[0]: not a network (value 10.0.0.0/33): {remedy}"),
            &format!("1:32: trusted_proxies[1]: not a network (value x): {remedy}"),
        ],
    );
}
