//! The label of a client: its tenant and identity, for display.

use crate::identity::Identity;
use std::net::IpAddr;

/// The maximum number of characters of a name that a label stores.
pub const LABEL_CHARACTERS_MAX: usize = 64;

/// The maximum number of bytes of these characters.
const BYTES: usize = LABEL_CHARACTERS_MAX * 4;

/// A tenant and an identity. The texts are stored inline, so setting a label does not allocate.
#[derive(Clone, Debug, Default)]
pub(super) struct Label {
    tenant: LabelText,
    /// The name, if the identity has one.
    name: LabelText,
    /// Whether the name is unverified.
    is_claimed: bool,
    /// The address, if the identity is one.
    address: Option<IpAddr>,
}

#[derive(Clone, Debug)]
struct LabelText {
    bytes: [u8; BYTES],
    length: usize,
}

impl Label {
    pub(super) fn set(&mut self, tenant: &str, identity: Identity<'_>) {
        self.tenant.set(tenant);
        self.is_claimed = matches!(identity, Identity::Claimed(_));
        self.address = match identity {
            Identity::Named(name) | Identity::Claimed(name) => {
                self.name.set(name);
                None
            }
            Identity::Address(address) => Some(address),
        };
    }

    pub(super) fn tenant(&self) -> &str {
        self.tenant.as_str()
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        match self.address {
            Some(address) => Identity::Address(address),
            None if self.is_claimed => Identity::Claimed(self.name.as_str()),
            None => Identity::Named(self.name.as_str()),
        }
    }
}

impl Default for LabelText {
    fn default() -> Self {
        Self { bytes: [0; BYTES], length: 0 }
    }
}

impl LabelText {
    fn set(&mut self, text: &str) {
        let end = text.char_indices().nth(LABEL_CHARACTERS_MAX).map_or(text.len(), |(end, _)| end);
        self.bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        self.length = end;
    }

    fn as_str(&self) -> &str {
        // `set` truncates at a character boundary.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_truncated_at_characters_and_addresses_are_kept() {
        let mut label = Label::default();
        for (text, shown) in
            [("a", "a".to_owned()), (&"é".repeat(70), "é".repeat(64)), (&"🚦".repeat(65), "🚦".repeat(64))]
        {
            label.set(text, Identity::Named(text));
            assert_eq!((label.tenant(), label.identity()), (&*shown, Identity::Named(&shown)));
        }
        let address = Identity::Address([192, 0, 2, 7].into());
        label.set("t", address);
        assert_eq!((label.tenant(), label.identity()), ("t", address));
        label.set("t", Identity::Claimed("192.0.2.7"));
        assert_eq!(label.identity(), Identity::Claimed("192.0.2.7"));
        label.set("t", Identity::Named("192.0.2.7"));
        assert_eq!(label.identity(), Identity::Named("192.0.2.7"));
    }
}
