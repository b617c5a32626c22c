//! The lease of a rule in a file.

use super::field::{Absent, Choice, Custom, Field, Form, Mapping};
use super::problem::ValueError;
use super::reader::Reader;
use super::section::Section;
use crate::rules::Rule;
use crate::rules::lease::Misfit;
use crate::store::{LEASE_TTLS, Lease, LeaseMode};
use sluicegate_core::Micros;

/// The keys of a rule's `lease`.
pub static LEASE_FIELDS: Mapping = Mapping {
    doc: "Lets a shared store charge several requests in one call, before they arrive. Each server holds the permits and spends them without further calls.",
    fields: &[&TTL, &MODE],
    constraints: &[],
};

static TTL: Field<Custom<Micros>> = Field {
    key: "ttl",
    doc: "How long after its charge a permit is valid. Of several rules the shortest time applies.",
    kind: Custom { read: read_ttl, form: || Form::Duration { min: "1ms", max: "10s" } },
    absent: Absent::Required("say how long after its charge a request may pass, for example ttl: 100ms"),
    examples: &["100ms"],
};

static MODE: Field<Choice<LeaseMode>> = Field {
    key: "mode",
    doc: "`strict` admits no more than without a lease, and needs a part of the capacity for it; `bounded` admits a little more.",
    kind: Choice(&[
        (LeaseMode::Strict.name(), LeaseMode::Strict),
        (LeaseMode::Bounded.name(), LeaseMode::Bounded),
    ]),
    absent: Absent::Default("strict"),
    examples: &[],
};

/// Reads a lease. Unreadable fields get the value that is compatible with the most limits, so that one problem causes no other.
pub(super) fn read_lease(section: &Section<'_>) -> Option<Lease> {
    let (ttl, mode) = (section.read(&TTL), section.read(&MODE));
    Some(Lease { ttl: ttl.unwrap_or(*LEASE_TTLS.start()), mode: mode.unwrap_or(LeaseMode::Bounded) })
}

fn read_ttl(reader: &Reader<'_>) -> Option<Micros> {
    let ttl = reader.duration()?;
    if LEASE_TTLS.contains(&ttl) {
        return Some(ttl);
    }
    reader.refuse(ValueError::new("out of range", "use at least 1ms and at most 10s"))
}

/// Reports a lease that contradicts the limits of its rule.
pub(super) fn check_lease(section: &Section<'_>, rule: &Rule) {
    let Some((lease, misfit)) = section.get("lease").zip(rule.lease_misfit()) else { return };
    let Misfit { is_about_ttl, message, remedy } = misfit;
    let within = if is_about_ttl { lease.open_section() } else { None };
    within.as_ref().and_then(|lease| lease.get("ttl")).unwrap_or(lease).report(ValueError::new(message, remedy));
}
