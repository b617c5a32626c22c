//! The decision time of each line. Time never decreases: a late line is decided at the latest time before it, as a server
//! decides a request that arrives late.
//!
//! Two kinds of lines are rejected, because their times would distort all others. One is a line that is later than the window
//! allows, which indicates files in the wrong order. The other jumps ahead by more than the window while the next line does
//! not follow, which indicates a corrupt date.

use serde::Serialize;

use super::format::time::AT_MICROS_MAX;

/// Assigns decision times to lines.
#[derive(Debug)]
pub(super) struct TimeOrder {
    window_micros: u64,
    latest: Option<u64>,
    /// The latest time before the last line, if that line jumped ahead.
    before_jump: Option<Option<u64>>,
    late: LateLines,
}

/// The number of late lines, and the largest delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LateLines {
    pub(super) lines: u64,
    pub(super) micros_max: u64,
}

/// The treatment of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Decide it at this time.
    At(u64),
    /// Reject it, because it is later than the window allows.
    TooLate,
    /// Decide it at this time, and reject the line before it, whose jump ahead had no successor.
    WithoutLast(u64),
}

impl LateLines {
    /// The largest delay in seconds, rounded up.
    pub(super) fn seconds_max(self) -> u64 {
        self.micros_max.div_ceil(1_000_000)
    }
}

impl TimeOrder {
    pub(super) fn new(window_micros: u64) -> Self {
        Self { window_micros, latest: None, before_jump: None, late: LateLines::default() }
    }

    /// Whether the last line may still be rejected.
    pub(super) fn is_last_in_doubt(&self) -> bool {
        self.before_jump.is_some()
    }

    /// Accepts the last line, because no line follows it.
    pub(super) fn accept_last(&mut self) {
        self.before_jump = None;
    }

    pub(super) fn late(&self) -> LateLines {
        self.late
    }

    /// Places the next line.
    #[inline]
    pub(super) fn place(&mut self, at_micros: u64) -> Placement {
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
            return Placement::TooLate;
        }
        if behind > 0 {
            self.late.lines += 1;
            self.late.micros_max = self.late.micros_max.max(behind);
        }
        self.latest = Some(latest.max(at_micros));
        Placement::At(latest.max(at_micros))
    }

    /// Places a line that does not follow the jump before it. If the line is too late even without the jump, the jump stays in
    /// doubt.
    fn place_without_last(&mut self, at_micros: u64, before: Option<u64>) -> Placement {
        let jumped = (self.latest, self.before_jump);
        (self.latest, self.before_jump) = (before, None);
        match self.place(at_micros) {
            Placement::At(at_micros) => Placement::WithoutLast(at_micros),
            other => {
                (self.latest, self.before_jump) = jumped;
                other
            }
        }
    }

    fn jump(&mut self, at_micros: u64) -> Placement {
        self.before_jump = Some(self.latest.replace(at_micros.min(AT_MICROS_MAX)));
        Placement::At(at_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(window: u64, times: &[u64]) -> (Vec<Placement>, LateLines) {
        let mut order = TimeOrder::new(window);
        let placed = times.iter().map(|at| order.place(*at)).collect();
        (placed, order.late())
    }

    #[test]
    fn late_lines_are_decided_at_the_latest_time_before_them() {
        use Placement::{At, TooLate};
        let (lines, late) = placed(10, &[100, 105, 103, 105, 95, 94, 115, 106]);
        assert_eq!(lines, [At(100), At(105), At(105), At(105), At(105), TooLate, At(115), At(115)]);
        assert_eq!(late, LateLines { lines: 3, micros_max: 10 });
    }

    #[test]
    fn a_jump_ahead_is_accepted_only_if_the_next_line_follows() {
        use Placement::{At, TooLate, WithoutLast};
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
