//! Models for loom, which runs them in every order that threads can take: callers who join while a call is under way,
//! ends, and goes again with who has come meanwhile. The queue is behind a lock, as a flight uses it; a call is nothing
//! but the time between two turns of that lock.

use super::{Batch, Digest, Joined, Queue};
use crate::sync::Mutex;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// What has become of somebody.
const WAITING: usize = 0;
const TOLD: usize = 1;
const GONE: usize = 2;

type Call = Batch<u64, usize>;

/// Everybody who comes, and the way that their calls go.
struct Scene {
    queue: Mutex<Queue<u64, usize>>,
    /// What has become of each caller.
    people: Vec<AtomicUsize>,
    /// How many calls speak of each decision at the moment.
    under_way: Vec<AtomicUsize>,
    /// How many charges were made, and how many of them nobody wanted any more.
    charged: AtomicUsize,
    unused: AtomicUsize,
}

impl Scene {
    fn new(people: usize, decisions: usize) -> Arc<Self> {
        let zeros = |count| (0..count).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self {
            queue: Mutex::default(),
            people: zeros(people),
            under_way: zeros(decisions),
            charged: AtomicUsize::new(0),
            unused: AtomicUsize::new(0),
        })
    }

    /// Somebody comes, and flies if there is something to fly.
    fn come(&self, decision: u64, person: usize) {
        let joined = self.queue.lock().join(Digest(decision, decision), person, || decision);
        match joined {
            Joined::Goes(call) => self.fly(call),
            Joined::Waits => {}
            Joined::Full => unreachable!("there are few"),
        }
    }

    fn fly(&self, call: Call) {
        let mut next = Some(call);
        while let Some(call) = next {
            for group in &call {
                let others = self.under_way[group.plan as usize].fetch_add(1, Ordering::AcqRel);
                assert_eq!(others, 0, "two calls speak of one group");
            }
            for group in &call {
                self.land(group.digest, &group.waiters);
                self.under_way[group.plan as usize].fetch_sub(1, Ordering::AcqRel);
            }
            let is_there = |person: &usize| self.people[*person].load(Ordering::Acquire) != GONE;
            next = self.queue.lock().end(call.iter().map(|group| group.digest), is_there);
        }
    }

    /// One charge was made for each of them. What is left of those who have gone is for the next in line.
    fn land(&self, digest: Digest, waiters: &[usize]) {
        self.charged.fetch_add(waiters.len(), Ordering::AcqRel);
        let mut left = waiters.len() - waiters.iter().filter(|person| self.tell(**person)).count();
        if left > 0 {
            let in_line = self.queue.lock().next_in_line(digest, left);
            left -= in_line.into_iter().filter(|person| self.tell(*person)).count();
        }
        self.unused.fetch_add(left, Ordering::AcqRel);
    }

    /// False if it has gone.
    fn tell(&self, person: usize) -> bool {
        let before = self.people[person].compare_exchange(WAITING, TOLD, Ordering::AcqRel, Ordering::Acquire);
        assert_ne!(before, Err(TOLD), "somebody was told twice");
        before.is_ok()
    }

    /// Somebody waits no longer, unless it was told just now.
    fn leave(&self, person: usize) {
        let _ = self.people[person].compare_exchange(WAITING, GONE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Everybody was told or has gone, every charge is accounted for, and nothing is left behind.
    fn assert_over(&self) {
        let count = |what| self.people.iter().filter(|person| person.load(Ordering::Acquire) == what).count();
        assert_eq!(count(WAITING), 0, "somebody waits for nothing");
        let unused = self.unused.load(Ordering::Acquire);
        assert_eq!(self.charged.load(Ordering::Acquire), count(TOLD) + unused, "a charge was used twice");
        let queue = self.queue.lock();
        assert!(queue.groups.is_empty() && queue.next.is_empty());
        assert_eq!((queue.calls, queue.waiting), (0, 0));
    }
}

fn in_thread(scene: &Arc<Scene>, act: impl FnOnce(&Scene) + 'static) -> thread::JoinHandle<()> {
    let scene = Arc::clone(scene);
    thread::spawn(move || act(&scene))
}

#[test]
fn loom_who_joins_while_a_call_ends_is_told_once_and_no_group_is_called_twice_at_a_time() {
    loom::model(|| {
        let scene = Scene::new(3, 1);
        let others = [1, 2].map(|person| in_thread(&scene, move |scene| scene.come(0, person)));
        scene.come(0, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        scene.assert_over();
    });
}

#[test]
fn loom_what_was_charged_for_who_leaves_is_used_once_at_most() {
    loom::model(|| {
        let scene = Scene::new(2, 1);
        let other = in_thread(&scene, |scene| scene.come(0, 1));
        let leaver = in_thread(&scene, |scene| scene.leave(0));
        scene.come(0, 0);
        other.join().unwrap();
        leaver.join().unwrap();
        scene.assert_over();
    });
}

/// All calls but one are taken by others who do not come back in the meantime, so groups have to go together.
#[test]
fn loom_groups_that_wait_for_a_call_go_when_one_ends() {
    loom::model(|| {
        let scene = Scene::new(3, 3);
        scene.queue.lock().calls = super::CALLS_MAX - 1;
        let others = [1, 2].map(|person| in_thread(&scene, move |scene| scene.come(person as u64, person)));
        scene.come(0, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        scene.queue.lock().calls -= super::CALLS_MAX - 1;
        scene.assert_over();
    });
}
