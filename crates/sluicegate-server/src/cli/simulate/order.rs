//! The time of each line. Time never goes back: a line that is late is decided at the latest time seen before it, as a
//! server would decide a request that took so long to arrive.
//!
//! Two kinds of lines are not believed, because either would spoil all others: one that is later than the window allows
//! (files in the wrong order), and one that jumps ahead by more than that while the line after it does not follow (a
//! broken date).

use super::format::time::AT_MICROS_MAX;

/// Puts lines into time.
#[derive(Debug)]
pub(super) struct Order {
    window_micros: u64,
    latest: Option<u64>,
    /// The latest time before the last line, if that line jumped ahead.
    before_jump: Option<Option<u64>>,
    late: Late,
}

/// How many lines were late, and how much the latest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) lines: u64,
    pub(super) micros_max: u64,
}

/// What to do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// Decide it at this time.
    At(u64),
    /// It is later than the window allows.
    TooLate,
    /// Decide it at this time, and forget the line before it, which jumped ahead alone.
    WithoutLast(u64),
}

impl Order {
    pub(super) fn new(window_micros: u64) -> Self {
        Self { window_micros, latest: None, before_jump: None, late: Late::default() }
    }

    /// Whether the line that was placed last may still have to be forgotten.
    pub(super) fn is_last_in_doubt(&self) -> bool {
        self.before_jump.is_some()
    }

    /// Leaves no doubt about the last line: nothing comes after it.
    pub(super) fn believe(&mut self) {
        self.before_jump = None;
    }

    pub(super) fn late(&self) -> Late {
        self.late
    }

    /// Takes the next line.
    #[inline]
    pub(super) fn place(&mut self, at_micros: u64) -> Placed {
        if let (Some(before), Some(latest)) = (self.before_jump, self.latest)
            && at_micros.saturating_add(self.window_micros) < latest
        {
            return self.place_without_last(at_micros, before);
        }
        self.before_jump = None;
        let Some(latest) = self.latest else { return self.jump(at_micros) };
        if at_micros > latest.saturating_add(self.window_micros) {
            return self.jump(at_micros);
        }
        let behind = latest.saturating_sub(at_micros);
        if behind > self.window_micros {
            return Placed::TooLate;
        }
        if behind > 0 {
            self.late.lines += 1;
            self.late.micros_max = self.late.micros_max.max(behind);
        }
        self.latest = Some(latest.max(at_micros));
        Placed::At(latest.max(at_micros))
    }

    /// Takes a line that does not follow the jump before it. If it is too late even without that, the doubt remains.
    fn place_without_last(&mut self, at_micros: u64, before: Option<u64>) -> Placed {
        let jumped = (self.latest, self.before_jump);
        (self.latest, self.before_jump) = (before, None);
        match self.place(at_micros) {
            Placed::At(at_micros) => Placed::WithoutLast(at_micros),
            other => {
                (self.latest, self.before_jump) = jumped;
                other
            }
        }
    }

    fn jump(&mut self, at_micros: u64) -> Placed {
        self.before_jump = Some(self.latest.replace(at_micros.min(AT_MICROS_MAX)));
        Placed::At(at_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(window: u64, times: &[u64]) -> (Vec<Placed>, Late) {
        let mut order = Order::new(window);
        let placed = times.iter().map(|at| order.place(*at)).collect();
        (placed, order.late())
    }

    #[test]
    fn late_lines_are_decided_at_the_latest_time() {
        use Placed::{At, TooLate};
        let (lines, late) = placed(10, &[100, 105, 103, 105, 95, 94, 115, 106]);
        assert_eq!(lines, [At(100), At(105), At(105), At(105), At(105), TooLate, At(115), At(115)]);
        assert_eq!(late, Late { lines: 3, micros_max: 10 });
    }

    #[test]
    fn a_jump_ahead_counts_only_if_the_next_line_follows() {
        use Placed::{At, TooLate, WithoutLast};
        assert_eq!(
            placed(10, &[100, 101, 999, 102, 103]).0,
            [At(100), At(101), At(999), WithoutLast(102), At(103)]
        );
        assert_eq!(placed(10, &[100, 999, 990, 102]).0, [At(100), At(999), At(999), TooLate]);
        assert_eq!(placed(10, &[999, 100, 101]).0, [At(999), WithoutLast(100), At(101)]);
        assert_eq!(placed(10, &[100, 999, 50, 101]).0, [At(100), At(999), TooLate, WithoutLast(101)]);
        assert_eq!(placed(10, &[0, 500, 1_000, 501]).0, [At(0), At(500), At(1_000), WithoutLast(501)]);
    }
}
