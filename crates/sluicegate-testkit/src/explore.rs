//! A model checker: breadth-first exploration of every state that a small system can reach.
//!
//! A [`Model`] defines the possible actions in a state and the result of each. [`explore`] tries all actions from the
//! start state, visits no state twice, and stops when no new state appears. The action sequence to the first invalid
//! state is therefore the shortest one. States are identified by a 128-bit hash of their key; a collision is less
//! likely than a hardware error.

use std::collections::{HashSet, VecDeque};
use std::fmt::{Debug, Write};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// A small system to explore.
pub trait Model {
    /// The complete state of the system.
    type State: Clone + Debug;
    /// An action that is possible in some state.
    type Action: Copy + Debug;

    /// The start state.
    fn start(&self) -> Self::State;

    /// Appends all actions that are possible in this state.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Applies an action and returns the next state.
    ///
    /// # Errors
    /// If the action violates an invariant.
    fn step(&self, state: &Self::State, action: Self::Action) -> Result<Self::State, String>;

    /// Writes the identity of a state. Two states with the same key must behave alike from then on.
    fn key(&self, state: &Self::State, key: &mut Vec<u8>);
}

/// Statistics of a complete exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// The number of states.
    pub states: usize,
    /// The number of steps tried.
    pub steps: usize,
    /// The largest distance of a state from the start, in steps.
    pub depth: usize,
}

/// Explores all reachable states.
///
/// # Errors
/// The shortest action sequence to an invalid state, or a message that there are more than `most` states.
pub fn explore<M: Model>(model: &M, most: usize) -> Result<Explored, String> {
    let start = model.start();
    let mut seen = Seen::default();
    seen.is_new(model, &start);
    // The predecessor of each state, in order of discovery.
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

/// The states visited so far.
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

/// The steps that lead to this state, as text.
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

    /// Two counters with an upper bound; the invariant is that they do not both reach it.
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
    fn the_shortest_path_to_a_violation_is_reported() {
        let story = explore(&Counters(1), 25).unwrap_err();
        assert_eq!(story, "too much, after 2 steps:\n  0\n  0\nfrom [1, 0]");
    }
}
