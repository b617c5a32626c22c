//! Every state that a small system can reach, in the order of the fewest steps.
//!
//! A [`Model`] says what can happen in a state and what comes of it. [`explore`] tries everything from the beginning,
//! never the same state twice, until nothing is new; the way to the first state that is wrong is the shortest there is.
//! States are told apart by 128 bits of a hash of their key: that two share them is less likely than a broken machine.

use std::collections::{HashSet, VecDeque};
use std::fmt::{Debug, Write};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A system in small.
pub trait Model {
    /// Everything there is.
    type State: Clone + Debug;
    /// Something that can happen.
    type Action: Copy + Debug;

    /// How it begins.
    fn start(&self) -> Self::State;

    /// All that can happen now.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// What comes of it, or what is wrong with it.
    ///
    /// # Errors
    /// If something happens that must not.
    fn step(&self, state: &Self::State, action: Self::Action) -> Result<Self::State, String>;

    /// What tells this state from others: two states with one key must go on alike.
    fn key(&self, state: &Self::State, key: &mut Vec<u8>);
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// How many states there are.
    pub states: usize,
    /// How many steps were tried.
    pub steps: usize,
    /// How many steps away the furthest is.
    pub depth: usize,
}

/// Tries everything.
///
/// # Errors
/// The shortest way to something that must not happen, or that there are more than `most` states.
pub fn explore<M: Model>(model: &M, most: usize) -> Result<Explored, String> {
    let start = model.start();
    let mut seen = Seen::default();
    seen.is_new(model, &start);
    // Where each state came from, by the order of discovery.
    let mut origins: Vec<Option<(usize, M::Action)>> = vec![None];
    let mut frontier = VecDeque::from([(0, 0, start)]);
    let (mut actions, mut found) = (Vec::new(), Explored { states: 1, steps: 0, depth: 0 });
    while let Some((index, depth, state)) = frontier.pop_front() {
        found.depth = depth;
        actions.clear();
        model.actions(&state, &mut actions);
        for action in &actions {
            found.steps += 1;
            let next = match model.step(&state, *action) {
                Ok(next) => next,
                Err(wrong) => return Err(story(model, &origins, index, *action, &wrong)),
            };
            if !seen.is_new(model, &next) {
                continue;
            }
            if found.states == most {
                return Err(format!("more than {most} states"));
            }
            found.states += 1;
            origins.push(Some((index, *action)));
            frontier.push_back((origins.len() - 1, depth + 1, next));
        }
    }
    Ok(found)
}

/// The states that were seen.
#[derive(Default)]
struct Seen {
    keys: HashSet<u128>,
    key: Vec<u8>,
}

impl Seen {
    fn is_new<M: Model>(&mut self, model: &M, state: &M::State) -> bool {
        self.key.clear();
        model.key(state, &mut self.key);
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let (left, right) = (hasher.hash_one((0, &self.key)), hasher.hash_one((1, &self.key)));
        self.keys.insert(u128::from(left) << 64 | u128::from(right))
    }
}

/// How it came to that, step by step.
fn story<M: Model>(
    model: &M,
    origins: &[Option<(usize, M::Action)>],
    last: usize,
    action: M::Action,
    wrong: &str,
) -> String {
    let mut actions = vec![action];
    let mut index = last;
    while let Some((origin, action)) = origins[index] {
        actions.push(action);
        index = origin;
    }
    let mut text = format!("{wrong}, after {} steps:\n", actions.len());
    let mut state = model.start();
    for action in actions.into_iter().rev() {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "  {action:?}");
        match model.step(&state, action) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    let _ = write!(text, "from {state:?}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters up to a bound that are not both to reach it.
    struct Counters(u8);

    impl Model for Counters {
        type State = [u8; 2];
        type Action = usize;

        fn start(&self) -> [u8; 2] {
            [0, 0]
        }

        fn actions(&self, _: &[u8; 2], actions: &mut Vec<usize>) {
            actions.extend([0, 1]);
        }

        fn step(&self, state: &[u8; 2], action: usize) -> Result<[u8; 2], String> {
            let mut next = *state;
            next[action] = (next[action] + 1).min(4);
            if next.iter().sum::<u8>() > self.0 { Err("too much".to_owned()) } else { Ok(next) }
        }

        fn key(&self, state: &[u8; 2], key: &mut Vec<u8>) {
            key.extend(state);
        }
    }

    #[test]
    fn every_state_is_seen_once() {
        assert_eq!(explore(&Counters(8), 25), Ok(Explored { states: 25, steps: 50, depth: 8 }));
        assert_eq!(explore(&Counters(8), 24), Err("more than 24 states".to_owned()));
    }

    #[test]
    fn the_shortest_way_to_what_is_wrong_is_told() {
        let story = explore(&Counters(1), 25).unwrap_err();
        assert_eq!(story, "too much, after 2 steps:\n  0\n  0\nfrom [1, 0]");
    }
}
