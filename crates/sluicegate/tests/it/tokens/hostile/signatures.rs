//! Signatures that are almost right.

use super::super::keyring::{Json, Keyring, Signer, encoded, quoted};
use super::super::{EC, ED, NAMELESS, PEM, RSA, SECRET};
use super::{Case, TokenErrorKind as Kind, case};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = of_others();
    cases.extend(of_another_token());
    cases.extend(elliptic());
    cases.extend(edwards());
    cases.extend(rsa_and_secrets());
    cases
}

fn split(token: &str) -> (&str, Vec<u8>) {
    let (message, signature) = token.rsplit_once('.').unwrap();
    (message, URL_SAFE_NO_PAD.decode(signature).unwrap())
}

fn joined(message: &str, signature: &[u8]) -> String {
    format!("{message}.{}", encoded(signature))
}

fn of_others() -> Vec<Case> {
    let keyring = Keyring::get();
    let stranger =
        Signer::secret(b"somebody else's secret, and long enough for every hash of them.", Algorithm::HS256);
    vec![
        case("another RSA key", Kind::Signature, keyring.other_rsa.token(&Json::claims(RSA))),
        case("another RSA key, PEM", Kind::Signature, keyring.other_rsa.token(&Json::claims(PEM))),
        case("another RSA key, nameless", Kind::Signature, keyring.other_rsa.token(&Json::claims(NAMELESS))),
        case("another EC key", Kind::Signature, keyring.other_p256.token(&Json::claims(EC))),
        case("another Ed key", Kind::Signature, keyring.other_ed.token(&Json::claims(ED))),
        case("another secret", Kind::Signature, stranger.token(&Json::claims(SECRET))),
        case("no secret", Kind::Signature, Signer::secret(b"", Algorithm::HS256).token(&Json::claims(SECRET))),
    ]
}

/// A valid signature of the right key, over another message.
fn of_another_token() -> Vec<Case> {
    let keyring = Keyring::get();
    let shared = Signer::secret(super::super::keyring::SHARED, Algorithm::HS256);
    let signers = [(&keyring.rsa, RSA), (&keyring.p256, EC), (&keyring.ed, ED), (&shared, SECRET)];
    let mut cases = Vec::new();
    for (signer, issuer) in signers {
        let other = signer.token(&Json::claims(issuer));
        let (_, signature) = split(&other);
        let wanted = signer.token(&Json::claims(issuer).with("sub", "\"root\""));
        let (message, _) = split(&wanted);
        cases.push(case(
            format!("signature of another token at {issuer}"),
            Kind::Signature,
            joined(message, &signature),
        ));
        let (message, signature) = split(&wanted);
        for (name, changed) in [
            ("cut", signature[..signature.len() - 1].to_vec()),
            ("with a byte more", [&signature[..], &[0]].concat()),
            ("with a byte before", [&[0], &signature[..]].concat()),
            ("of zeros", vec![0; signature.len()]),
            ("of ones", vec![0xff; signature.len()]),
            ("reversed", signature.iter().rev().copied().collect()),
            ("twice", signature.repeat(2)),
        ] {
            cases.push(case(format!("signature {name} at {issuer}"), Kind::Signature, joined(message, &changed)));
        }
    }
    cases
}

/// Zeros and the order of the curve instead of numbers between them, and the other encoding.
fn elliptic() -> Vec<Case> {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
        0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let token = Keyring::get().p256.token(&Json::claims(EC));
    let (message, signature) = split(&token);
    let (r, s) = signature.split_at(32);
    let zero = [0; 32];
    let mut one = zero;
    one[31] = 1;
    [
        ("r and s zero", [zero, zero].concat()),
        ("r zero", [&zero, s].concat()),
        ("s zero", [r, &zero].concat()),
        ("r and s the order", [ORDER, ORDER].concat()),
        ("r the order", [&ORDER, s].concat()),
        ("s the order", [r, &ORDER].concat()),
        ("r and s one", [one, one].concat()),
        ("r and s swapped", [s, r].concat()),
        ("in DER", der(r, s)),
        ("zeros in DER", der(&zero, &zero)),
        ("for P-384 in length", [&[0; 16][..], r, &[0; 16], s].concat()),
    ]
    .into_iter()
    .map(|(name, signature)| case(format!("ES256 with {name}"), Kind::Signature, joined(message, &signature)))
    .collect()
}

/// Two numbers in ASN.1.
fn der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(bytes.len() - 1);
        let bytes = &bytes[zeros..];
        let sign = if bytes[0] & 0x80 != 0 { &[0][..] } else { &[] };
        [&[2, u8::try_from(sign.len() + bytes.len()).unwrap()], sign, bytes].concat()
    };
    let numbers = [number(r), number(s)].concat();
    [&[0x30, u8::try_from(numbers.len()).unwrap()][..], &numbers].concat()
}

/// S plus the order of the group is the same number to a verifier that does not check the range.
fn edwards() -> Vec<Case> {
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let signer = &Keyring::get().ed;
    let token = signer.token(&Json::claims(ED));
    let (message, mut signature) = split(&token);
    let mut carry = 0;
    for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        (*byte, carry) = (u8::try_from(sum & 0xff).unwrap(), sum >> 8);
    }
    let mut neutral = vec![0; 64];
    neutral[0] = 1;
    vec![
        case("EdDSA with S beyond the order", Kind::Signature, joined(message, &signature)),
        case("EdDSA with the neutral point", Kind::Signature, joined(message, &neutral)),
    ]
}

fn rsa_and_secrets() -> Vec<Case> {
    let signer = &Keyring::get().rsa;
    let shared = super::super::keyring::SHARED;
    let token = signer.token(&Json::claims(RSA));
    let (message, signature) = split(&token);
    let mut one = vec![0; signature.len()];
    one[signature.len() - 1] = 1;
    let hs = |said: Algorithm, done: Algorithm| {
        let header = Json::default().with("alg", &quoted(&format!("{said:?}")));
        let message = format!("{}.{}", encoded(header.to_string()), encoded(Json::claims(SECRET).to_string()));
        format!("{message}.{}", Signer::secret(shared, done).signature(&message, done))
    };
    let secret = Signer::secret(shared, Algorithm::HS256).token(&Json::claims(SECRET));
    let (secret_message, hash) = split(&secret);
    vec![
        case("RSA with the number one", Kind::Signature, joined(message, &one)),
        case("RSA with the key's own number", Kind::Signature, joined(message, &signer.public_raw)),
        case("says HS512, is HS256", Kind::Signature, hs(Algorithm::HS512, Algorithm::HS256)),
        case("says HS256, is HS512", Kind::Signature, hs(Algorithm::HS256, Algorithm::HS512)),
        case("the first half of a hash", Kind::Signature, joined(secret_message, &hash[..16])),
        case("the first byte of a hash", Kind::Signature, joined(secret_message, &hash[..1])),
    ]
}
