//! A node's view of its cluster: the lines of `CLUSTER NODES`.

use std::ops::RangeInclusive;

/// One node, as seen by another node or by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeView {
    pub(super) id: String,
    pub(super) port: u16,
    flags: Vec<String>,
    /// The primary that a replica follows.
    pub(super) primary: Option<String>,
    /// If two nodes claim the same slot, the higher epoch wins.
    pub(super) epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl NodeView {
    /// Parses a whole report and skips lines that do not describe a node.
    pub(super) fn read(report: &str) -> Vec<Self> {
        report.lines().filter_map(Self::read_line).collect()
    }

    pub(super) fn is_myself(&self) -> bool {
        self.has("myself")
    }

    pub(super) fn is_primary(&self) -> bool {
        self.has("master")
    }

    /// Whether the node has joined the cluster and is seen as alive.
    pub(super) fn is_settled(&self) -> bool {
        !self.has("handshake") && !self.has("noaddr") && !self.has("fail") && !self.has("fail?")
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u16> {
        self.slots.iter().cloned().flatten()
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// `<id> <ip:port@bus[,name]> <flags> <primary> <ping> <pong> <epoch> <link> <slot> <slot> …`
    fn read_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, address, flags, primary, _, _, epoch, _, slots @ ..] = &words[..] else {
            return None;
        };
        let (host_and_port, _) = address.split_once('@')?;
        let (_, port) = host_and_port.rsplit_once(':')?;
        Some(Self {
            id: (*id).to_owned(),
            port: port.parse().ok()?,
            flags: flags.split(',').map(str::to_owned).collect(),
            primary: (*primary != "-").then(|| (*primary).to_owned()),
            epoch: epoch.parse().ok()?,
            slots: slots.iter().filter_map(|range| read_range(range)).collect(),
        })
    }
}

/// `7` or `0-5460`. A migrating slot, `[7->-…]`, is already listed for its owner by another word of the same line.
fn read_range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_line_by_line() {
        let views = NodeView::read(
            "aa 127.0.0.1:7001@7101,host myself,master - 0 0 3 connected 0-2 9 [5->-bb]\n\
             bb 127.0.0.1:7002@7102 slave,fail? aa 0 0 1 disconnected\n\
             not a node\n",
        );
        let [primary, replica] = &views[..] else { panic!("{views:?}") };
        assert!(primary.is_myself() && primary.is_primary() && primary.is_settled());
        assert_eq!((primary.port, primary.epoch), (7001, 3));
        assert_eq!(primary.slots().collect::<Vec<_>>(), [0, 1, 2, 9]);
        assert!(primary.owns(9) && !primary.owns(5));
        assert!(!replica.is_primary() && !replica.is_settled());
        assert_eq!(replica.primary.as_deref(), Some("aa"));
    }
}
