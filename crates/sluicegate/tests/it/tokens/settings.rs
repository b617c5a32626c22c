//! Rejected keys and settings, each with its defect and the remedy.

use super::keyring::{self, Keyring};
use super::*;
use serde_json::json;
use sluicegate::identify::token::{JWKS_BYTES_MAX, JWKS_KEYS_MAX, KeySource, KeysError, SECRET_BYTES_MIN};

fn refused(keys: Result<Keys, KeysError>) -> String {
    keys.expect_err("was accepted").to_string()
}

#[test]
fn short_secrets_are_refused() {
    for length in [0, 1, 16, SECRET_BYTES_MIN - 1] {
        let message = refused(Keys::secret(&vec![b'x'; length]));
        assert!(message.starts_with(&format!("the secret has {length} bytes: use at least 32")), "{message}");
    }
    assert!(Keys::secret(&[b'x'; SECRET_BYTES_MIN]).is_ok());
}

#[test]
fn invalid_public_key_is_rejected_without_showing_it() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let body = pair.serialize_pem().lines().nth(1).unwrap().to_owned();
    let message = refused(Keys::public_key(pair.serialize_pem().as_bytes()));
    assert!(message.contains("private key") && !message.contains(&body), "{message}");

    let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap().cert.pem();
    assert!(refused(Keys::public_key(certificate.as_bytes())).contains("openssl x509 -pubkey"));
    let p521 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap().public_key_pem();
    assert_eq!(refused(Keys::public_key(p521.as_bytes())), "the curve is neither P-256 nor P-384");
    assert_eq!(refused(Keys::public_key(SMALL_RSA.as_bytes())), "the RSA key has 1024 bits: use 2048 to 8192");
    for text in ["", "hello", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "\u{0}"] {
        assert!(refused(Keys::public_key(text.as_bytes())).contains("not a public key in PEM"), "{text}");
    }
    assert!(refused(Keys::public_key(&[0xff, 0xfe])).contains("not PEM"));
}

#[test]
fn invalid_key_sets_and_sets_with_secrets_are_rejected() {
    let good = Keyring::get().ed.jwk();
    let secret =
        json!({ "kty": "oct", "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "kid": "s" });
    for text in ["", "{}", "[]", "null", "{\"keys\":{}}", "{\"keys\":[1", "<html>"] {
        assert!(refused(Keys::jwks(text)).contains("not a JSON Web Key Set"), "{text}");
    }
    assert!(refused(Keys::jwks("{\"keys\":[]}")).ends_with("it is empty"));
    for keys in [vec![secret.clone()], vec![good.clone(), secret.clone()], vec![secret, good.clone()]] {
        assert!(refused(Keys::jwks(&keyring::jwks_of(keys))).contains("shared secret"));
    }
    let many = vec![good.clone(); JWKS_KEYS_MAX + 1];
    assert!(refused(Keys::jwks(&keyring::jwks_of(many))).contains("65 keys"));
    assert!(Keys::jwks(&keyring::jwks_of(vec![good.clone(); JWKS_KEYS_MAX])).is_ok());
    let large = format!("{}{}", " ".repeat(JWKS_BYTES_MAX), keyring::jwks_of([good]));
    assert!(refused(Keys::jwks(&large)).contains("262144 bytes"));
}

#[test]
fn unusable_keys_of_a_set_are_skipped_with_a_reason() {
    let keyring = Keyring::get();
    let with = |signer: &Signer, name: &str, value: serde_json::Value| {
        let mut jwk = signer.jwk();
        jwk[name] = value;
        jwk
    };
    let short = json!({ "kty": "RSA", "e": "AQAB", "n": keyring::encoded([0xa5; 128]) });
    let padded = [&[0; 128][..], &[0xa5; 128]].concat();
    let padded = json!({ "kty": "RSA", "e": "AQAB", "n": keyring::encoded(padded) });
    for (jwk, reason) in [
        (short, "has 1024 bits"),
        (padded, "has 1024 bits"),
        (with(&keyring.rsa, "use", json!("enc")), "`use` is not `sig`"),
        (with(&keyring.rsa, "use", json!("tls")), "`use` is not `sig`"),
        (with(&keyring.rsa, "key_ops", json!(["sign"])), "`key_ops`"),
        (with(&keyring.rsa, "key_ops", json!([])), "`key_ops`"),
        (with(&keyring.rsa, "alg", json!("HS256")), "`alg`"),
        (with(&keyring.rsa, "alg", json!("ES256")), "`alg`"),
        (with(&keyring.rsa, "alg", json!("RSA-OAEP")), "`alg`"),
        (with(&keyring.rsa, "alg", json!("none")), "`alg`"),
        (with(&keyring.rsa, "alg", json!(7)), "not understood"),
        (with(&keyring.rsa, "n", json!("*")), "base64url"),
        (with(&keyring.rsa, "n", json!("")), "has 0 bits"),
        (with(&keyring.rsa, "kid", json!("k".repeat(129))), "`kid`"),
        (with(&keyring.rsa, "kid", json!(7)), "not understood"),
        (with(&keyring.p256, "crv", json!("P-384")), "curve"),
        (with(&keyring.p256, "crv", json!("P-521")), "curve"),
        (with(&keyring.p256, "crv", json!("secp256k1")), "curve"),
        (with(&keyring.p256, "crv", json!("Ed25519")), "curve"),
        (with(&keyring.p256, "alg", json!("ES384")), "`alg`"),
        (with(&keyring.p256, "x", json!("AA")), "curve"),
        (with(&keyring.ed, "crv", json!("Ed448")), "curve"),
        (with(&keyring.ed, "crv", json!("P-256")), "curve"),
        (with(&keyring.ed, "crv", json!("X25519")), "curve"),
        (with(&keyring.ed, "x", json!("AA")), "curve"),
        (json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AA" }), "curve"),
        (json!("key"), "not understood"),
        (json!({}), "curve"),
    ] {
        let message = refused(Keys::jwks(&keyring::jwks_of([jwk.clone()])));
        assert!(message.contains("no key that can be used: key 1: "), "{message}");
        assert!(message.contains(reason), "{jwk}: {message}");
        assert!(Keys::jwks(&keyring::jwks_of([jwk, keyring.ed.jwk()])).is_ok(), "one good key is enough");
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let options = || issuer(ED, jwks(&[&Keyring::get().ed]));
    let check = |change: &dyn Fn(&mut IssuerOptions), field: &str| {
        let mut options = options();
        change(&mut options);
        let error = Tokens::new(vec![options]).expect_err(field);
        assert_eq!((error.index, error.field), (0, field), "{error}");
    };
    check(&|options| options.issuer.clear(), "issuer");
    check(&|options| options.audience.clear(), "audience");
    check(&|options| options.audience.push(String::new()), "audience");
    check(&|options| options.claim.clear(), "claim");
    check(&|options| options.tier_claim = Some(String::new()), "tier_claim");
    check(&|options| options.tenant_claim = Some(String::new()), "tenant_claim");
    check(&|options| options.leeway = Duration::from_secs(61), "leeway");
    for namespace in ["", "a|b", "a\nb", &"x".repeat(257)] {
        check(&|options| options.namespace = Some(namespace.to_owned()), "namespace");
    }
    // With several issuers the name of an issuer is its namespace; that of a single issuer may be anything.
    let odd = || issuer("a|b", jwks(&[&Keyring::get().ed]));
    assert!(Tokens::new(vec![odd()]).is_ok());
    let error = Tokens::new(vec![options(), odd()]).unwrap_err();
    assert_eq!((error.index, error.field), (1, "issuer"));
    assert!(error.to_string().ends_with("leave it out, or give the issuer a `namespace`"), "{error}");
    let error = Tokens::new(vec![options(), options()]).unwrap_err();
    assert_eq!((error.index, error.field), (1, "issuer"));
    assert!(error.to_string().starts_with("`issuer` of issuer 2 is the name of an issuer before it"), "{error}");
}

#[test]
fn durations_of_remote_keys_out_of_range_are_named() {
    struct Nobody;
    impl KeySource for Nobody {
        fn fetch(&self) -> sluicegate::identify::token::FetchFuture<'_> {
            Box::pin(std::future::pending())
        }
    }
    for (refresh, keep, field) in
        [(9, 100, "refresh"), (0, 100, "refresh"), (60, 59, "keep"), (60, 604_801, "keep")]
    {
        let (refresh, keep) = (Duration::from_secs(refresh), Duration::from_secs(keep));
        let keys = Keys::remote(Arc::new(Nobody), refresh, keep);
        assert_eq!(Tokens::new(vec![issuer(ED, keys)]).unwrap_err().field, field);
    }
}

#[test]
fn debug_output_contains_no_secrets() {
    let shown = format!("{:?}", tokens());
    let secret = String::from_utf8_lossy(keyring::SHARED);
    let numbers = format!("{:?}", keyring::SHARED);
    assert!(!shown.contains(&*secret) && !shown.contains(numbers.trim_matches(['[', ']'])));
}

/// A public key that is too short; its private key was discarded.
const SMALL_RSA: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCz+dagsfQ7HGNR7iiANvzh6HUb
2EoCzXxwcJZeD2kjc6BPiY0tenDS8TfXDmGLEOrwtfTNu4UqSbyvvEbvHUotWajY
DB3bWO5UUbJHCd/Dorw6YJzMM/mxQZriUuc0aOkr7iuPFA4PElFvUqi5xCpQCwze
5IGXtKZq4fTcIQsu4QIDAQAB
-----END PUBLIC KEY-----
";
