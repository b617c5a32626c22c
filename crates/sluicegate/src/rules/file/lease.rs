//! The terms on which requests may be charged ahead, as they stand in a file.

use super::problem::Wrong;
use super::reader::Reader;
use super::section::Section;
use crate::rules::Rule;
use crate::rules::lease::Misfit;
use crate::store::{LEASE_TTLS, Lease, LeaseMode};

/// The keys of a rule's `lease`.
pub const LEASE_KEYS: &[&str] = &["ttl", "mode"];
/// What charging ahead may cost.
pub const LEASE_MODES: &[(&str, LeaseMode)] =
    &[(LeaseMode::Strict.name(), LeaseMode::Strict), (LeaseMode::Bounded.name(), LeaseMode::Bounded)];

/// The terms of a rule. Those that cannot be read are taken to be the ones that go with the most limits.
pub(super) fn read_lease(reader: &Reader<'_>) -> Option<Lease> {
    let section = reader.section(LEASE_KEYS)?;
    let ttl = section
        .required("ttl", "say how long after its charge a request may pass, for example ttl: 100ms")
        .and_then(|ttl| {
            let length = ttl.duration()?;
            let wrong = || Wrong::new("out of range", "use at least 1ms and at most 10s");
            if LEASE_TTLS.contains(&length) { Some(length) } else { ttl.refuse(wrong()) }
        });
    let mode = section.optional("mode", LeaseMode::Strict, |mode| mode.choice(LEASE_MODES));
    Some(Lease { ttl: ttl.unwrap_or(*LEASE_TTLS.start()), mode: mode.unwrap_or(LeaseMode::Bounded) })
}

/// Reports terms that do not go with the limits of their rule, at the place where they stand.
pub(super) fn check_lease(section: &Section<'_>, rule: &Rule) {
    let Some((lease, misfit)) = section.get("lease").zip(rule.lease_misfit()) else { return };
    let Misfit { is_about_ttl, message, remedy } = misfit;
    let within = if is_about_ttl { lease.open_section() } else { None };
    within.as_ref().and_then(|lease| lease.get("ttl")).unwrap_or(lease).report(Wrong::new(message, remedy));
}
