//! Tokens: the accepted ones, the rejected ones, and the behaviour when keys change or cannot be fetched.

mod good;
mod hostile;
mod keyring;
mod mutations;
mod remote;
mod settings;

use keyring::{Keyring, Signer};
use sluicegate::core::Timestamp;
use sluicegate::identify::token::{Claims, IssuerOptions, Keys, TokenError, Tokens};
use std::sync::Arc;
use std::time::Duration;

/// The time of all tests.
const NOW_SECONDS: u64 = 1_800_000_000;
const LEEWAY_SECONDS: u64 = 30;
const AUDIENCE: &str = "api";

/// One issuer for each source of keys.
const RSA: &str = "https://rsa.example";
const EC: &str = "https://ec.example";
const ED: &str = "https://ed.example";
const PEM: &str = "https://pem.example";
const SECRET: &str = "https://secret.example";
const NARROW: &str = "https://narrow.example";
const NAMELESS: &str = "https://nameless.example";

fn now() -> Timestamp {
    at(NOW_SECONDS)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::now(seconds * 1_000_000)
}

fn issuer(name: &str, keys: Keys) -> IssuerOptions {
    let mut options = IssuerOptions::new(name, [AUDIENCE, "api.second"], keys);
    options.tier_claim = Some("tier".to_owned());
    options.tenant_claim = Some("org".to_owned());
    options.leeway = Duration::from_secs(LEEWAY_SECONDS);
    options
}

fn jwks(signers: &[&Signer]) -> Keys {
    Keys::jwks(&keyring::jwks(signers)).unwrap()
}

/// All issuers.
fn tokens() -> Tokens {
    let keyring = Keyring::get();
    let nameless = keyring::jwks_of([keyring::without(keyring.rsa.jwk(), "kid"), keyring.p256.jwk()]);
    let mut narrow = keyring.rsa.jwk();
    narrow["alg"] = "RS256".into();
    Tokens::new(vec![
        issuer(RSA, jwks(&[&keyring.rsa])),
        issuer(EC, jwks(&[&keyring.p256, &keyring.p384])),
        issuer(ED, jwks(&[&keyring.ed])),
        issuer(PEM, Keys::public_key(keyring.rsa.public_pem.as_bytes()).unwrap()),
        issuer(SECRET, Keys::secret(keyring::SHARED).unwrap()),
        issuer(NARROW, Keys::jwks(&keyring::jwks_of([narrow])).unwrap()),
        issuer(NAMELESS, Keys::jwks(&nameless).unwrap()),
    ])
    .unwrap()
}

fn verify_at(tokens: &Tokens, token: &str, now: Timestamp) -> Result<Arc<Claims>, TokenError> {
    // Local keys need no waiting.
    futures_util::FutureExt::now_or_never(tokens.verify(token, now)).expect("local keys need no waiting")
}

fn verify(tokens: &Tokens, token: &str) -> Result<Arc<Claims>, TokenError> {
    verify_at(tokens, token, now())
}
