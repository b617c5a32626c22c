//! Valid tokens. They show that each hostile token is rejected for its one defect.

use super::keyring::{self, Json, Keyring, Signer, quoted};
use super::*;
use jsonwebtoken::Algorithm;
use sluicegate::identify::token::TokenErrorKind;
use sluicegate::identity::IDENTIFIER_BYTES_MAX;

#[test]
fn every_algorithm_is_accepted_with_a_matching_key() {
    let (tokens, keyring) = (tokens(), Keyring::get());
    let rsa = [
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
    ];
    let mut checked = 0;
    let mut check = |signer: &Signer, algorithm: Algorithm, issuer: &str| {
        let header = signer.header().with("alg", &quoted(&format!("{algorithm:?}")));
        let header = keyring::encoded(header.to_string());
        let message = format!("{header}.{}", keyring::encoded(Json::claims(issuer).to_string()));
        let token = format!("{message}.{}", signer.signature(&message, algorithm));
        let claims = verify(&tokens, &token).unwrap_or_else(|error| panic!("{algorithm:?} of {issuer}: {error}"));
        assert_eq!((&*claims.identifier, &*claims.issuer), (&*format!("{issuer}|alice"), issuer));
        checked += 1;
    };
    for algorithm in rsa {
        check(&keyring.rsa, algorithm, RSA);
        check(&keyring.rsa, algorithm, PEM);
    }
    check(&keyring.p256, Algorithm::ES256, EC);
    check(&keyring.p384, Algorithm::ES384, EC);
    check(&keyring.ed, Algorithm::EdDSA, ED);
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        check(&Signer::secret(keyring::SHARED, algorithm), algorithm, SECRET);
    }
    check(&keyring.rsa, Algorithm::RS256, NARROW);
    check(&keyring.rsa, Algorithm::RS256, NAMELESS);
    assert_eq!(checked, 20);
}

#[test]
fn public_keys_of_every_kind_are_accepted_in_pem() {
    let keyring = Keyring::get();
    for signer in [&keyring.rsa, &keyring.p256, &keyring.p384, &keyring.ed] {
        let keys = Keys::public_key(signer.public_pem.as_bytes()).unwrap();
        let tokens = Tokens::new(vec![issuer("me", keys)]).unwrap();
        verify(&tokens, &signer.token(&Json::claims("me"))).unwrap();
        // A single key without a name matches any key name, and none.
        verify(&tokens, &signer.token_with(&signer.header().without("kid"), &Json::claims("me"))).unwrap();
    }
}

#[test]
fn claims_set_identity_tenant_and_tier() {
    let (tokens, signer) = (tokens(), &Keyring::get().ed);
    let claims = Json::claims(ED).with("tier", "\"pro\"").with("org", "\"acme\"").with("sub", "\"Zo\\u00eb\"");
    let claims = verify(&tokens, &signer.token(&claims)).unwrap();
    assert_eq!(&*claims.identifier, format!("{ED}|Zoë"));
    assert_eq!((claims.tier.as_deref(), claims.tenant.as_deref()), (Some("pro"), Some("acme")));
    assert_eq!(claims.expires_at, at(NOW_SECONDS + 600 + LEEWAY_SECONDS));

    let claims = verify(&tokens, &signer.token(&Json::claims(ED))).unwrap();
    assert_eq!((claims.tier.as_deref(), claims.tenant.as_deref()), (None, None));
}

#[test]
fn identity_claim_is_configurable() {
    let signer = &Keyring::get().ed;
    let mut options = issuer(ED, jwks(&[signer]));
    options.claim = "client_id".to_owned();
    let tokens = Tokens::new(vec![options]).unwrap();
    let claims = Json::claims(ED).with("client_id", "\"batch\"").with("sub", "7");
    assert_eq!(&*verify(&tokens, &signer.token(&claims)).unwrap().identifier, "batch");
}

#[test]
fn subjects_of_issuers_are_separate_unless_they_share_a_namespace() {
    let keyring = Keyring::get();
    let issuers: [(&str, Option<&str>, &Signer); 4] = [
        (RSA, None, &keyring.rsa),
        (EC, Some("staff"), &keyring.p256),
        (ED, Some("staff"), &keyring.ed),
        (SECRET, Some(RSA), &Signer::secret(keyring::SHARED, Algorithm::HS256)),
    ];
    let options = |(name, namespace, signer): &(&str, Option<&str>, &Signer)| {
        let keys = if *name == SECRET { Keys::secret(keyring::SHARED).unwrap() } else { jwks(&[*signer]) };
        let mut options = issuer(name, keys);
        options.namespace = namespace.map(str::to_owned);
        options
    };
    let tokens = Tokens::new(issuers.iter().map(options).collect()).unwrap();
    let identifier = |tokens: &Tokens, name: &str, signer: &Signer, subject: &str| {
        let claims = Json::claims(name).with("sub", &quoted(subject));
        verify(tokens, &signer.token(&claims)).map(|claims| claims.identifier.clone())
    };
    let of =
        |(name, _, signer): &(&str, Option<&str>, &Signer)| identifier(&tokens, name, signer, "alice").unwrap();
    let [rsa, ec, ed, secret] = issuers.each_ref().map(of);
    assert_eq!((&*rsa, &*ec), (&*format!("{RSA}|alice"), "staff|alice"));
    assert_eq!((&rsa, &ec), (&secret, &ed), "issuers with one namespace share identities");
    // The content of a subject does not lead into another namespace.
    let forged = identifier(&tokens, EC, &keyring.p256, &rsa).unwrap();
    assert_eq!(&*forged, format!("staff|{RSA}|alice"));
    // There is room for a subject behind the namespace, and no more than that.
    let longest = IDENTIFIER_BYTES_MAX - "staff|".len();
    assert_eq!(identifier(&tokens, ED, &keyring.ed, &"x".repeat(longest)).unwrap().len(), IDENTIFIER_BYTES_MAX);
    identifier(&tokens, ED, &keyring.ed, &"x".repeat(longest + 1)).unwrap_err();

    // A single issuer has a namespace only if it is configured.
    for (namespace, expected) in [(None, "alice"), (Some("staff"), "staff|alice")] {
        let tokens = Tokens::new(vec![options(&(ED, namespace, &keyring.ed))]).unwrap();
        assert_eq!(&*identifier(&tokens, ED, &keyring.ed, "alice").unwrap(), expected);
    }
}

#[test]
fn irrelevant_claims_may_have_any_value() {
    let (tokens, signer) = (tokens(), &Keyring::get().p256);
    let claims = Json::claims(EC);
    for (header, claims) in [
        (signer.header().with("typ", "\"at+jwt\""), claims.clone()),
        (signer.header().with("typ", "null"), claims.clone()),
        (signer.header().with("jku", "\"https://evil.example/\"").with("x5u", "7"), claims.clone()),
        (signer.header().with("b64", "true"), claims.clone()),
        (signer.header(), claims.clone().with("aud", "[\"other\",\"api.second\"]")),
        (signer.header(), claims.clone().with("scope", "{\"a\":[1,{\"a\":1,\"a\":2}]}")),
        (signer.header(), claims.clone().with("nbf", &(NOW_SECONDS + LEEWAY_SECONDS).to_string())),
        (signer.header(), claims.clone().with("iat", &(NOW_SECONDS + LEEWAY_SECONDS).to_string())),
        (signer.header(), claims.clone().with("exp", &(NOW_SECONDS - LEEWAY_SECONDS + 1).to_string())),
        (signer.header(), claims.clone().with("exp", "253402300799")),
        (signer.header(), claims.clone().with("sub", &quoted(&"x".repeat(IDENTIFIER_BYTES_MAX - EC.len() - 1)))),
    ] {
        let token = signer.token_with(&header, &claims);
        verify(&tokens, &token).unwrap_or_else(|error| panic!("{header} {claims}: {error}"));
    }
}

#[test]
fn verified_token_is_cached_until_it_expires() {
    let (tokens, signer) = (tokens(), &Keyring::get().p256);
    let token = signer.token(&Json::claims(EC));
    assert_eq!(tokens.known(&token, now()), None, "it was not verified yet");
    let claims = verify(&tokens, &token).unwrap();
    assert!(Arc::ptr_eq(&tokens.known(&token, now()).unwrap(), &claims));

    let end = NOW_SECONDS + 600 + LEEWAY_SECONDS;
    assert!(tokens.known(&token, at(end - 1)).is_some());
    assert!(tokens.known(&token, at(end)).is_none());
    assert_eq!(verify_at(&tokens, &token, at(end)).unwrap_err().kind(), TokenErrorKind::Expired);
    assert!(verify_at(&tokens, &token, at(end - 1)).is_ok());

    // A rejected token is not cached, and neither is any variant of an accepted one.
    let refused = Keyring::get().other_p256.token(&Json::claims(EC));
    verify(&tokens, &refused).unwrap_err();
    assert_eq!(tokens.known(&refused, now()), None);
    assert_eq!(tokens.known(&format!("{token}="), now()), None);
    assert_eq!(tokens.known(&"x".repeat(100_000), now()), None);
}

#[test]
fn token_without_a_key_name_is_tried_with_matching_keys() {
    let keyring = Keyring::get();
    let tokens = tokens();
    let nameless =
        |signer: &Signer, issuer: &str| signer.token_with(&signer.header().without("kid"), &Json::claims(issuer));
    verify(&tokens, &nameless(&keyring.p384, EC)).unwrap();

    let many = |count: usize| {
        let mut keys = vec![keyring.other_rsa.jwk(); count - 1];
        keys.push(keyring.rsa.jwk());
        let keys = Keys::jwks(&keyring::jwks_of(keys)).unwrap();
        Tokens::new(vec![issuer(RSA, keys)]).unwrap()
    };
    verify(&many(4), &nameless(&keyring.rsa, RSA)).unwrap();
    let error = verify(&many(5), &nameless(&keyring.rsa, RSA)).unwrap_err();
    assert_eq!(error.kind(), TokenErrorKind::UnknownKey);
}
