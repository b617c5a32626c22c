//! Any change of a valid token makes it invalid, and no text makes the reader panic.

use super::keyring::{self, Json, Keyring, Signer};
use super::*;
use jsonwebtoken::Algorithm;
use proptest::prelude::*;
use sluicegate::identify::token::{try_header, try_payload};

/// A valid token of each issuer.
fn good() -> Vec<String> {
    let keyring = Keyring::get();
    let shared = Signer::secret(keyring::SHARED, Algorithm::HS256);
    let signers =
        [(&keyring.rsa, RSA), (&keyring.p256, EC), (&keyring.p384, EC), (&keyring.ed, ED), (&shared, SECRET)];
    signers.iter().map(|(signer, issuer)| signer.token(&Json::claims(issuer))).collect()
}

#[test]
fn changing_any_bit_invalidates_a_token() {
    let tokens = tokens();
    let mut tried = 0;
    for token in good() {
        verify(&tokens, &token).unwrap();
        for position in 0..token.len() {
            for bit in 0..7 {
                let mut bytes = token.clone().into_bytes();
                bytes[position] ^= 1 << bit;
                let changed = String::from_utf8(bytes).unwrap();
                assert!(verify(&tokens, &changed).is_err(), "bit {bit} of byte {position}: {changed}");
                assert!(tokens.known(&changed, now()).is_none());
                tried += 1;
            }
        }
    }
    assert!(tried > 5_000, "{tried}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn replacing_removing_or_doubling_a_part_invalidates_a_token(
        which in 0_usize..5,
        from in 0_usize..400,
        length in 0_usize..40,
        text in r"[A-Za-z0-9_\-.]{0,40}",
    ) {
        let (tokens, token) = (tokens(), good().swap_remove(which));
        let from = from.min(token.len());
        let to = (from + length).min(token.len());
        let changed = format!("{}{text}{}", &token[..from], &token[to..]);
        prop_assume!(changed != token);
        prop_assert!(verify(&tokens, &changed).is_err(), "{}", changed);
    }

    #[test]
    fn arbitrary_text_never_panics_the_reader(token in any::<String>()) {
        prop_assert!(verify(&tokens(), &token).is_err());
    }

    #[test]
    fn arbitrary_json_never_panics_the_reader(
        name in "(alg|kid|crit|b64|iss|aud|sub|exp|nbf|iat|tier|org)",
        value in r#"(null|true|-?[0-9]{1,25}(\.[0-9])?|"[ -~]{0,9}"|\["a"(,1)?\]|\{("a":1)?\}|.{0,5})"#,
        cut in 0_usize..200,
    ) {
        let tokens = tokens();
        for json in [Keyring::get().ed.header(), Json::claims(ED)] {
            let json = json.with(&name, &value).to_string().into_bytes();
            for bytes in [&json[..], &json[..cut.min(json.len())]] {
                let _ = try_header(bytes);
                let _ = try_payload(&tokens, bytes, now());
            }
        }
    }
}
