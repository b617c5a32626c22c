//! Per-client tallies: requests, denied requests and peak usage, with their text and report sections.
//!
//! The table holds at most [`CLIENTS_MAX`] clients. When it is full, it evicts the clients with the fewest requests among those
//! without a denial. Clients with denials always stay. The report states the number of evicted clients.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use maud::{Markup, html};
use serde::Serialize;
use sluicegate::identity::DEFAULT_TENANT;
use smallvec::SmallVec;

use super::chart::{TextAnchor, axis_label, picture, rect, scaled, titled};
use super::report::{grouped, name};
use super::summary::Summary;
use super::tally::{RULES_DRAWN_MAX, ReplayTally, RequestCount};
use crate::cli::format::{percent, terminal_safe};

/// The most clients in the table, which then takes about 40 MB.
const CLIENTS_MAX: usize = 200_000;
/// The most rules for which a client's peak usage is kept.
const PEAKS_MAX: usize = 16;
/// The upper bounds of the classes of peak usage, in thousandths of the limit.
const PEAK_CLASSES: [u16; 10] = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000];
/// The most denied clients in the JSON summary and in the report.
pub(super) const DENIED_MAX: usize = 20;
/// The most clients in the text.
pub(super) const LISTED_MAX: usize = 10;

/// The row height and the positions of a picture of peak usage, in tenths.
const ROW: i64 = 200;
const LEFT: i64 = 1_100;
const WIDTH: i64 = 5_000;

/// A client of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoggedClient<'l> {
    Address(IpAddr),
    Named { tenant: &'l str, name: &'l str },
}

type IndexMap<K> = HashMap<K, u32, foldhash::fast::FixedState>;

/// All clients.
#[derive(Debug, Default)]
pub(super) struct ClientTable {
    by_address: IndexMap<IpAddr>,
    by_name: IndexMap<Box<str>>,
    tallies: Vec<ClientTally>,
    /// Indices of evicted tallies, for reuse.
    free: Vec<u32>,
    evicted: EvictedClients,
    /// Set when no client can be evicted any more.
    is_full: bool,
    /// A buffer for the name in a lookup.
    name: String,
}

/// The totals of evicted clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EvictedClients {
    /// The number of evictions. A client that returns can be evicted again.
    pub(super) clients: u64,
    /// The requests of these clients before their evictions.
    pub(super) count: RequestCount,
}

/// The tally of one client.
#[derive(Clone, Debug)]
pub(super) struct ClientTally {
    pub(super) name: Box<str>,
    pub(super) count: RequestCount,
    /// The peak usage of each rule's limits, in thousandths.
    peaks: SmallVec<[(u32, u16); 2]>,
    is_address: bool,
}

impl ClientTally {
    /// Records the usage of a rule's limits.
    #[inline]
    pub(super) fn record_usage(&mut self, rule: usize, permille: u16) {
        if let Some((_, most)) = self.peaks.iter_mut().find(|(index, _)| *index as usize == rule) {
            *most = permille.max(*most);
        } else if self.peaks.len() < PEAKS_MAX {
            self.peaks.push((rule as u32, permille));
        }
    }
}

impl ClientTable {
    /// The tally of a client; `None` if the table is full and does not hold the client.
    #[inline]
    pub(super) fn tally(&mut self, client: LoggedClient<'_>) -> Option<&mut ClientTally> {
        let index = match client {
            LoggedClient::Address(address) => self.by_address.get(&address),
            LoggedClient::Named { tenant: DEFAULT_TENANT, name } => self.by_name.get(name),
            LoggedClient::Named { tenant, name } => {
                self.name.clear();
                self.name.extend([tenant, "/", name]);
                self.by_name.get(&*self.name)
            }
        };
        match index.copied() {
            Some(index) => Some(&mut self.tallies[index as usize]),
            None => self.insert(client),
        }
    }

    /// Inserts a client that is not in the table. For a tenant other than the default, `self.name` holds the full name.
    #[cold]
    fn insert(&mut self, client: LoggedClient<'_>) -> Option<&mut ClientTally> {
        if self.tallies.len() - self.free.len() >= CLIENTS_MAX {
            self.evict();
        }
        if self.is_full {
            return None;
        }
        let (name, is_address): (Box<str>, bool) = match client {
            LoggedClient::Address(address) => (address.to_string().into(), true),
            LoggedClient::Named { tenant: DEFAULT_TENANT, name } => (name.into(), false),
            LoggedClient::Named { .. } => (self.name.as_str().into(), false),
        };
        // `CLIENTS_MAX` is far below 2³².
        let index = self.free.pop().unwrap_or(self.tallies.len() as u32);
        match client {
            LoggedClient::Address(address) => self.by_address.insert(address, index),
            LoggedClient::Named { .. } => self.by_name.insert(name.clone(), index),
        };
        let tally = ClientTally { name, count: RequestCount::default(), peaks: SmallVec::new(), is_address };
        match self.tallies.get_mut(index as usize) {
            Some(evicted) => *evicted = tally,
            None => self.tallies.push(tally),
        }
        self.tallies.get_mut(index as usize)
    }

    /// Evicts the half with fewer requests of the clients without a denial.
    fn evict(&mut self) {
        let mut allowed: Vec<u64> =
            self.tallies().filter(|tally| tally.count.denied == 0).map(|tally| tally.count.allowed).collect();
        if allowed.len() < CLIENTS_MAX / 8 {
            self.is_full = true;
            return;
        }
        let middle = allowed.len() / 2;
        let (_, median, _) = allowed.select_nth_unstable(middle);
        let (median, mut remaining) = (*median, middle);
        for (index, tally) in self.tallies.iter_mut().enumerate() {
            let is_evictable = tally.count.denied == 0 && tally.count.allowed <= median && tally.count.total() > 0;
            if is_evictable && remaining > 0 {
                remaining -= 1;
                self.evicted.clients += 1;
                self.evicted.count = self.evicted.count.and(tally.count);
                if tally.is_address {
                    tally.name.parse().ok().and_then(|address: IpAddr| self.by_address.remove(&address));
                } else {
                    self.by_name.remove(&tally.name);
                }
                tally.count = RequestCount::default();
                self.free.push(index as u32);
            }
        }
    }

    /// The tallies of all clients in the table.
    pub(super) fn tallies(&self) -> impl Iterator<Item = &ClientTally> {
        // The count of an evicted tally is zero.
        self.tallies.iter().filter(|tally| tally.count.total() > 0)
    }

    /// The clients with the most denied requests, in descending order; equal counts are in the order of their names.
    pub(super) fn most_denied(&self) -> Vec<DeniedClient> {
        let mut denied: Vec<&ClientTally> = self.tallies().filter(|tally| tally.count.denied > 0).collect();
        denied.sort_unstable_by(|a, b| b.count.denied.cmp(&a.count.denied).then_with(|| a.name.cmp(&b.name)));
        denied.truncate(DENIED_MAX);
        denied.into_iter().map(DeniedClient::new).collect()
    }

    /// The numbers of clients for the summary.
    pub(super) fn counts(&self) -> ClientCounts {
        ClientCounts {
            known: self.tallies().count() as u64,
            denied: self.tallies().filter(|tally| tally.count.denied > 0).count() as u64,
            others: self.evicted.clients,
            is_cut: self.is_full,
        }
    }

    /// The number of clients in each of the [`PEAK_CLASSES`] of a rule.
    fn peaks(&self, rule: usize) -> [u64; PEAK_CLASSES.len()] {
        let mut counts = [0; PEAK_CLASSES.len()];
        let peaks = self.tallies().flat_map(|tally| &tally.peaks);
        for (_, permille) in peaks.filter(|(index, _)| *index as usize == rule) {
            let class = PEAK_CLASSES.iter().position(|class| permille <= class).unwrap_or(PEAK_CLASSES.len() - 1);
            counts[class] += 1;
        }
        counts
    }
}

/// The numbers of clients.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientCounts {
    /// Clients in the table.
    pub(super) known: u64,
    /// Of these, clients with at least one denied request.
    pub(super) denied: u64,
    /// Evictions. An evicted client had no denied request until then.
    pub(super) others: u64,
    /// True if the table became full, so that some clients are missing.
    pub(super) is_cut: bool,
}

/// A client with denied requests.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeniedClient {
    identity: String,
    requests: u64,
    denied: u64,
}

impl DeniedClient {
    fn new(tally: &ClientTally) -> Self {
        Self { identity: tally.name.to_string(), requests: tally.count.total(), denied: tally.count.denied }
    }
}

/// Appends the numbers of clients and the most denied clients to the text.
pub(super) fn write_text(text: &mut String, summary: &Summary) {
    let counts = &summary.identities;
    // Writing to a string cannot fail, here and below.
    let _ = write!(text, "\n{} of {} clients had denied requests", counts.denied, counts.known);
    if counts.others > 0 {
        let _ = write!(text, "; {} more had none and are no longer tracked", counts.others);
    }
    if counts.is_cut {
        text.push_str("; there were too many clients to track all");
    }
    text.push('\n');
    let listed = summary.hardest_hit.iter().take(LISTED_MAX);
    let rows: Vec<(String, u64, u64)> =
        listed.map(|client| (terminal_safe(&client.identity), client.denied, client.requests)).collect();
    let names = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or_default();
    for (name, denied, requests) in rows {
        let share = percent(denied, requests);
        let _ = writeln!(text, "  {name:names$}  {denied:>12} of {requests:>12}  {share}");
    }
}

/// The section of the report with the most denied clients.
pub(super) fn most_denied_section(summary: &Summary) -> Markup {
    let counts = &summary.identities;
    html! {
        section {
            h2 { "Clients with the most denied requests" }
            @if summary.hardest_hit.is_empty() {
                p { "No request was denied." }
            } @else {
                (most_denied_table(&summary.hardest_hit))
                p.soft {
                    (grouped(counts.denied)) " of " (grouped(counts.known)) " clients had denied requests."
                    @if counts.others > 0 {
                        " " (grouped(counts.others)) " more had none and are no longer tracked."
                    }
                    @if counts.is_cut {
                        " There were too many clients to track all: some that came late are missing here."
                    }
                }
            }
        }
    }
}

fn most_denied_table(clients: &[DeniedClient]) -> Markup {
    html! {
        div.scroll {
            table {
                tr { th { "identity" } th { "requests" } th { "denied" } th { "share of its requests" } th {} }
                @for DeniedClient { identity, requests, denied } in clients {
                    tr {
                        td { (name(identity)) }
                        td { (grouped(*requests)) }
                        td { (grouped(*denied)) }
                        td { (percent(*denied, *requests)) }
                        td {
                            svg.bar viewBox="0 0 100 10" aria-hidden="true" {
                                rect.ok width="100" height="10" {}
                                rect.no width=(scaled(1_000, *denied, *requests) / 10) height="10" {}
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The section of the report with the distribution of clients by peak usage, for every rule that matched.
pub(super) fn peak_usage_section(tally: &ReplayTally) -> Markup {
    let rules = tally.rules.iter().enumerate().take(RULES_DRAWN_MAX);
    let peaks = rules.map(|(index, rule)| (&rule.name, tally.clients.peaks(index)));
    html! {
        section {
            h2 { "Peak usage of the limits" }
            p.soft {
                "Clients by the largest share of a limit that they had used at any time. Clients in the last row were denied, \
                 or one more request would be."
            }
            @for (rule, counts) in peaks.filter(|(_, counts)| counts.iter().any(|count| *count > 0)) {
                h3 { "Rule " (name(rule)) }
                (peak_usage_picture(rule, &counts))
            }
        }
    }
}

fn peak_usage_picture(rule: &str, counts: &[u64]) -> Markup {
    let most = counts.iter().copied().max().unwrap_or_default();
    let content = html! {
        @for (row, count) in counts.iter().enumerate() {
            @let y = ROW * row as i64;
            @let length = scaled(WIDTH, *count, most);
            @let range = format!("{} to {} %", row * 10, row * 10 + 10);
            @let class = if row + 1 == PEAK_CLASSES.len() { "no" } else { "ok" };
            (axis_label(TextAnchor::End, [LEFT - 80, y + 140], &range))
            (titled(&format!("{range} of the limit: {count} clients"), &rect(class, [LEFT, y + 30, length, ROW - 60])))
            (axis_label(TextAnchor::Start, [LEFT + length + 60, y + 140], &grouped(*count)))
        }
    };
    let label = format!("Peak usage of the limits of rule {rule}");
    picture(7_200, ROW * PEAK_CLASSES.len() as i64, &label, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> LoggedClient<'static> {
        LoggedClient::Address(IpAddr::V4(number.into()))
    }

    #[test]
    fn eviction_keeps_clients_with_denied_requests() {
        let mut clients = ClientTable::default();
        clients.tally(address(7)).unwrap().count.add(false);
        for number in 100..100 + 2 * CLIENTS_MAX as u32 {
            clients.tally(address(number)).unwrap().count.add(true);
        }
        assert!(clients.tallies().count() <= CLIENTS_MAX);
        let kept = clients.tallies().map(|tally| tally.count).fold(RequestCount::default(), RequestCount::and);
        assert_eq!(kept.and(clients.evicted.count), RequestCount { allowed: 2 * CLIENTS_MAX as u64, denied: 1 });
        assert_eq!(clients.most_denied().len(), 1);
        clients.tally(address(7)).unwrap().count.add(false);
        assert_eq!(clients.most_denied()[0].denied, 2);
    }

    #[test]
    fn a_name_and_an_equal_address_are_different_clients() {
        let mut clients = ClientTable::default();
        let tenant = DEFAULT_TENANT;
        clients.tally(LoggedClient::Named { tenant, name: "0.0.0.7" }).unwrap().count.add(true);
        clients.tally(address(7)).unwrap().count.add(true);
        clients.tally(LoggedClient::Named { tenant: "acme", name: "0.0.0.7" }).unwrap().count.add(true);
        clients.tally(LoggedClient::Named { tenant: "acme", name: "0.0.0.7" }).unwrap().record_usage(3, 450);
        assert_eq!(
            clients.tallies().map(|tally| &*tally.name).collect::<Vec<_>>(),
            ["0.0.0.7", "0.0.0.7", "acme/0.0.0.7"]
        );
        assert_eq!(clients.peaks(3), [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }
}
