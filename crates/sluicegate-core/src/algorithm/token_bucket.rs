//! Token bucket, as a generic cell rate algorithm in rational integers.
//!
//! A bucket holds `capacity` tokens and gains `amount` of them per `period`. Instead of counting tokens we
//! keep one instant, the *theoretical arrival time* (TAT): when the bucket holds its capacity again. Taking c tokens
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
//! Credits: tokens above `capacity` that a client earns by staying below its rate. Bucket and credits are one pool of
//! capacity + credits. A TAT in the past means earned credits: (now − TAT) · rate, up to `credits`. A client without
//! history starts at `capacity`, which is a TAT of now, so new clients hold no credits; an idle one is remembered for
//! `credit_ttl`. Because the TAT counts from the capacity, a change of `credits` on a live limit adds none.

mod prepaid;
mod share;
mod span;

use super::{Algorithm, believed_ahead};
use crate::quota::{Cost, DEBT_LIMITS_MAX, QuotaError, Rate, UNITS_MAX, length_between, units_between};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing, Verdict};
use span::{Span, gcd};
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

/// The default retention of earned credits.
pub const CREDIT_TTL_DEFAULT: Micros = Micros::from_secs(86_400);

/// A token bucket, with all derived numbers computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    credits: u64,
    credit_ttl: Micros,
    /// n: the number of parts of a microsecond.
    parts_per_micro: u64,
    /// p: the number of parts that a token lasts.
    parts_per_token: u64,
    /// The duration of one token.
    token: Span,
    /// τ: the fill time of the capacity.
    fill: Span,
    /// The time in which all credits are earned.
    earning: Span,
    /// The latest accepted TAT relative to now: τ, the largest debt, and the tolerance of [`believed_ahead`].
    furthest: Span,
}

/// Hashes the parameters; the other fields derive from them.
impl Hash for TokenBucket {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { capacity, credits, credit_ttl, parts_per_micro, parts_per_token, furthest, .. } = self;
        (capacity, credits, credit_ttl, parts_per_micro, parts_per_token, furthest.micros).hash(hasher);
    }
}

/// The state of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucketState {
    /// The whole microseconds of the TAT since the epoch: the instant at which the bucket holds its capacity again.
    pub tat_micros: u64,
    /// The fraction of the TAT in parts, less than `parts_per_micro`.
    pub tat_parts: u64,
    /// The number of parts per microsecond when the state was written; another rate may use another number.
    pub parts_per_micro: u64,
    /// The last microsecond at which this state is live.
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

    /// A bucket in which an identity may also earn up to `credits` tokens above `capacity`, retained for `credit_ttl`
    /// of idleness.
    ///
    /// # Errors
    /// As [`TokenBucket::new`]; also if capacity and credits together are above [`UNITS_MAX`], or the `credit_ttl` is
    /// not within 1 ms to ten years.
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
        let fill = lasting(capacity).ok_or_else(too_slow)?;
        let earning = lasting(credits).ok_or_else(too_slow)?;
        let furthest = furthest(fill, full);
        Ok(Self {
            capacity,
            credits,
            credit_ttl,
            parts_per_micro,
            parts_per_token,
            token,
            fill,
            earning,
            furthest,
        })
    }

    /// The same bucket without credits, for a state that is also used with other parameters, as `CL.THROTTLE` allows.
    /// It accepts a TAT however far ahead another bucket has set it, so a shorter fill time never erases the charges
    /// under a longer one. Only a TAT beyond ten years, which no bucket can set, counts as damaged. So its debt is also
    /// at most ten years.
    #[must_use]
    pub fn on_shared_state(self) -> Self {
        let furthest = self.fill.later_by(Micros::PERIOD_MAX);
        Self { credits: 0, earning: Span { micros: 0, parts: 0 }, furthest, ..self }
    }

    /// True for a bucket that shares its state with other parameters.
    #[must_use]
    pub fn is_on_shared_state(&self) -> bool {
        self.tolerance() == Micros::PERIOD_MAX
    }

    /// The distance beyond the TAT of an empty bucket up to which a TAT is accepted.
    #[must_use]
    pub fn tolerance(&self) -> Micros {
        Micros::from_micros(self.furthest.micros - self.fill.micros)
    }

    /// The number of tokens of an identity without history.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of tokens above the capacity that can be earned.
    #[must_use]
    pub const fn credits(&self) -> u64 {
        self.credits
    }

    /// n: the number of parts per microsecond, chosen so that every token lasts a whole number of parts.
    #[must_use]
    pub const fn parts_per_micro(&self) -> u64 {
        self.parts_per_micro
    }

    /// p: the number of these parts that a token lasts.
    #[must_use]
    pub const fn parts_per_token(&self) -> u64 {
        self.parts_per_token
    }

    /// The retention of earned credits.
    #[must_use]
    pub const fn credit_ttl(&self) -> Micros {
        self.credit_ttl
    }

    #[inline]
    fn lasting(&self, cost: Cost) -> Span {
        if cost == Cost::ONE {
            return self.token;
        }
        // A longer time than any TAT may be ahead is as good as 2⁶⁴ µs: it never fits, and is the largest debt.
        self.of_tokens(cost.units()).unwrap_or(self.furthest)
    }

    #[inline]
    fn of_tokens(&self, tokens: u64) -> Option<Span> {
        Span::of_tokens(tokens, self.parts_per_token, self.parts_per_micro)
    }

    /// The TAT of a bucket with the largest debt.
    fn deepest(&self, now: Timestamp) -> Span {
        let most = Span { micros: self.tolerance().as_micros(), parts: 0 };
        let debt = self.of_tokens(self.limit() * DEBT_LIMITS_MAX).map_or(most, |debt| debt.min(most));
        self.plus(self.empty(now), debt)
    }

    /// The TAT after a forced charge, without and with the bound on debt. A TAT may be later already: the clock has
    /// stepped back, or the state belongs to other parameters, too.
    fn forced(&self, state: Option<&TokenBucketState>, cost: Cost, now: Timestamp) -> (Span, Span) {
        let tat = self.tat(state, now);
        let owed = self.plus(tat, self.lasting(cost));
        (owed, owed.min(self.deepest(now)).max(tat))
    }

    /// The tokens by which this TAT is beyond an earlier one, rounded up.
    #[cold]
    fn tokens_beyond(&self, tat: Span, earlier: Span) -> u64 {
        self.minus(tat, earlier).tokens_begun(self.parts_per_token, self.parts_per_micro)
    }

    /// The TAT of `state` at `now`, at the earliest that of all credits earned. Without a state it is `now`, which
    /// means the full capacity and no credits.
    #[inline]
    fn tat(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Span {
        match state {
            Some(state) if !self.is_forgotten(state, now) => self.read(state).max(self.earliest(now)),
            _ => Span::at(now),
        }
    }

    /// The TAT of a bucket with its full capacity and all credits.
    #[inline]
    fn earliest(&self, now: Timestamp) -> Span {
        if self.credits == 0 { Span::at(now) } else { self.minus(Span::at(now), self.earning) }
    }

    /// The TAT of an empty bucket.
    #[inline]
    fn empty(&self, now: Timestamp) -> Span {
        self.plus(Span::at(now), self.fill)
    }

    /// True if the credits have expired. Without credits, dropping a state has no effect, so the question does not
    /// arise.
    #[inline]
    fn is_forgotten(&self, state: &TokenBucketState, now: Timestamp) -> bool {
        self.credits > 0 && now.as_micros() > self.matters_until(state)
    }

    /// Never before the capacity is refilled, whatever a damaged state contains: otherwise the promised wait would be
    /// wrong.
    fn matters_until(&self, state: &TokenBucketState) -> u64 {
        state.kept_until_micros.max(self.read(state).ceil_micros())
    }

    /// The end of the client's retention; `None` if the client has no history.
    #[inline]
    fn known_until(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Option<u64> {
        state.filter(|state| !self.is_forgotten(state, now)).map(|state| self.matters_until(state))
    }

    #[inline]
    fn read(&self, state: &TokenBucketState) -> Span {
        if state.parts_per_micro == self.parts_per_micro && state.tat_parts < self.parts_per_micro {
            return Span { micros: state.tat_micros, parts: state.tat_parts };
        }
        // Written under another rate: rounding up costs the client at most 1 µs and never gains anything.
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

    /// The last instant at which a state written at `now` is live: until the bucket is full, and with credits at
    /// least for `credit_ttl`.
    #[inline]
    fn kept_from(&self, tat: Span, now: Timestamp) -> u64 {
        let whole_at = self.plus(tat, self.earning).ceil_micros();
        if self.credits == 0 { whole_at } else { whole_at.max(now.plus(self.credit_ttl).as_micros()) }
    }

    /// True if a token lasts whole microseconds and there are no credits, as with most limits in practice.
    #[inline]
    fn is_whole(&self) -> bool {
        self.parts_per_micro == 1 && self.credits == 0
    }

    /// [`Algorithm::decide`] for [`TokenBucket::is_whole`]: the same rules on plain integers. Returns the new TAT, if
    /// there is one.
    #[inline(always)]
    fn decide_whole(&self, tat_micros: u64, cost: Cost, now: Timestamp) -> (Option<u64>, Verdict) {
        let now = now.as_micros();
        let empty = now + self.fill.micros;
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
        let reset_after = Micros::from_micros(tat - now);
        let standing = if tat <= empty {
            Standing { remaining: (empty - tat) / self.parts_per_token, debt: 0, reset_after }
        } else {
            Standing { remaining: 0, debt: (tat - empty).div_ceil(self.parts_per_token), reset_after }
        };
        Verdict::new(outcome, self.capacity, standing)
    }

    /// Whether `cost` fits at this TAT. The history of the client is retained until `known_until`, if there is one.
    #[inline]
    fn judge(&self, tat: Span, known_until: Option<u64>, cost: Cost, now: Timestamp) -> Outcome {
        if cost.units() > self.limit() {
            return Outcome::NeverAdmissible;
        }
        let tat = self.plus(tat, self.lasting(cost));
        let empty = self.empty(now);
        if tat <= empty {
            return Outcome::Allowed;
        }
        let retry_after = Micros::from_micros(self.minus(tat, empty).ceil_micros());
        // A cost above the capacity needs credits. A client without history earns none by waiting, because a denial
        // stores no state. A client loses its credits if its history expires before the wait is over.
        let needs_credits = self.credits > 0 && cost.units() > self.capacity;
        if needs_credits && known_until.is_none_or(|until| now.plus(retry_after).as_micros() > until) {
            return Outcome::NeverAdmissible;
        }
        Outcome::Denied { retry_after }
    }

    /// The standing of the bucket at this TAT. A client without history has nothing to wait for.
    #[inline]
    fn stand(&self, tat: Span, is_known: bool, now: Timestamp) -> Standing {
        let empty = self.empty(now);
        let left = self.minus(empty, tat);
        let whole_at = if is_known { self.plus(tat, self.earning).ceil_micros() } else { 0 };
        Standing {
            remaining: left.whole_tokens(self.parts_per_token, self.parts_per_micro),
            debt: if tat <= empty { 0 } else { self.tokens_beyond(tat, empty) },
            reset_after: Micros::from_micros(whole_at.saturating_sub(now.as_micros())),
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

    /// `left − right`, or zero if that is negative.
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

/// The latest accepted TAT relative to now, of a bucket with these fill times of its capacity and of its whole limit.
/// Whole microseconds beyond the first, so that it is rounded to the lenient side.
fn furthest(fill: Span, full: Span) -> Span {
    let full = Micros::from_micros(full.ceil_micros());
    let debt = full.as_micros().saturating_mul(DEBT_LIMITS_MAX);
    fill.later_by(Micros::from_micros(debt.saturating_add(believed_ahead(full).as_micros())))
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;
    const NAME: &'static str = "token_bucket";

    fn limit(&self) -> u64 {
        self.capacity + self.credits
    }

    fn window(&self) -> Micros {
        Micros::from_micros(self.plus(self.fill, self.earning).ceil_micros())
    }

    #[inline]
    fn repair(&self, state: &TokenBucketState, now: Timestamp) -> Option<TokenBucketState> {
        if self.read(state) <= self.plus(Span::at(now), self.furthest) {
            return None;
        }
        let empty = self.empty(now);
        Some(self.written(empty, self.kept_from(empty, now)))
    }

    fn outcome(&self, state: Option<&TokenBucketState>, cost: Cost, now: Timestamp) -> Outcome {
        self.judge(self.tat(state, now), self.known_until(state, now), cost, now)
    }

    fn charge(&self, state: Option<TokenBucketState>, cost: Cost, now: Timestamp) -> TokenBucketState {
        let tat = self.plus(self.tat(state.as_ref(), now), self.lasting(cost));
        self.written(tat, self.kept_from(tat, now))
    }

    /// The bound on debt is below the accepted TAT by the tolerance of `believed_ahead`. Otherwise a request that is a
    /// little late would take the largest debt for damaged, and erase all of it.
    fn force(&self, state: Option<TokenBucketState>, cost: Cost, now: Timestamp) -> Option<TokenBucketState> {
        let (_, tat) = self.forced(state.as_ref(), cost, now);
        Some(self.written(tat, self.kept_from(tat, now)))
    }

    fn cut_off(&self, state: Option<&TokenBucketState>, cost: Cost, now: Timestamp) -> u64 {
        let (owed, tat) = self.forced(state, cost, now);
        if owed == tat { 0 } else { self.tokens_beyond(owed, tat).min(cost.units()) }
    }

    fn refund(&self, state: TokenBucketState, cost: Cost, now: Timestamp) -> TokenBucketState {
        if self.is_forgotten(&state, now) || self.read(&state) <= self.earliest(now) {
            // The bucket is full. Writing it again would only refresh its retention.
            return state;
        }
        let tat = match self.of_tokens(cost.units()) {
            Some(length) => self.minus(self.tat(Some(&state), now), length).max(self.earliest(now)),
            None => self.earliest(now),
        };
        let kept_until = if self.credits > 0 { state.kept_until_micros } else { tat.ceil_micros() };
        self.written(tat, kept_until)
    }

    fn standing(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Standing {
        self.stand(self.tat(state, now), self.known_until(state, now).is_some(), now)
    }

    /// As the provided method, but with every instant computed once: this is the hottest path of the crate.
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
        let known_until = self.known_until(state.as_ref(), now);
        let tat = self.tat(state.as_ref(), now);
        let outcome = if cost.is_zero() { Outcome::Allowed } else { self.judge(tat, known_until, cost, now) };
        if cost.is_zero() || !outcome.is_allowed() {
            return (state, Verdict::new(outcome, self.limit(), self.stand(tat, known_until.is_some(), now)));
        }
        let tat = self.plus(tat, self.lasting(cost));
        let state = self.written(tat, self.kept_from(tat, now));
        (Some(state), Verdict::new(outcome, self.limit(), self.stand(tat, true, now)))
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
