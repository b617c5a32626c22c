//! `CL.THROTTLE` with mixed parameters on few keys, compared with redis-cell's arithmetic. A key has one instant at
//! which its bucket is full, and a quantity moves it by the duration of its tokens under the parameters of that
//! command.
//!
//! Times are fractions of a microsecond, divisible by every count here, so the reference needs no rounding. The
//! product stores whole microseconds when the parameters of a key change. Each change raises the largest permitted
//! charge by one.

use sluicegate_testkit::oracle::draw::Random;

use super::play::now_micros;
use super::scene::Scene;

/// The largest difference between the clocks of two processes.
const CLOCKS_MICROS: u64 = 1_000;
/// A common multiple of all counts.
const PARTS: i128 = 210;
const COUNTS: [i128; 6] = [1, 2, 3, 5, 7, 30];
const PERIODS: [i128; 5] = [1, 1, 10, 3_600, 86_400];
const SECOND: i128 = 1_000_000 * PARTS;
const KEYS: usize = 8;

/// The earliest and the latest instant at which a bucket is full again.
#[derive(Clone, Copy, Default)]
struct Full {
    earliest: i128,
    latest: i128,
}

/// One command.
#[derive(Clone, Copy, Debug)]
struct Command {
    burst: i128,
    count: i128,
    period: i128,
    quantity: i128,
}

impl Command {
    fn draw(random: &mut Random) -> Self {
        Self {
            burst: i128::from(random.below(8)),
            count: random.one_of(&COUNTS),
            period: random.one_of(&PERIODS),
            quantity: random.one_of(&[0, 1, 1, 1, 1, 2, 3, 5, 9]),
        }
    }

    /// The time of one token.
    fn token(self) -> i128 {
        self.period * SECOND / self.count
    }

    fn size(self) -> i128 {
        self.burst + 1
    }

    /// The time of the tokens of the command.
    fn taken(self) -> i128 {
        self.token() * self.quantity
    }

    /// The wait of the command. A command of quantity zero waits, too, if other parameters have charged more than
    /// these hold.
    fn wait(self, full: i128, now: i128) -> i128 {
        (full.max(now) + self.taken() - self.token() * self.size() - now).max(0)
    }

    /// The remaining tokens.
    fn remaining(self, full: i128, now: i128) -> i128 {
        let missing = (full - now).max(0);
        ((self.token() * self.size() - missing).div_euclid(self.token())).max(0)
    }
}

fn secs(parts: i128) -> i128 {
    (parts + SECOND - 1).div_euclid(SECOND)
}

/// Executes this many commands. With `denials_are_remembered`, the values of a limited reply may be those of an
/// earlier one.
pub(super) fn play(scene: &mut Scene, seed: u64, commands: usize, denials_are_remembered: bool) -> [usize; 2] {
    let mut random = Random::new(seed);
    let (mut keys, mut counts, mut log) = ([Full::default(); KEYS], [0; 2], String::new());
    for _ in 0..commands {
        let key = random.below(KEYS as u64) as usize;
        if random.percent(3) {
            scene.resp.send(format!("DEL t{seed}-{key}\r\n"));
            scene.resp.read_line();
            keys[key] = Full::default();
            log += &format!("DEL {key}\n");
            continue;
        }
        let command = Command::draw(&mut random);
        let Command { burst, count, period, quantity } = command;
        let from = i128::from(now_micros() - CLOCKS_MICROS) * PARTS;
        scene.resp.send(format!("CL.THROTTLE t{seed}-{key} {burst} {count} {period} {quantity}\r\n"));
        let told: Vec<i128> =
            scene.resp.read_values().iter().map(|value| value.as_i64().expect("a number").into()).collect();
        let to = i128::from(now_micros() + CLOCKS_MICROS) * PARTS;
        log += &format!("{from} key {key}: {command:?} {told:?}\n");
        let full = &mut keys[key];
        let limited = told[0] == 1;
        counts[usize::from(limited)] += 1;
        if let Some(wrong) = differences(command, *full, (from, to), &told, denials_are_remembered) {
            panic!("seed {seed}, key {key}, between {from} and {to}: {wrong}\n{log}");
        }
        if !limited && quantity > 0 {
            full.earliest = full.earliest.max(from) + command.taken();
            full.latest = full.latest.max(to) + command.taken() + PARTS;
        }
    }
    counts
}

fn differences(
    command: Command,
    full: Full,
    (from, to): (i128, i128),
    told: &[i128],
    denials_are_remembered: bool,
) -> Option<String> {
    let [limited, limit, remaining, retry, reset] = told else { return Some(format!("{told:?}")) };
    let never = command.quantity > command.size();
    let (least, most) = (command.wait(full.earliest, to), command.wait(full.latest, from));
    let outcome = if *limited == 1 { never || most > 0 } else { !never && least == 0 };
    if !outcome || *limit != command.size() {
        return Some(format!("limited or not, it waits between {least} and {most}; {} tokens", command.size()));
    }
    if *limited == 1 && denials_are_remembered {
        return None;
    }
    let after = |full: i128, now: i128| if *limited == 1 { full } else { full.max(now) + command.taken() };
    let numbers = [
        (
            "remaining",
            *remaining,
            [command.remaining(after(full.latest, from), from), command.remaining(after(full.earliest, to), to)],
        ),
        (
            "reset",
            *reset,
            [
                secs((after(full.earliest, to) - to).max(0)).min(secs((after(full.earliest, from) - to).max(0))),
                secs((after(full.latest, to) - from).max(0)),
            ],
        ),
        ("retry", *retry, if *limited == 1 && !never { [secs(least.max(1)), secs(most)] } else { [-1, -1] }),
    ];
    let wrong = numbers.iter().find(|(_, told, [least, most])| !(*least..=*most).contains(told));
    wrong.map(|(name, told, between)| format!("{name} is {told}, and may be {between:?}"))
}
