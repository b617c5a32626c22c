//! Many cases in sequence, one seed each, until enough operations were compared.

use super::answer::Scope;
use super::draw::{Case, Options, Random};
use super::run::{Disagreement, Tally, run};
use super::shrink::shrink;
use super::system::System;

/// The cases to run, and how to compare them.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The seed of the first case; the seeds of the others follow from it.
    pub seed: u64,
    /// The features that cases may use.
    pub options: Options,
    /// How closely answers are compared.
    pub scope: Scope,
}

impl Campaign {
    /// The seed of a case by its number. The first case has the campaign's own seed, so the seed alone reproduces a
    /// failing case.
    #[must_use]
    pub fn seed_of(&self, number: u64) -> u64 {
        if number == 0 { self.seed } else { Random::new(self.seed ^ number.rotate_left(32)).number() }
    }

    /// The options of the case of a seed. After a backward step of the clock, the numbers of cached denials are not
    /// compared, so three quarters of these cases have none.
    fn options_of(&self, seed: u64) -> Options {
        let steps_back = self.scope != Scope::RememberedDenials || seed.is_multiple_of(4);
        Options { steps_back: self.options.steps_back && steps_back, ..self.options }
    }

    /// Runs the case of this number on a system from `make`, and shrinks it if it fails.
    ///
    /// # Errors
    /// The smallest failing case found.
    pub async fn run_case<S: System>(
        &self,
        number: u64,
        make: impl AsyncFn(&Case) -> S,
    ) -> Result<Tally, Box<Disagreement>> {
        let seed = self.seed_of(number);
        let case = Case::draw(seed, &self.options_of(seed));
        match run(&case, &mut make(&case).await, self.scope).await {
            Ok(tally) => Ok(tally),
            Err(found) => {
                let again = async |case: &Case| run(case, &mut make(case).await, self.scope).await.map(|_| ());
                Err(shrink(found, again).await)
            }
        }
    }

    /// Runs cases until `goes_on`, called after each case with the totals so far, returns false.
    ///
    /// # Errors
    /// The smallest failing case found.
    pub async fn run<S: System>(
        &self,
        make: impl AsyncFn(&Case) -> S,
        mut goes_on: impl FnMut(Tally) -> bool,
    ) -> Result<Tally, Box<Disagreement>> {
        let mut tally = Tally::default();
        for number in 0.. {
            tally = tally.plus(self.run_case(number, &make).await?);
            if !goes_on(tally) {
                break;
            }
        }
        Ok(tally)
    }
}
