//! A request over several slots of a Cluster, of which a part is charged in any case.
//!
//! The usage goes first, to all slots at the same time. It is never released, because it has already happened. What is
//! left of the request is decided after that: if all usage fitted, it is reserved part by part as any other request, on
//! top of the usage; otherwise it is denied, and only shown.

use super::reserve::{execute_parts, reserve};
use crate::store::redis::client::transport::Transport;
use crate::store::redis::protocol::arguments::Operation;
use crate::store::redis::request::{Part, Request};
use crate::store::{Charge, Reply, StoreError, Verdicts};
use sluicegate_core::decision::{ChargeMode, is_allowed};
use sluicegate_core::{Cost, Outcome};

/// Charges the usage in full, and the rest of the costs if everything fits.
pub(crate) async fn charge_usage<T: Transport>(
    request: &Request<'_, '_, T>,
    parts: Vec<Part>,
) -> Result<Reply, StoreError> {
    let has_usage = |index: &usize| !request.charges[*index].usage.is_zero();
    let usage: Vec<Charge<'_>> =
        request.charges.iter().map(|charge| Charge { cost: charge.usage, ..*charge }).collect();
    let usage = Request { charges: &usage, ..*request };
    let reported = execute_parts(&usage, Operation::Charge, only(&parts, has_usage)).await?;
    let of_usage = by_charge(&usage, reported.verdicts);
    let votes = |(charge, verdicts): (&Charge<'_>, &Verdicts)| -> Vec<(ChargeMode, Outcome)> {
        let is_charged = !charge.cost.is_zero();
        verdicts.iter().filter(|_| is_charged).map(|verdict| (charge.mode, verdict.outcome)).collect()
    };
    let fits = is_allowed(usage.charges.iter().zip(&of_usage).flat_map(votes));

    let is_rest =
        |index: &usize| !has_usage(index) || request.charges[*index].usage < request.charges[*index].cost;
    let rest: Vec<Charge<'_>> = request.charges.iter().map(rest_of).collect();
    let rest = Request { charges: &rest, ..*request };
    let rest_parts = only(&parts, is_rest);
    let decided = match fits {
        _ if rest_parts.is_empty() => Reply { now: reported.now, verdicts: Verdicts::new() },
        true => reserve(&rest, rest_parts).await?,
        false => execute_parts(&rest, Operation::Peek, rest_parts).await?,
    };
    let now = reported.now.max(decided.now);
    let of_rest = by_charge(&rest, decided.verdicts);
    let verdict_of = |(index, (usage, mut rest)): (usize, (Verdicts, Verdicts))| {
        if !is_rest(&index) {
            return usage;
        }
        // On top of the usage, the rest has the wait of both. It may fit there alone, although both never do.
        for (verdict, quota) in rest.iter_mut().zip(request.charges[index].quotas) {
            if !verdict.outcome.is_allowed() && request.charges[index].cost.units() > quota.limit() {
                verdict.outcome = Outcome::NeverAdmissible;
            }
        }
        rest
    };
    let verdicts = of_usage.into_iter().zip(of_rest).enumerate().flat_map(verdict_of).collect();
    Ok(Reply { now, verdicts })
}

/// The cost of a charge without its usage.
fn rest_of<'a>(charge: &Charge<'a>) -> Charge<'a> {
    Charge { cost: Cost::new(charge.cost.get() - charge.usage.get()), usage: Cost::ZERO, ..*charge }
}

/// The parts, without the charges that are not wanted.
fn only(parts: &[Part], is_wanted: impl Fn(&usize) -> bool) -> Vec<Part> {
    let wanted = |part: &Part| -> Part { part.iter().copied().filter(&is_wanted).collect() };
    parts.iter().map(wanted).filter(|part| !part.is_empty()).collect()
}

/// The verdicts of each charge; none if there are none at all.
fn by_charge<T>(request: &Request<'_, '_, T>, verdicts: Verdicts) -> Vec<Verdicts> {
    let mut verdicts = verdicts.into_iter();
    request.charges.iter().map(|charge| verdicts.by_ref().take(charge.quotas.len()).collect()).collect()
}
