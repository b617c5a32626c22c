//! What the members of JSON logs are called, and `--fields`, which says it.

use std::str::FromStr;

/// What a line is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Time,
    Ip,
    Method,
    Path,
    /// A whole request line, where method and path have no fields of their own.
    Request,
    Identity,
    Tenant,
    Tier,
}

/// All slots with their names, and where they are looked for unless somebody says otherwise, best first.
pub(crate) const SLOTS: [(&str, Slot, &[&str]); 8] = [
    (
        "time",
        Slot::Time,
        &["time", "ts", "timestamp", "@timestamp", "start_time", "time_iso8601", "time_local", "msec"],
    ),
    (
        "ip",
        Slot::Ip,
        &[
            "ip",
            "client_ip",
            "client.ip",
            "remote_addr",
            "remote_ip",
            "request.client_ip",
            "request.remote_ip",
            "x_forwarded_for",
        ],
    ),
    ("method", Slot::Method, &["method", "request_method", "request.method", "http.request.method"]),
    ("path", Slot::Path, &["path", "uri", "request_uri", "url", "request.uri", "url.original", "url.path"]),
    ("request", Slot::Request, &["request", "request_line"]),
    ("identity", Slot::Identity, &[]),
    ("tenant", Slot::Tenant, &[]),
    ("tier", Slot::Tier, &[]),
];

/// The longest name of a field, and the most parts it may have: logs nest a few levels.
const NAME_BYTES_MAX: usize = 256;
const PARTS_MAX: usize = 8;

/// Names for some of the slots: `time=ts,ip=client.ip`. A dot leads into an object, unless the whole name is a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldMap {
    named: Vec<(Slot, Box<str>)>,
}

impl FieldMap {
    /// The same, with `identity` read from `name` unless that was said already.
    pub(crate) fn with_identity(mut self, name: &str) -> Self {
        if !self.named.iter().any(|(slot, _)| *slot == Slot::Identity) {
            self.named.push((Slot::Identity, name.into()));
        }
        self
    }

    /// True if the caller is known by name.
    pub(crate) fn names_identity(&self) -> bool {
        self.named.iter().any(|(slot, _)| *slot == Slot::Identity)
    }

    /// Where a slot is looked for, best first.
    pub(crate) fn names(&self, wanted: Slot) -> Vec<&str> {
        if let Some((_, name)) = self.named.iter().find(|(slot, _)| *slot == wanted) {
            return vec![name];
        }
        SLOTS.iter().find(|(_, slot, _)| *slot == wanted).map(|(_, _, names)| names.to_vec()).unwrap_or_default()
    }
}

impl FromStr for FieldMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut named: Vec<(Slot, Box<str>)> = Vec::new();
        for pair in text.split(',') {
            let (slot, name) = pair.split_once('=').ok_or_else(|| remedy(pair, "has no ="))?;
            let slot = SLOTS.iter().find(|(known, ..)| *known == slot.trim());
            let (_, slot, _) = slot.ok_or_else(|| remedy(pair, "does not begin with a known field"))?;
            if named.iter().any(|(known, _)| known == slot) {
                return Err(remedy(pair, "names a field a second time"));
            }
            let name = name.trim();
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.split('.').count() > PARTS_MAX {
                return Err(remedy(pair, "has a name that is empty, too long or too deep"));
            }
            named.push((*slot, name.into()));
        }
        Ok(Self { named })
    }
}

fn remedy(pair: &str, problem: &str) -> String {
    let known: Vec<&str> = SLOTS.iter().map(|(name, ..)| *name).collect();
    format!("{pair:?} {problem}; write for example time=ts,ip=client.ip, of {}", known.join(", "))
}
