//! The queue against what it promises, over random orders of coming, going and ending.

use super::*;
use proptest::prelude::*;

/// A caller by number, and whether it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Person {
    number: usize,
    is_there: bool,
}

type People = Queue<u64, Person>;

fn digest(decision: u64) -> Digest {
    Digest(decision, !decision)
}

fn come(queue: &mut People, decision: u64, number: usize) -> Joined<u64, Person> {
    let person = Person { number, is_there: true };
    queue.join(digest(decision), person, || decision)
}

fn end(queue: &mut People, call: &Batch<u64, Person>) -> Option<Batch<u64, Person>> {
    queue.end(call.iter().map(|group| group.digest), |person| person.is_there)
}

fn numbers(call: &Batch<u64, Person>) -> Vec<(u64, Vec<usize>)> {
    let of_group =
        |group: &Boarded<u64, Person>| (group.plan, group.waiters.iter().map(|each| each.number).collect());
    call.iter().map(of_group).collect()
}

fn goes(joined: Joined<u64, Person>) -> Batch<u64, Person> {
    match joined {
        Joined::Goes(call) => call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_comes_while_the_same_is_asked_goes_with_the_next_call_in_order() {
    let mut queue = People::default();
    let first = goes(come(&mut queue, 7, 0));
    assert_eq!(numbers(&first), [(7, vec![0])]);
    for number in 1..=3 {
        assert!(matches!(come(&mut queue, 7, number), Joined::Waits));
    }
    // Somebody else's decision does not wait for it.
    let other = goes(come(&mut queue, 8, 4));
    let second = end(&mut queue, &first).unwrap();
    assert_eq!(numbers(&second), [(7, vec![1, 2, 3])]);
    assert!(end(&mut queue, &second).is_none());
    assert!(end(&mut queue, &other).is_none());
    assert!(queue.groups.is_empty() && queue.calls == 0 && queue.waiting == 0);
}

#[test]
fn decisions_go_together_only_when_many_calls_are_under_way() {
    let mut queue = People::default();
    let calls: Vec<_> = (0..CALLS_MAX).map(|number| goes(come(&mut queue, number as u64, number))).collect();
    for number in CALLS_MAX..CALLS_MAX + GROUPS_PER_CALL_MAX + 3 {
        assert!(matches!(come(&mut queue, number as u64, number), Joined::Waits));
    }
    let together = end(&mut queue, &calls[0]).unwrap();
    assert_eq!(together.len(), GROUPS_PER_CALL_MAX);
    assert_eq!(together[0].plan, CALLS_MAX as u64, "who came first goes first");
    assert_eq!(end(&mut queue, &calls[1]).unwrap().len(), 3);
    assert!(end(&mut queue, &calls[2]).is_none());
}

#[test]
fn who_has_gone_is_left_behind_and_a_group_of_those_is_forgotten() {
    let mut queue = People::default();
    let first = goes(come(&mut queue, 7, 0));
    for number in 1..=2 {
        come(&mut queue, 7, number);
    }
    for waiter in &mut queue.groups.get_mut(&digest(7)).unwrap().waiters {
        waiter.is_there = false;
    }
    assert!(end(&mut queue, &first).is_none());
    assert!(queue.groups.is_empty() && queue.calls == 0 && queue.waiting == 0);
}

#[test]
fn the_line_is_served_from_its_front() {
    let mut queue = People::default();
    let first = goes(come(&mut queue, 7, 0));
    for number in 1..=3 {
        come(&mut queue, 7, number);
    }
    let served: Vec<usize> = queue.next_in_line(digest(7), 2).iter().map(|person| person.number).collect();
    assert_eq!(served, [1, 2]);
    assert!(queue.next_in_line(digest(8), 2).is_empty());
    assert_eq!(numbers(&end(&mut queue, &first).unwrap()), [(7, vec![3])]);
}

#[test]
fn no_more_wait_than_may() {
    let mut queue = People::default();
    let first = goes(come(&mut queue, 7, 0));
    for number in 1..=WAITING_MAX {
        assert!(matches!(come(&mut queue, 7, number), Joined::Waits));
    }
    assert!(matches!(come(&mut queue, 7, 0), Joined::Full));
    // Another decision finds room as long as calls do.
    let other = goes(come(&mut queue, 8, 0));
    let second = end(&mut queue, &first).unwrap();
    assert_eq!(second[0].waiters.len(), (TIMES_MAX as usize).min(WAITING_MAX));
    assert!(matches!(come(&mut queue, 7, 0), Joined::Waits));
    assert!(end(&mut queue, &other).is_none());
}

/// What may happen.
#[derive(Clone, Debug)]
enum Step {
    /// Somebody comes for this decision.
    Come(u64),
    /// Somebody who waits goes away.
    Leave(usize),
    /// One of the calls comes back; so many of its callers have gone, and what they would have had is passed on.
    End { call: usize, gone: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20_u64).prop_map(Step::Come),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => (any::<usize>(), 0..3_usize).prop_map(|(call, gone)| Step::End { call, gone }),
    ]
}

/// The queue, the calls under way, and what is known of everybody who came.
#[derive(Default)]
struct Scene {
    queue: People,
    calls: Vec<Batch<u64, Person>>,
    /// How often each was told something, or left.
    ended: Vec<u32>,
    /// The number of the last one who was boarded, of each decision: nobody overtakes.
    boarded: HashMap<u64, usize>,
}

impl Scene {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Come(decision) => {
                let number = self.ended.len();
                self.ended.push(0);
                if let Joined::Goes(call) = come(&mut self.queue, decision, number) {
                    self.depart(call);
                }
            }
            Step::Leave(pick) => {
                let mut groups: Vec<_> = self.queue.groups.iter_mut().collect();
                groups.sort_by_key(|(digest, _)| digest.0);
                let mut waiters: Vec<_> = groups.into_iter().flat_map(|(_, group)| &mut group.waiters).collect();
                if let Some(count) = waiters.len().checked_sub(1) {
                    let person = &mut waiters[pick % (count + 1)];
                    if std::mem::replace(&mut person.is_there, false) {
                        self.ended[person.number] += 1;
                    }
                }
            }
            Step::End { call, gone } if !self.calls.is_empty() => {
                let call = self.calls.swap_remove(call % self.calls.len());
                self.land(call, gone);
            }
            Step::End { .. } => {}
        }
        self.check();
    }

    fn depart(&mut self, call: Batch<u64, Person>) {
        for group in &call {
            assert!(!group.waiters.is_empty());
            for person in &group.waiters {
                assert!(person.is_there && self.boarded.insert(group.plan, person.number) < Some(person.number));
            }
        }
        self.calls.push(call);
    }

    fn land(&mut self, call: Batch<u64, Person>, gone: usize) {
        for group in &call {
            group.waiters.iter().for_each(|person| self.ended[person.number] += 1);
            for person in self.queue.next_in_line(group.digest, gone.min(group.waiters.len())) {
                self.boarded.insert(group.plan, person.number);
                self.ended[person.number] += u32::from(person.is_there);
            }
        }
        if let Some(next) = end(&mut self.queue, &call) {
            self.depart(next);
        }
    }

    fn check(&self) {
        let Self { queue, calls, ended, .. } = self;
        assert!(ended.iter().all(|times| *times <= 1), "somebody was told twice");
        assert_eq!(queue.calls, calls.len());
        assert!(calls.len() <= CALLS_MAX);
        let mut under_way: Vec<u64> = calls.iter().flatten().map(|group| group.plan).collect();
        let count = under_way.len();
        under_way.sort_unstable();
        under_way.dedup();
        assert_eq!(under_way.len(), count, "two calls speak of one group");
        let waiting: usize = queue.groups.values().map(|group| group.waiters.len()).sum();
        assert_eq!(queue.waiting, waiting);
        assert!(queue.next.is_empty() || calls.len() == CALLS_MAX, "somebody waits for nothing");
        let waits_for_nothing = |(digest, group): (&Digest, &Group<u64, Person>)| {
            !under_way.contains(&group.plan) && !queue.next.contains(digest)
        };
        assert!(!queue.groups.iter().any(waits_for_nothing), "a group is never sent");
    }
}

proptest! {
    #[test]
    fn everybody_is_told_once_and_nobody_waits_in_vain(steps in prop::collection::vec(step(), 1..400)) {
        let mut scene = Scene::default();
        steps.iter().for_each(|step| scene.take(step));
        while !scene.calls.is_empty() {
            scene.take(&Step::End { call: 0, gone: 0 });
        }
        prop_assert!(scene.ended.iter().all(|times| *times == 1));
        prop_assert!(scene.queue.groups.is_empty() && scene.queue.next.is_empty());
    }
}
