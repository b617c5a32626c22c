//! The start of calls, and the order of their results.

use std::sync::{Arc, Mutex};

use sluicegate::store::ErrorClass;
use tokio::sync::Semaphore;

use super::*;

/// A pipeline whose calls record their start and end on a signal. Each returns its name in its error.
#[derive(Default)]
struct Probe {
    pipeline: Pipeline,
    begun: Arc<Mutex<Vec<String>>>,
    gates: HashMap<String, Arc<Semaphore>>,
}

impl Probe {
    fn push(&mut self, key: &str, name: &str) {
        let gate = Arc::clone(self.gates.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))));
        let (begun, name) = (Arc::clone(&self.begun), name.to_owned());
        let key = KeyName::read(key.as_bytes()).expect("a key").into_owned();
        self.pipeline.push(key, async move {
            begun.lock().expect("no panic").push(name.clone());
            gate.acquire().await.expect("open").forget();
            Err(StoreError::new(ErrorClass::Busy, name))
        });
    }

    fn let_end(&self, name: &str) {
        self.gates[name].add_permits(1);
    }

    /// Runs all ready calls without taking a result.
    async fn settle(&mut self) {
        tokio::select! {
            biased;
            called = self.pipeline.next() => panic!("{called:?} was told too early"),
            () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
        }
    }

    async fn next(&mut self) -> Option<String> {
        Some(self.pipeline.next().await?.expect_err("it says its name").message)
    }

    fn begun(&self) -> Vec<String> {
        self.begun.lock().expect("no panic").clone()
    }
}

#[tokio::test]
async fn calls_for_different_keys_are_concurrent_with_replies_in_order() {
    let mut probe = Probe::default();
    for name in ["1", "2", "3"] {
        probe.push(name, name);
    }
    probe.settle().await;
    assert_eq!(probe.begun(), ["1", "2", "3"]);
    probe.let_end("3");
    probe.let_end("2");
    probe.settle().await;
    probe.let_end("1");
    for name in ["1", "2", "3"] {
        assert_eq!(probe.next().await.as_deref(), Some(name));
    }
    assert_eq!((probe.next().await, probe.pipeline.is_empty()), (None, true));
}

#[tokio::test]
async fn of_two_calls_on_one_key_the_second_begins_when_the_first_has_ended() {
    let mut probe = Probe::default();
    for (key, name) in [("x", "0"), ("k", "1"), ("k", "2"), ("other", "3"), ("k", "4")] {
        probe.push(key, name);
    }
    probe.settle().await;
    assert_eq!(probe.begun(), ["0", "1", "3"]);
    // The first call has ended, but its result waits for an older one.
    probe.let_end("1");
    probe.settle().await;
    assert_eq!(probe.begun(), ["0", "1", "3", "2"]);
    ["0", "3", "2", "4"].iter().for_each(|name| probe.let_end(name));
    for name in ["0", "1", "2", "3", "4"] {
        assert_eq!(probe.next().await.as_deref(), Some(name));
    }
    assert_eq!(probe.begun(), ["0", "1", "3", "2", "4"]);
}
