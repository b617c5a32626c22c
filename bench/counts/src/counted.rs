//! A check by one rule whose decision is counted as the server counts it. Beside `limiter/one_rule` it says what metrics cost
//! without the clock, which is set by hand here.

use std::error::Error;
use std::hint::black_box;

use sluicegate::Observer;
use sluicegate::core::{Micros, Rate, TokenBucket};
use sluicegate::observe::{Decided, Operation};

use super::counters::Counters;
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
struct Counted(Counters);

impl Observer for Counted {
    fn wants_durations(&self) -> bool {
        true
    }

    fn decided(&self, decided: &Decided<'_>) {
        self.0.decided(decided);
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        self.0.store_took(operation, took);
    }
}
