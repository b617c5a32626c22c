//! The parts of a limit, valid by construction: [`Rate`], [`Cost`], and the error of their constructors. The limits
//! themselves are defined with their algorithm in [`crate::algorithm`].

use crate::time::Micros;
use std::fmt;

/// The maximum number of units of a limit: fifteen digits, the largest integer of a structured HTTP field, and exact
/// in a double.
pub const UNITS_MAX: u64 = 999_999_999_999_999;

/// The largest debt of a limit, in full limits. A forced charge beyond it is cut off, so one mistaken report does not
/// exclude a client for years: a bucket in the largest debt is full again after eleven of its fill times.
pub const DEBT_LIMITS_MAX: u64 = 10;

/// The most units that a counter of a limit may hold: the limit and its largest debt, and at most the largest integer
/// with an exact successor in a double.
pub(crate) const fn units_with_debt(limit: u64) -> u64 {
    let units = limit * (DEBT_LIMITS_MAX + 1);
    let exact = (1 << 53) - 1;
    if units < exact { units } else { exact }
}

/// The number of units that a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// Zero: a request that charges nothing.
    pub const ZERO: Self = Self(0);
    /// The default cost of a request.
    pub const ONE: Self = Self(1);

    /// A cost of `units`.
    #[must_use]
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// The number of units, as 64 bits.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0 as u64
    }

    /// The number of units, as 32 bits.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// True for [`Cost::ZERO`].
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// `amount` units per `period`, stored as a fraction: 100 per minute is exact, never 1.67 per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    amount: u64,
    period: Micros,
}

impl Rate {
    /// A rate of `amount` units per `period`.
    ///
    /// # Errors
    /// If the amount is not within 1 to [`UNITS_MAX`], or the period not within 1 µs to ten years.
    pub fn new(amount: u64, period: Micros) -> Result<Self, QuotaError> {
        units_between("refill amount", amount, 1, UNITS_MAX)?;
        length_between("refill period", period, Micros::from_micros(1))?;
        Ok(Self { amount, period })
    }

    /// Units per period.
    #[must_use]
    pub const fn amount(self) -> u64 {
        self.amount
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Micros {
        self.period
    }
}

/// The error for a number that is not valid in a limit: the field, the value, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    field: &'static str,
    value: u128,
    remedy: String,
}

impl QuotaError {
    pub(crate) fn new(field: &'static str, value: impl Into<u128>, remedy: impl Into<String>) -> Self {
        Self { field, value: value.into(), remedy: remedy.into() }
    }

    /// The name of the field, as the configuration spells it.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The rejected value; durations are in microseconds.
    #[must_use]
    pub fn value(&self) -> u128 {
        self.value
    }

    /// The valid values.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is {}: {}", self.field, self.value, self.remedy)
    }
}

impl std::error::Error for QuotaError {}

pub(crate) fn units_between(field: &'static str, value: u64, low: u64, high: u64) -> Result<(), QuotaError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(QuotaError::new(field, value, format!("use a whole number from {low} to {high}")))
}

pub(crate) fn length_between(field: &'static str, value: Micros, low: Micros) -> Result<(), QuotaError> {
    if (low..=Micros::PERIOD_MAX).contains(&value) {
        return Ok(());
    }
    let remedy = format!("use at least {} µs and at most ten years (3650d)", low.as_micros());
    Err(QuotaError::new(field, value.as_micros(), remedy))
}

/// Checks that a window is whole milliseconds. The sliding counter computes in milliseconds to stay exact in a
/// double, and one granularity keeps all windows comparable.
pub(crate) fn window_length(window: Micros) -> Result<(), QuotaError> {
    length_between("window", window, Micros::from_millis(1))?;
    if window.as_micros().is_multiple_of(1_000) {
        return Ok(());
    }
    Err(QuotaError::new("window", window.as_micros(), "use a whole number of milliseconds"))
}
