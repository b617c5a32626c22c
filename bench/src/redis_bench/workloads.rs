//! Workloads: the number of concurrent tasks, and the distribution of identities.

use super::load::IDENTITIES_MAX;
use super::ways;
use crate::workload::zipf;
use std::sync::LazyLock;

/// The tasks and their identities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) identities: usize,
    pub(crate) in_flight: usize,
    pub(crate) kind: Kind,
}

/// The distribution of identities, and the expected decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Uniform.
    Even,
    /// Skewed: a few identities are frequent.
    Zipf,
    /// One identity that has exhausted its limit for the next hour.
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

/// The stride through the identities, so that neighbours do not follow each other.
const STRIDE: usize = 7_919;

static ZIPF: LazyLock<Vec<u32>> = LazyLock::new(|| zipf(IDENTITIES_MAX as u32));

/// Distinct keys.
pub(crate) const fn many(in_flight: usize) -> Workload {
    Workload { identities: 10_000, in_flight, kind: Kind::Even }
}

/// One hot key.
pub(crate) const fn hot(in_flight: usize) -> Workload {
    Workload { identities: 1, in_flight, kind: Kind::Even }
}

impl Workload {
    /// Its name in the table.
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

    /// The measured contenders.
    pub(super) fn ways(&self) -> &'static [&'static str] {
        if self.is_denied() { &ways::NAMES_DENIED } else { &ways::NAMES }
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }

    /// The identity of this step.
    pub(crate) fn identity(&self, step: usize) -> usize {
        match self.kind {
            Kind::Zipf => ZIPF[step % ZIPF.len()] as usize % self.identities,
            Kind::Even | Kind::Denied => step * STRIDE % self.identities,
        }
    }
}
