//! The addresses from which keys may be fetched. The result of a name lookup is checked before connecting, and
//! exactly the checked address is used. Cloud providers serve the credentials of machines at link-local addresses. A
//! foreign name that resolves to this machine is an error or an attack.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

/// True if keys may be fetched from this address. `is_local` means that the URL itself names this machine.
pub(super) fn is_fetched_from(address: IpAddr, is_local: bool) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_unusable = address.is_unspecified() || address.is_multicast() || is_link_local;
    !is_unusable && address.is_loopback() == is_local
}

/// Resolves names, and removes addresses that keys may not be fetched from.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    is_local: bool,
}

impl Resolver {
    /// For a URL that names this machine, or another one.
    pub(super) fn new(is_local: bool) -> Self {
        Self { is_local }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let is_local = self.is_local;
        Box::pin(async move {
            // The connector fills in the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let fitting: Vec<_> = found.filter(|address| is_fetched_from(address.ip(), is_local)).collect();
            if fitting.is_empty() {
                return Err(io::Error::other("the name leads to no address that keys are fetched from"));
            }
            Ok(fitting.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_fit_the_url_are_used() {
        for (address, is_local, expected) in [
            ("192.0.2.1", false, true),
            ("10.0.0.1", false, true),
            ("2001:db8::1", false, true),
            ("fd00::1", false, true),
            ("127.0.0.1", true, true),
            ("::1", true, true),
            ("127.0.0.1", false, false),
            ("::1", false, false),
            ("::ffff:127.0.0.1", false, false),
            ("10.0.0.1", true, false),
            ("169.254.169.254", false, false),
            ("::ffff:169.254.169.254", false, false),
            ("fe80::1", false, false),
            ("0.0.0.0", false, false),
            ("0.0.0.0", true, false),
            ("::", true, false),
            ("255.255.255.255", false, false),
            ("224.0.0.1", false, false),
            ("ff02::1", false, false),
        ] {
            assert_eq!(
                is_fetched_from(address.parse().expect(address), is_local),
                expected,
                "{address} {is_local}"
            );
        }
    }

    #[tokio::test]
    async fn names_that_resolve_to_this_machine_need_a_local_url() {
        let resolve = |is_local| Resolver::new(is_local).call("localhost".parse().expect("a name"));
        assert!(resolve(true).await.expect("this machine").all(|address| address.ip().is_loopback()));
        let error = resolve(false).await.expect_err("not this machine").to_string();
        assert_eq!(error, "the name leads to no address that keys are fetched from");
    }
}
