//! Tokens that try to choose their own verification.

use super::super::keyring::{Json, Keyring, Signer, encoded, quoted};
use super::super::{EC, ED, NARROW, PEM, RSA, SECRET};
use super::{Case, TokenErrorKind as Kind, case};
use jsonwebtoken::Algorithm;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = unsigned();
    cases.extend(public_keys_as_secrets());
    cases.extend(keys_for_something_else());
    cases
}

/// The algorithm `none` under all its names, with and without bytes in place of the signature.
fn unsigned() -> Vec<Case> {
    let signer = &Keyring::get().rsa;
    let mut cases = Vec::new();
    for name in
        ["none", "None", "NONE", "nOnE", "", "null", "NONE\\u0000", " none", "hs256", "Rs256", "RS256 ", "ES256K"]
    {
        let header = signer.header().with("alg", &quoted(name));
        let signed = signer.token_with(&header, &Json::claims(RSA));
        let (message, _) = signed.rsplit_once('.').unwrap();
        cases.push(case(format!("alg {name:?}, signed all the same"), Kind::Algorithm, &signed));
        cases.push(case(format!("alg {name:?}, stripped"), Kind::Malformed, format!("{message}.")));
        cases.push(case(
            format!("alg {name:?}, one byte for a signature"),
            Kind::Algorithm,
            format!("{message}.AA"),
        ));
    }
    for (name, value) in [("a number", "256"), ("a list", "[\"RS256\"]"), ("null", "null"), ("an object", "{}")] {
        let token = signer.token_with(&signer.header().with("alg", value), &Json::claims(RSA));
        cases.push(case(format!("alg is {name}"), Kind::Malformed, token));
    }
    let token = signer.token_with(&signer.header().without("alg"), &Json::claims(RSA));
    cases.push(case("no alg", Kind::Malformed, token));
    cases
}

/// The public key is public: a verifier that used it as a secret would accept any token.
fn public_keys_as_secrets() -> Vec<Case> {
    let keyring = Keyring::get();
    let mut cases = Vec::new();
    for (signer, issuer) in [(&keyring.rsa, RSA), (&keyring.rsa, PEM), (&keyring.p256, EC), (&keyring.ed, ED)] {
        let pem = &signer.public_pem;
        let secrets = [
            ("PEM", pem.clone().into_bytes()),
            ("PEM without its last newline", pem.trim_end().as_bytes().to_vec()),
            ("PEM with CRLF", pem.replace('\n', "\r\n").into_bytes()),
            ("PEM without newlines", pem.replace('\n', "").into_bytes()),
            ("DER", signer.public_der.clone()),
            ("bare key", signer.public_raw.clone()),
            ("base64 of DER", encoded(&signer.public_der).into_bytes()),
            ("JWK", signer.jwk().to_string().into_bytes()),
            ("name", signer.kid.as_bytes().to_vec()),
        ];
        for (what, secret) in secrets {
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let forger = Signer::secret(&secret, algorithm);
                let header = forger.header().with("kid", &quoted(signer.kid));
                let token = forger.token_with(&header, &Json::claims(issuer));
                cases.push(case(format!("{algorithm:?} by the {what} of {issuer}"), Kind::Algorithm, token));
            }
        }
    }
    cases
}

/// Valid keys and signatures of the wrong kind for the issuer.
fn keys_for_something_else() -> Vec<Case> {
    let keyring = Keyring::get();
    let (rsa, p256, p384, ed) = (&keyring.rsa, &keyring.p256, &keyring.p384, &keyring.ed);
    let renamed = |signer: &Signer, kid: &str, issuer: &str| {
        signer.token_with(&signer.header().with("kid", &quoted(kid)), &Json::claims(issuer))
    };
    let mut cases = vec![
        case("EC key at the issuer of RSA", Kind::Algorithm, renamed(p256, "rsa", RSA)),
        case("Ed key at the issuer of RSA", Kind::Algorithm, renamed(ed, "rsa", RSA)),
        case("RSA key at the issuer of EC", Kind::Algorithm, renamed(rsa, "p256", EC)),
        case("P-384 key under the name of P-256", Kind::Algorithm, renamed(p384, "p256", EC)),
        case("P-256 key under the name of P-384", Kind::Algorithm, renamed(p256, "p384", EC)),
        case("EC key at the issuer of Ed", Kind::Algorithm, renamed(p256, "ed", ED)),
        case("RSA key at the issuer of secrets", Kind::Algorithm, renamed(rsa, "secret", SECRET)),
        case("EC key at the issuer of secrets", Kind::Algorithm, renamed(p256, "secret", SECRET)),
    ];
    // The key declares RS256 only, although its numbers would work for all of these.
    for algorithm in [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512] {
        let header = rsa.header().with("alg", &quoted(&format!("{algorithm:?}")));
        let message = format!("{}.{}", encoded(header.to_string()), encoded(Json::claims(NARROW).to_string()));
        let token = format!("{message}.{}", rsa.signature(&message, algorithm));
        cases.push(case(format!("{algorithm:?} by a key for RS256"), Kind::Algorithm, token));
    }
    // The header names one algorithm, and the signature uses another.
    for (said, done) in [
        (Algorithm::RS256, Algorithm::PS256),
        (Algorithm::PS256, Algorithm::RS256),
        (Algorithm::RS256, Algorithm::RS512),
        (Algorithm::PS512, Algorithm::PS384),
    ] {
        let header = rsa.header().with("alg", &quoted(&format!("{said:?}")));
        let message = format!("{}.{}", encoded(header.to_string()), encoded(Json::claims(RSA).to_string()));
        let token = format!("{message}.{}", rsa.signature(&message, done));
        cases.push(case(format!("says {said:?}, is {done:?}"), Kind::Signature, token));
    }
    cases
}
