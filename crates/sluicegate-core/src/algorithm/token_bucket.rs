//! Token bucket, as a generic cell rate algorithm in rational integers.
//!
//! A bucket holds `capacity` tokens and gains `amount` of them per `period`. Instead of counting tokens we
//! keep one instant, the *theoretical arrival time* (TAT): when the bucket will be full again. Taking c tokens
//! moves it c/rate into the future; a request passes while the TAT stays within the fill time τ of now.
//!
//! Symbols: with g = gcd(amount, period µs), n = amount/g and p = period/g, so one token lasts p/n µs.
//! A length is a pair (q, r) that means q + r/n µs with 0 ≤ r < n, so nothing is ever rounded and the bucket
//! is the ideal one: admitted cost in any interval of length d ≤ capacity + credits + d·amount/period.
//!
//! Worked example: 3 tokens, 3 per second. n = 3, p = 10⁶, one token lasts 333 333⅓ µs = (333333, 1).
//! Three requests at t = 0 move the TAT to (1000000, 0), exactly one second; a plain integer interval would
//! lose a third of a microsecond each time.
//!
//! Credits: tokens above `capacity` that an identity earns by staying below its rate. Bucket and credits are
//! one pool of capacity + credits, but an identity without history starts at `capacity`, as if it had just
//! spent all credits. So new identities cannot mint credits, and an idle one is remembered for `credit_ttl`.

mod prepaid;
mod share;
mod span;

use super::{Algorithm, believed_ahead};
use crate::quota::{Cost, QuotaError, Rate, UNITS_MAX, length_between, units_between};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing, Verdict};
use span::{Span, gcd};
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

/// How long earned credits are remembered unless the limit says otherwise.
pub const CREDIT_TTL_DEFAULT: Micros = Micros::from_secs(86_400);

/// A token bucket. All derived numbers are computed once, here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    credits: u64,
    credit_ttl: Micros,
    /// n: a microsecond has this many parts.
    parts_per_micro: u64,
    /// p: a token lasts this many parts.
    parts_per_token: u64,
    /// What one token lasts.
    token: Span,
    /// τ: what all tokens, credits included, last.
    full: Span,
    /// How far ahead of now a TAT is believed: τ and what [`believed_ahead`] adds.
    furthest: Span,
    /// What the credits alone last: how far an identity without history is from whole.
    unearned: Span,
}

/// By what it is made of; the rest follows from that.
impl Hash for TokenBucket {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { capacity, credits, credit_ttl, parts_per_micro, parts_per_token, .. } = self;
        (capacity, credits, credit_ttl, parts_per_micro, parts_per_token).hash(hasher);
    }
}

/// What is remembered of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucketState {
    /// TAT, whole microseconds since the epoch.
    pub tat_micros: u64,
    /// TAT, the rest of a microsecond in parts: less than `parts_per_micro`.
    pub tat_parts: u64,
    /// How many parts a microsecond had when this was written; another rate may have another number.
    pub parts_per_micro: u64,
    /// The last microsecond at which this state matters.
    pub kept_until_micros: u64,
}

impl TokenBucket {
    /// A bucket of `capacity` tokens that refills at `refill`, without credits.
    ///
    /// # Errors
    /// If the capacity is not within 1 to [`UNITS_MAX`], or the bucket takes more than ten years to fill.
    pub fn new(capacity: u64, refill: Rate) -> Result<Self, QuotaError> {
        Self::with_credits(capacity, refill, 0, CREDIT_TTL_DEFAULT)
    }

    /// A bucket in which an identity may also earn up to `credits` tokens above `capacity`, remembered for
    /// `credit_ttl` of idleness.
    ///
    /// # Errors
    /// As [`TokenBucket::new`]; also if capacity and credits together are above [`UNITS_MAX`], or the
    /// `credit_ttl` is not within 1 ms to ten years.
    pub fn with_credits(
        capacity: u64,
        refill: Rate,
        credits: u64,
        credit_ttl: Micros,
    ) -> Result<Self, QuotaError> {
        units_between("capacity", capacity, 1, UNITS_MAX)?;
        units_between("credits", credits, 0, UNITS_MAX - capacity)?;
        length_between("credit_ttl", credit_ttl, Micros::from_millis(1))?;
        let divisor = gcd(refill.amount(), refill.period().as_micros());
        let parts_per_micro = refill.amount() / divisor;
        let parts_per_token = refill.period().as_micros() / divisor;
        let lasting = |tokens| Span::of_tokens(tokens, parts_per_token, parts_per_micro);
        let too_slow = || {
            let remedy = "refill faster or hold less: filling the bucket may take at most ten years";
            QuotaError::new("capacity", capacity + credits, remedy)
        };
        let full = lasting(capacity + credits).filter(Span::within_bounds).ok_or_else(too_slow)?;
        let token = lasting(1).ok_or_else(too_slow)?;
        let unearned = lasting(credits).ok_or_else(too_slow)?;
        let ahead = believed_ahead(Micros::from_micros(full.ceil_micros()));
        let furthest = Span { micros: full.micros + ahead.as_micros(), ..full };
        Ok(Self {
            capacity,
            credits,
            credit_ttl,
            parts_per_micro,
            parts_per_token,
            token,
            full,
            furthest,
            unearned,
        })
    }

    /// Tokens an identity without history has.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Tokens above the capacity that can be earned.
    #[must_use]
    pub const fn credits(&self) -> u64 {
        self.credits
    }

    /// n: into how many parts a microsecond is cut so that every token lasts a whole number of them.
    #[must_use]
    pub const fn parts_per_micro(&self) -> u64 {
        self.parts_per_micro
    }

    /// p: how many of these parts a token lasts.
    #[must_use]
    pub const fn parts_per_token(&self) -> u64 {
        self.parts_per_token
    }

    /// How long earned credits are remembered.
    #[must_use]
    pub const fn credit_ttl(&self) -> Micros {
        self.credit_ttl
    }

    #[inline]
    fn lasting(&self, cost: Cost) -> Span {
        if cost == Cost::ONE {
            return self.token;
        }
        // A cost is checked against the limit before anything is computed with it, so it fits; the whole
        // bucket is the answer that lets nobody in if that were ever forgotten.
        Span::of_tokens(cost.units(), self.parts_per_token, self.parts_per_micro).unwrap_or(self.full)
    }

    /// The TAT that `state` amounts to at `now`: never in the past, and where an identity without history
    /// stands if there is none.
    #[inline]
    fn tat(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Span {
        match state {
            Some(state) if !self.is_forgotten(state, now) => self.read(state).max(Span::at(now)),
            _ => self.plus(Span::at(now), self.unearned),
        }
    }

    /// Without credits forgetting is invisible, so the question only arises with them.
    #[inline]
    fn is_forgotten(&self, state: &TokenBucketState, now: Timestamp) -> bool {
        self.credits > 0 && now.as_micros() > self.matters_until(state)
    }

    /// Never before the bucket is whole, whatever a damaged state says: the wait it was told would be a lie.
    fn matters_until(&self, state: &TokenBucketState) -> u64 {
        state.kept_until_micros.max(self.read(state).ceil_micros())
    }

    #[inline]
    fn read(&self, state: &TokenBucketState) -> Span {
        if state.parts_per_micro == self.parts_per_micro && state.tat_parts < self.parts_per_micro {
            return Span { micros: state.tat_micros, parts: state.tat_parts };
        }
        // Written under another rate: round up, so that the change costs at most 1 µs and gains nothing.
        let round_up = u64::from(state.tat_parts > 0);
        Span { micros: state.tat_micros.saturating_add(round_up), parts: 0 }
    }

    #[inline]
    fn written(&self, tat: Span, kept_until_micros: u64) -> TokenBucketState {
        TokenBucketState {
            tat_micros: tat.micros,
            tat_parts: tat.parts,
            parts_per_micro: self.parts_per_micro,
            kept_until_micros,
        }
    }

    /// Until when a state written at `now` matters: until the bucket is whole, and with credits at least for
    /// `credit_ttl`.
    #[inline]
    fn kept_from(&self, tat: Span, now: Timestamp) -> u64 {
        let whole_at = tat.ceil_micros();
        if self.credits == 0 { whole_at } else { whole_at.max(now.plus(self.credit_ttl).as_micros()) }
    }

    /// True if a token lasts whole microseconds and there are no credits, as with most limits people write.
    #[inline]
    fn is_whole(&self) -> bool {
        self.parts_per_micro == 1 && self.credits == 0
    }

    /// [`Algorithm::decide`] where [`TokenBucket::is_whole`]: the same rules on plain integers. Answers with
    /// the new TAT, if there is one.
    #[inline(always)]
    fn decide_whole(&self, tat_micros: u64, cost: Cost, now: Timestamp) -> (Option<u64>, Verdict) {
        let now = now.as_micros();
        let empty = now + self.full.micros;
        let repaired = (tat_micros > now + self.furthest.micros).then_some(empty);
        let tat = repaired.unwrap_or(tat_micros).max(now);
        // A cost far above the limit may last until the end of 64 bits.
        let wanted = tat.saturating_add(self.lasting(cost).micros);
        if cost.units() <= self.limit() && wanted <= empty && !cost.is_zero() {
            return (Some(wanted), self.verdict_whole(Outcome::Allowed, wanted, empty, now));
        }
        let outcome = if cost.is_zero() {
            Outcome::Allowed
        } else if cost.units() > self.limit() {
            Outcome::NeverAdmissible
        } else {
            Outcome::Denied { retry_after: Micros::from_micros(wanted - empty) }
        };
        (repaired, self.verdict_whole(outcome, tat, empty, now))
    }

    #[inline(always)]
    fn verdict_whole(&self, outcome: Outcome, tat: u64, empty: u64, now: u64) -> Verdict {
        let remaining = empty.saturating_sub(tat) / self.parts_per_token;
        let standing = Standing { remaining, reset_after: Micros::from_micros(tat - now) };
        Verdict::new(outcome, self.capacity, standing)
    }

    /// Whether `cost` fits a bucket that is whole at `tat`.
    #[inline]
    fn judge(&self, tat: Span, is_known: bool, cost: Cost, now: Timestamp) -> Outcome {
        if cost.units() > self.limit() {
            return Outcome::NeverAdmissible;
        }
        let tat = self.plus(tat, self.lasting(cost));
        let empty = self.plus(Span::at(now), self.full);
        if tat <= empty {
            return Outcome::Allowed;
        }
        if self.credits > 0 && !is_known {
            // An identity without history asks for credits. A denial leaves no history behind, so waiting
            // alone will never earn them.
            return Outcome::NeverAdmissible;
        }
        Outcome::Denied { retry_after: Micros::from_micros(self.minus(tat, empty).ceil_micros()) }
    }

    /// How a bucket stands that is whole at `tat`, which is not before `now`.
    #[inline]
    fn stand(&self, tat: Span, now: Timestamp) -> Standing {
        let left = self.minus(self.plus(Span::at(now), self.full), tat);
        Standing {
            remaining: left.whole_tokens(self.parts_per_token, self.parts_per_micro),
            reset_after: Micros::from_micros(tat.ceil_micros() - now.as_micros()),
        }
    }

    #[inline]
    fn plus(&self, left: Span, right: Span) -> Span {
        let micros = left.micros.saturating_add(right.micros);
        let parts = left.parts + right.parts;
        if parts < self.parts_per_micro {
            return Span { micros, parts };
        }
        Span { micros: micros.saturating_add(1), parts: parts - self.parts_per_micro }
    }

    /// `left − right`, or nothing if that would be negative.
    #[inline]
    fn minus(&self, left: Span, right: Span) -> Span {
        if left <= right {
            return Span { micros: 0, parts: 0 };
        }
        let borrow = u64::from(left.parts < right.parts);
        Span {
            micros: left.micros - right.micros - borrow,
            parts: left.parts + borrow * self.parts_per_micro - right.parts,
        }
    }
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;
    const NAME: &'static str = "token_bucket";

    fn limit(&self) -> u64 {
        self.capacity + self.credits
    }

    fn window(&self) -> Micros {
        Micros::from_micros(self.full.ceil_micros())
    }

    #[inline]
    fn repair(&self, state: &TokenBucketState, now: Timestamp) -> Option<TokenBucketState> {
        if self.read(state) <= self.plus(Span::at(now), self.furthest) {
            return None;
        }
        let empty = self.plus(Span::at(now), self.full);
        Some(self.written(empty, self.kept_from(empty, now)))
    }

    fn outcome(&self, state: Option<&TokenBucketState>, cost: Cost, now: Timestamp) -> Outcome {
        let is_known = state.is_some_and(|state| !self.is_forgotten(state, now));
        self.judge(self.tat(state, now), is_known, cost, now)
    }

    fn charge(&self, state: Option<TokenBucketState>, cost: Cost, now: Timestamp) -> TokenBucketState {
        let tat = self.plus(self.tat(state.as_ref(), now), self.lasting(cost));
        self.written(tat, self.kept_from(tat, now))
    }

    /// The debt is as much as is believed, which is a bucket at least: any more, and the next repair would take the
    /// state for damaged and forgive all of it.
    fn force(&self, state: Option<TokenBucketState>, cost: Cost, now: Timestamp) -> Option<TokenBucketState> {
        let owed = self.plus(self.tat(state.as_ref(), now), self.lasting(cost));
        let tat = owed.min(self.plus(Span::at(now), self.furthest));
        Some(self.written(tat, self.kept_from(tat, now)))
    }

    fn refund(&self, state: TokenBucketState, cost: Cost, now: Timestamp) -> TokenBucketState {
        if self.is_forgotten(&state, now) || self.read(&state) <= Span::at(now) {
            // Whole already: to write it again would only make it look freshly used.
            return state;
        }
        let tat = match cost.units() > self.limit() {
            true => Span::at(now),
            false => self.minus(self.tat(Some(&state), now), self.lasting(cost)).max(Span::at(now)),
        };
        let kept_until = if self.credits > 0 { state.kept_until_micros } else { tat.ceil_micros() };
        self.written(tat, kept_until)
    }

    fn standing(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Standing {
        self.stand(self.tat(state, now), now)
    }

    /// As the provided method, with every instant computed once: this is the hottest path there is.
    #[inline(always)]
    fn decide(
        &self,
        state: Option<TokenBucketState>,
        cost: Cost,
        now: Timestamp,
    ) -> (Option<TokenBucketState>, Verdict) {
        if let Some(state) = state
            && self.is_whole()
            && (state.parts_per_micro, state.tat_parts) == (1, 0)
        {
            let (new, verdict) = self.decide_whole(state.tat_micros, cost, now);
            let written = |micros| self.written(Span { micros, parts: 0 }, micros);
            return (Some(new.map_or(state, written)), verdict);
        }
        let state = state.map(|state| self.repair(&state, now).unwrap_or(state));
        let is_known = state.is_some_and(|state| !self.is_forgotten(&state, now));
        let tat = self.tat(state.as_ref(), now);
        let outcome = if cost.is_zero() { Outcome::Allowed } else { self.judge(tat, is_known, cost, now) };
        if cost.is_zero() || !outcome.is_allowed() {
            return (state, Verdict::new(outcome, self.limit(), self.stand(tat, now)));
        }
        let tat = self.plus(tat, self.lasting(cost));
        let state = self.written(tat, self.kept_from(tat, now));
        (Some(state), Verdict::new(outcome, self.limit(), self.stand(tat, now)))
    }

    fn kept_until(&self, state: &TokenBucketState) -> Timestamp {
        Timestamp::from_micros(self.matters_until(state))
    }

    fn share(&self, parts: NonZeroU32) -> Option<Self> {
        self.share_of(parts)
    }

    fn prepaid(&self, delay: Micros) -> Option<Self> {
        self.prepaid_for(delay)
    }
}
