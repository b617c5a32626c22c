//! The peers whose forwarding fields are trusted, and the field that they write.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::normalised;

/// The most networks in one list: several times the number that the largest content networks publish.
pub const NETWORKS_MAX: usize = 1_024;

/// Bytes of a value that its error repeats.
const ECHO_BYTES_MAX: usize = 64;

/// The forwarding field of trusted proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustedHeader {
    /// `X-Forwarded-For` or `Forwarded`, whichever is present. If both are present, they must agree.
    #[default]
    Either,
    /// `X-Forwarded-For` only.
    XForwardedFor,
    /// `Forwarded` (RFC 7239) only.
    Forwarded,
}

/// The networks of trusted proxies. The default is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Ascending; no two touch each other.
    networks: Vec<IpNet>,
    header: TrustedHeader,
}

impl TrustedProxies {
    /// The proxies in these networks: `10.0.0.0/8`, `2001:db8::/32`, or single addresses.
    ///
    /// # Errors
    /// If one of them is not a network, or there are more than [`NETWORKS_MAX`].
    ///
    /// ```
    /// use sluicegate::identify::address::TrustedProxies;
    ///
    /// let proxies = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::1"])?;
    /// assert!(proxies.contains("10.1.2.3".parse()?));
    /// assert!(!proxies.contains("2001:db8::2".parse()?));
    ///
    /// let error = TrustedProxies::parse(["10.0.0.0/33"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`10.0.0.0/33` is no network: write an address with a prefix of at most 32 bits, such as 10.0.0.0/8",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidNetwork> {
        let mut networks = Vec::new();
        for value in values {
            if networks.len() == NETWORKS_MAX {
                return Err(InvalidNetwork::TooMany);
            }
            networks.push(network(value)?);
        }
        Ok(Self { networks: IpNet::aggregate(&networks), header: TrustedHeader::default() })
    }

    /// The same proxies, with this forwarding field.
    #[must_use]
    pub fn header(self, header: TrustedHeader) -> Self {
        Self { header, ..self }
    }

    /// The forwarding field of the proxies.
    #[must_use]
    pub const fn trusted_header(&self) -> TrustedHeader {
        self.header
    }

    /// True if no peer is trusted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// True if this is the address of a trusted proxy.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = normalised(address);
        // Only the last network that begins at or before the address can contain it.
        let after = self.networks.partition_point(|network| network.network() <= address);
        after.checked_sub(1).and_then(|last| self.networks.get(last)).is_some_and(|last| last.contains(&address))
    }
}

/// An invalid list of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidNetwork {
    /// A value is neither an address nor a network.
    Malformed {
        /// The value, or its beginning.
        value: String,
    },
    /// A value has more bits in its prefix than its address has.
    TooLong {
        /// The value, or its beginning.
        value: String,
        /// The most bits of its prefix.
        max: u8,
    },
    /// There are more than [`NETWORKS_MAX`].
    TooMany,
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { value } => write!(
                formatter,
                "`{value}` is no network: write an address such as 192.0.2.1 or 2001:db8::1, or a network such as \
                 10.0.0.0/8 or 2001:db8::/32"
            ),
            Self::TooLong { value, max } => {
                let example = if *max == 32 { "10.0.0.0/8" } else { "2001:db8::/32" };
                write!(
                    formatter,
                    "`{value}` is no network: write an address with a prefix of at most {max} bits, such as {example}"
                )
            }
            Self::TooMany => write!(
                formatter,
                "more than {NETWORKS_MAX} networks: merge neighbours into larger ones, or put one proxy in front"
            ),
        }
    }
}

impl std::error::Error for InvalidNetwork {}

fn network(value: &str) -> Result<IpNet, InvalidNetwork> {
    if let Ok(address) = value.parse::<IpAddr>() {
        return Ok(normalised(address).into());
    }
    value.parse::<IpNet>().map(normalised_network).map_err(|_| invalid(value))
}

/// A part of the IPv4 addresses is the same part in either notation.
fn normalised_network(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let first = normalised(network.network());
    match (network, first) {
        (IpNet::V6(v6), IpAddr::V4(first)) if v6.prefix_len() >= MAPPED_BITS => {
            // At most 128 - 96 bits, which is what IPv4 has.
            Ipv4Net::new(first, v6.prefix_len() - MAPPED_BITS).map_or(network, IpNet::V4)
        }
        _ => network.trunc(),
    }
}

fn invalid(value: &str) -> InvalidNetwork {
    let shown = value.chars().filter(|character| !character.is_control()).collect::<String>();
    let shown = shown[..shown.floor_char_boundary(ECHO_BYTES_MAX)].to_owned();
    let parts = value.split_once('/').map(|(address, bits)| (address.parse::<IpAddr>(), bits.parse::<u32>()));
    match parts {
        Some((Ok(address), Ok(_))) => {
            InvalidNetwork::TooLong { value: shown, max: if address.is_ipv4() { 32 } else { 128 } }
        }
        _ => InvalidNetwork::Malformed { value: shown },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(values: &[&str]) -> TrustedProxies {
        TrustedProxies::parse(values.iter().copied()).expect("valid")
    }

    fn contains(proxies: &TrustedProxies, address: &str) -> bool {
        proxies.contains(address.parse().expect("an address"))
    }

    #[test]
    fn no_peer_is_trusted_by_default() {
        assert!(TrustedProxies::default().is_empty());
        for address in ["127.0.0.1", "::1", "10.0.0.1", "0.0.0.0", "::"] {
            assert!(!contains(&TrustedProxies::default(), address), "{address}");
        }
    }

    #[test]
    fn a_network_holds_its_first_and_last_address_and_no_neighbour() {
        let proxies = proxies(&["10.0.0.0/9", "192.0.2.4", "2001:db8::/32", "10.0.0.0/24", "::1"]);
        for inside in ["10.0.0.0", "10.127.255.255", "192.0.2.4", "2001:db8::", "2001:db8:ffff::ffff", "::1"] {
            assert!(contains(&proxies, inside), "{inside}");
        }
        for outside in
            ["9.255.255.255", "10.128.0.0", "192.0.2.3", "192.0.2.5", "2001:db9::", "2001:db7::1", "::2"]
        {
            assert!(!contains(&proxies, outside), "{outside}");
        }
    }

    #[test]
    fn however_an_ipv4_address_is_written_it_is_in_its_network() {
        for network in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "64:ff9b::10.0.0.0/104"] {
            let proxies = proxies(&[network]);
            for inside in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"] {
                assert!(contains(&proxies, inside), "{inside} in {network}");
            }
            assert!(!contains(&proxies, "11.0.0.0"), "{network}");
        }
        assert!(contains(&proxies(&["::ffff:192.0.2.1"]), "192.0.2.1"));
    }

    #[test]
    fn everything_can_be_trusted_one_family_at_a_time() {
        let proxies = proxies(&["0.0.0.0/0"]);
        assert!(contains(&proxies, "0.0.0.0") && contains(&proxies, "255.255.255.255"));
        assert!(!contains(&proxies, "2001:db8::1"));
        let proxies = self::proxies(&["::/0"]);
        assert!(contains(&proxies, "2001:db8::1") && !contains(&proxies, "192.0.2.1"));
    }

    #[test]
    fn invalid_networks_are_rejected_with_the_remedy() {
        for value in ["", "localhost", "10.0.0", "10.0.0.0/", "10.0.0.0/a", "10.0.0.0/8/8", " 10.0.0.0/8", "*"] {
            let error = TrustedProxies::parse(["192.0.2.1", value]).expect_err(value).to_string();
            assert_eq!(
                error,
                format!(
                    "`{value}` is no network: write an address such as 192.0.2.1 or 2001:db8::1, or a network such \
                     as 10.0.0.0/8 or 2001:db8::/32"
                )
            );
        }
        let error = TrustedProxies::parse(["2001:db8::/129"]).expect_err("too long").to_string();
        assert!(error.contains("at most 128 bits, such as 2001:db8::/32"), "{error}");
        let error = TrustedProxies::parse(["10.0.0.0/999"]).expect_err("too long").to_string();
        assert!(error.contains("`10.0.0.0/999` is no network") && error.contains("at most 32 bits"), "{error}");
    }

    #[test]
    fn an_error_repeats_little_and_nothing_that_moves_a_cursor() {
        let long = format!("\u{1b}[31m{}", "ü".repeat(10_000));
        let error = TrustedProxies::parse([long.as_str()]).expect_err("no network").to_string();
        assert!(error.len() < 250 && error.starts_with("`[31müü") && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn a_list_is_bounded() {
        let addresses: Vec<String> = (0..=NETWORKS_MAX).map(|last| format!("2001:db8::{last:x}")).collect();
        let parse = |count: usize| TrustedProxies::parse(addresses[..count].iter().map(String::as_str));
        assert!(parse(NETWORKS_MAX).is_ok());
        let error = parse(NETWORKS_MAX + 1).expect_err("too many").to_string();
        assert!(error.starts_with("more than 1024 networks: merge"), "{error}");
    }
}
