//! A check by one rule whose decision is counted as in the server. The difference to `limiter/one_rule` is the cost of metrics
//! without the clock, which is manual here.

use std::error::Error;
use std::hint::black_box;

use sluicegate::Observer;
use sluicegate::core::{Micros, Rate, TokenBucket};
use sluicegate::observe::{DecisionEvent, Operation};

use super::counters::DecisionCounters;
use crate::paths::{PLENTY, Path, REQUEST, limiter, ready};

pub(crate) fn all() -> Result<Vec<Path>, Box<dyn Error>> {
    let bucket = TokenBucket::new(PLENTY, Rate::new(PLENTY, Micros::from_secs(60))?)?;
    let limiter = limiter(vec![("one", bucket.into())])?.observed(Counted::default());
    let ask = move || ready(limiter.check(black_box(&REQUEST))).and_then(Result::ok);
    ask().ok_or("the store in this process always decides")?;
    Ok(vec![(
        "limiter/one_rule_counted",
        Box::new(move || {
            black_box(ask());
        }),
    )])
}

#[derive(Default)]
struct Counted(DecisionCounters);

impl Observer for Counted {
    fn wants_durations(&self) -> bool {
        true
    }

    fn decided(&self, decided: &DecisionEvent<'_>) {
        self.0.decided(decided);
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        self.0.store_took(operation, took);
    }
}
