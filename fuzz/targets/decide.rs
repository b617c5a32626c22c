//! Compares the core's decisions with the exact model. The input is a limit, followed by a sequence of operations.
//!
//! Properties: those of the core. The same checker that the core's own tests use compares each step.
//! libFuzzer chooses the steps by code coverage instead of at random.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sluicegate_testkit::model::{Bucket, Counter, Fixed, Limit, Log, Uneven};

#[rustfmt::skip]
#[path = "../../crates/sluicegate-core/tests/it/harness.rs"]
#[expect(dead_code, unused_imports, reason = "the core's tests ask for more than happens here")]
mod harness;

use harness::{Run, quota};

/// Longer sequences find nothing new and make the model slow.
const STEPS_MAX: usize = 60;

/// A start time that is neither the first day nor the last.
const START_MICROS: u64 = 1_705_312_800_000_000;

fuzz_target!(|bytes: &[u8]| {
    // The input has ended.
    let _ = carry_out(&mut Unstructured::new(bytes));
});

fn carry_out(input: &mut Unstructured<'_>) -> Result<()> {
    let limit = limit(input)?;
    if quota(&limit).is_err() {
        return Ok(());
    }
    let mut run = Run::new(&limit, START_MICROS);
    let ended = (0..STEPS_MAX).try_for_each(|_| step(input, &mut run));
    run.verify_bound().unwrap_or_else(|broken| panic!("{limit:?}: {broken}"));
    ended
}

fn step(input: &mut Unstructured<'_>, run: &mut Run) -> Result<()> {
    let now = run.subject().now;
    let window = run.subject().quota.window().as_micros();
    let parts = u64::from(input.arbitrary::<u8>()?);
    let forward = match input.arbitrary::<u8>()? % 4 {
        0 => parts,
        1 => window.saturating_mul(parts) / 64,
        2 => (now / window + 1).saturating_mul(window) - now,
        _ => run.subject().verdict.map_or(0, |verdict| verdict.reset_after.as_micros()).saturating_sub(parts % 2),
    };
    run.set_clock(now.saturating_add(forward));
    let cost = match input.arbitrary::<u8>()? {
        exactly @ 0..=99 => u32::from(exactly),
        some @ 100..=199 => {
            u32::try_from(run.subject().remaining()).unwrap_or(u32::MAX).saturating_add(u32::from(some) - 100)
        }
        _ => input.arbitrary()?,
    };
    let done = match input.arbitrary::<u8>()? % 8 {
        0 => run.refund(cost).map(drop),
        1 => {
            run.drop_expired();
            run.check(0).map(drop)
        }
        _ => run.check(cost).map(drop),
    };
    done.unwrap_or_else(|broken| panic!("{:?}: {broken}", run.limit()));
    Ok(())
}

fn limit(input: &mut Unstructured<'_>) -> Result<Limit> {
    let number = |input: &mut Unstructured<'_>| {
        // Small and large numbers are equally likely.
        let bits = input.arbitrary::<u8>()? % 40;
        Ok(input.arbitrary::<u64>()? & ((1 << (bits + 1)) - 1))
    };
    Ok(match input.arbitrary::<u8>()? % 5 {
        0 => Limit::Bucket(Bucket {
            capacity: number(input)?,
            credits: number(input)?,
            amount: number(input)?,
            period: number(input)?,
            credit_ttl: number(input)?,
        }),
        1 => Limit::Log(Log { limit: number(input)? % 200, window: number(input)? }),
        2 => Limit::Counter(Counter { limit: number(input)?, window: number(input)? }),
        3 => Limit::Fixed(Fixed { limit: number(input)?, window: number(input)? }),
        _ => {
            // Whole milliseconds: a window of a calendar has at least a thousand.
            let millis = |number: u64| number / 1_000 * 1_000;
            let (limit, first) = (number(input)?, millis(number(input)?));
            let length = |_| Ok(millis(number(input)?) + 1_000_000);
            let lengths = (0..8).map(length).collect::<Result<Vec<u64>>>()?;
            Limit::Uneven(Uneven { limit, first, lengths })
        }
    })
}
