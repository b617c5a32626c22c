//! Lists of addresses and networks: `trusted_proxies`, and `proxy_protocol` of a listener.

use sluicegate::identify::address::{NETWORKS_MAX, TrustedProxies};
use sluicegate::rules::file::field::{Custom, Form, Shape};
use sluicegate::rules::file::{Reader, ValueError};

/// A list of addresses and networks.
pub(super) const NETWORKS: Custom<TrustedProxies> = Custom {
    read: read_proxies,
    form: || Form::List {
        noun: "addresses and networks",
        item: Box::new(Form::Text(Shape::matching("network", "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"))),
        min: 0,
        max: Some(NETWORKS_MAX),
        is_unique: false,
    },
};

/// Reads the list.
fn read_proxies(reader: &Reader<'_>) -> Option<TrustedProxies> {
    let items = reader.list("write a list of networks, for example [10.0.0.0/8], or [] to trust none")?;
    if items.len() > NETWORKS_MAX {
        let remedy = format!("use at most {NETWORKS_MAX}");
        return reader.refuse(ValueError::new(format!("{} networks", items.len()), remedy));
    }
    let remedy = "write an address or a network, for example 10.0.0.0/8 or 2001:db8::/32";
    let network = |text: &str| match TrustedProxies::parse([text]) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(ValueError::new("not a network", remedy)),
    };
    let networks: Vec<Option<String>> = items.iter().map(|item| item.text_as(network)).collect();
    let networks: Vec<String> = networks.into_iter().collect::<Option<_>>()?;
    TrustedProxies::parse(networks.iter().map(String::as_str)).ok()
}
