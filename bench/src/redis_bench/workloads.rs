//! Which callers there are: how many at once, over which identities.

use super::load::IDENTITIES_MAX;
use super::ways;
use crate::workload::zipf;
use std::sync::LazyLock;

/// Who asks, and for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) identities: usize,
    pub(crate) in_flight: usize,
    pub(crate) kind: Kind,
}

/// How identities are chosen, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of them equally often.
    Even,
    /// Few of them often.
    Zipf,
    /// One that has used up its limit for the next hour.
    Denied,
}

/// All workloads of `redis`.
pub(super) const ALL: [Workload; 11] = [
    many(1),
    many(16),
    many(64),
    many(256),
    many(1_024),
    hot(1),
    hot(16),
    hot(256),
    hot(1_024),
    Workload { identities: 10_000, in_flight: 256, kind: Kind::Zipf },
    Workload { identities: 1, in_flight: 256, kind: Kind::Denied },
];

/// Identities are taken in this stride, so that neighbours are not asked for one after the other.
const STRIDE: usize = 7_919;

static ZIPF: LazyLock<Vec<u32>> = LazyLock::new(|| zipf(IDENTITIES_MAX as u32));

/// Distinct keys.
pub(crate) const fn many(in_flight: usize) -> Workload {
    Workload { identities: 10_000, in_flight, kind: Kind::Even }
}

/// One key that everybody wants.
pub(crate) const fn hot(in_flight: usize) -> Workload {
    Workload { identities: 1, in_flight, kind: Kind::Even }
}

impl Workload {
    /// What the table calls it.
    pub(crate) fn title(&self) -> String {
        let Self { identities, in_flight, kind } = self;
        let callers = if *in_flight == 1 { "caller" } else { "callers" };
        let keys = match (kind, identities) {
            (Kind::Denied, _) => "a denied identity".to_owned(),
            (Kind::Zipf, _) => format!("{} k keys, Zipf", identities / 1_000),
            (Kind::Even, 1) => "one hot key".to_owned(),
            (Kind::Even, _) => format!("{} k keys", identities / 1_000),
        };
        format!("{keys}, {in_flight} {callers}")
    }

    /// The ways that are measured.
    pub(super) fn ways(&self) -> &'static [&'static str] {
        if self.is_denied() { &ways::NAMES_DENIED } else { &ways::NAMES }
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }

    /// Who is asked for in this step.
    pub(crate) fn identity(&self, step: usize) -> usize {
        match self.kind {
            Kind::Zipf => ZIPF[step % ZIPF.len()] as usize % self.identities,
            Kind::Even | Kind::Denied => step * STRIDE % self.identities,
        }
    }
}
