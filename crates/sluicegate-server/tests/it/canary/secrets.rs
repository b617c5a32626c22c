//! Secrets that the test can find in every encoded form.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD as STANDARD, BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The length of the random part of a secret, in bytes of text. The test searches for this part, so it also finds half
/// a secret.
const RANDOM_BYTES: usize = 24;

/// One secret.
#[derive(Clone, Debug)]
pub(super) struct Canary {
    pub(super) name: &'static str,
    /// The planted text.
    pub(super) text: String,
    forms: Vec<(&'static str, String)>,
}

impl Canary {
    /// A unique secret. It is valid in a header field, a URL and a file.
    pub(super) fn new(name: &'static str) -> Self {
        let random: String = (0..RANDOM_BYTES).map(|_| fastrand::alphanumeric()).collect();
        Self::of(name, format!("{name}~{random}"), &random)
    }

    /// A secret with the given `text`, which its `part` identifies.
    pub(super) fn of(name: &'static str, text: String, part: &str) -> Self {
        let hex = |upper: bool| {
            part.bytes().fold(String::new(), |mut digits, byte| {
                let written = if upper { write!(digits, "{byte:02X}") } else { write!(digits, "{byte:02x}") };
                written.expect("a text takes everything");
                digits
            })
        };
        let every_byte = part.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut forms = vec![
            ("plain", part.to_owned()),
            ("percent-encoded", utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()),
            ("percent-encoded", every_byte),
            ("hexadecimal", hex(false)),
            ("hexadecimal", hex(true)),
        ];
        forms.extend((0..3).map(|offset| ("base64", base64_within(part.as_bytes(), offset))));
        Self { name, text, forms }
    }

    /// The encoding in which `text` contains it, if any.
    pub(super) fn found_in(&self, text: &str) -> Option<&'static str> {
        self.place_in(text).map(|(form, _)| form)
    }

    /// The same, with the text before it.
    pub(super) fn place_in<'t>(&self, text: &'t str) -> Option<(&'static str, &'t str)> {
        self.forms.iter().find_map(|(name, form)| Some((*name, &text[..text.find(form)?])))
    }
}

/// The base64 characters of `bytes` at `offset` bytes into a group of three, without the characters that depend on
/// adjacent bytes. Both alphabets have the same characters for letters and digits of ASCII.
fn base64_within(bytes: &[u8], offset: usize) -> String {
    let whole = &bytes[(3 - offset) % 3..];
    STANDARD.encode(&whole[..whole.len() / 3 * 3])
}

#[test]
fn a_secret_is_found_in_every_form_and_nowhere_else() {
    let canary = Canary::new("test");
    let (text, random) = (canary.text.clone(), canary.text.split_once('~').expect("a name").1.to_owned());
    let bytes = |text: &str, form: &dyn Fn(u8) -> String| text.bytes().map(form).collect::<String>();
    for shown in [
        format!("password={text}"),
        format!("…{random}…"),
        utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string(),
        bytes(&text, &|byte| format!("%{byte:02X}")),
        bytes(&text, &|byte| format!("{byte:02x}")),
        bytes(&text, &|byte| format!("{byte:02X}")),
    ] {
        assert!(canary.found_in(&shown).is_some(), "{shown}");
    }
    for user in ["", "u", "us", "use"] {
        let encoded = URL_SAFE_NO_PAD.encode(format!("{user}:{text}!"));
        assert_eq!(canary.found_in(&encoded), Some("base64"), "{user}: {encoded}");
    }
    assert_eq!(canary.found_in("password=… authorization: Bearer secret"), None);
    assert_eq!(Canary::new("test").found_in(&text), None);
}
