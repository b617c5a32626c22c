//! Remote keys: rotation, outages, and clients with tokens that cause fetches.
//!
//! Time is tokio's paused time, and the manual clock advances with it.

use super::keyring::{self, Json, Keyring};
use super::*;
use parking_lot::Mutex;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::core::Micros;
use sluicegate::identify::token::{FetchFuture, FetchOutcome, KeySource, KeysError, TokenErrorKind};
use std::future::pending;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const REFRESH: Duration = Duration::from_secs(300);
const KEEP: Duration = Duration::from_secs(86_400);

/// The current key set of the publisher, and the number of fetches.
#[derive(Default)]
struct Publisher {
    published: Mutex<Option<String>>,
    fetches: Mutex<usize>,
    outcomes: Mutex<Vec<FetchOutcome>>,
    observed: Notify,
    hangs: Mutex<bool>,
}

impl Publisher {
    fn publish(&self, signers: &[&Signer]) {
        *self.published.lock() = Some(keyring::jwks(signers));
    }

    fn vanish(&self) {
        *self.published.lock() = None;
    }

    fn fetches(&self) -> usize {
        *self.fetches.lock()
    }

    fn last(&self) -> FetchOutcome {
        self.outcomes.lock().last().unwrap().clone()
    }

    /// Waits until this many fetches were made and the last outcome is known.
    async fn fetched(&self, count: usize) {
        loop {
            let observed = self.observed.notified();
            if self.outcomes.lock().len() >= count {
                return;
            }
            observed.await;
        }
    }
}

impl KeySource for Publisher {
    fn fetch(&self) -> FetchFuture<'_> {
        *self.fetches.lock() += 1;
        Box::pin(async {
            if *self.hangs.lock() {
                pending::<()>().await;
            }
            let published = self.published.lock().clone();
            // Takes time as a network call would, so that other tasks run meanwhile.
            sleep(Duration::from_millis(20)).await;
            published.ok_or_else(|| KeysError::new("connection refused"))
        })
    }

    fn observe(&self, outcome: &FetchOutcome) {
        self.outcomes.lock().push(outcome.clone());
        self.observed.notify_waiters();
    }
}

/// An issuer with remote keys, and the task that fetches them.
struct World {
    publisher: Arc<Publisher>,
    tokens: Arc<Tokens>,
    clock: ManualClock,
    keeper: JoinHandle<()>,
}

impl World {
    fn new(publisher: Publisher) -> Self {
        let (publisher, clock) = (Arc::new(publisher), ManualClock::at(now()));
        let source: Arc<dyn KeySource> = Arc::clone(&publisher) as _;
        let tokens = Arc::new(Tokens::new(vec![issuer(EC, Keys::remote(source, REFRESH, KEEP))]).unwrap());
        let keeper = tokio::spawn({
            let (tokens, clock) = (Arc::clone(&tokens), clock.clone());
            async move { tokens.keep_keys_fresh(&clock).await }
        });
        Self { publisher, tokens, clock, keeper }
    }

    /// Publishes these keys and has them fetched.
    async fn with(signers: &[&Signer]) -> Self {
        let publisher = Publisher::default();
        publisher.publish(signers);
        let world = Self::new(publisher);
        world.publisher.fetched(1).await;
        world
    }

    /// Lets time pass until the second fetch is in flight, which is a regular one.
    async fn regular_fetch(&self) {
        self.pass(REFRESH).await;
        while self.publisher.fetches() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn verify(&self, token: &str) -> Result<Arc<Claims>, TokenErrorKind> {
        self.tokens.verify(token, self.clock.now()).await.map_err(|error| error.kind())
    }

    fn knows(&self, token: &str) -> bool {
        self.tokens.known(token, self.clock.now()).is_some()
    }

    async fn pass(&self, length: Duration) {
        self.clock.advance(Micros::from_secs(length.as_secs()));
        sleep(length).await;
    }
}

/// A token with a long lifetime.
fn token(signer: &Signer) -> String {
    signer.token(&Json::claims(EC).with("exp", "1900000000"))
}

/// A token with the name of an unknown key.
fn unknown(number: usize) -> String {
    let signer = &Keyring::get().other_p256;
    signer.token_with(&signer.header().with("kid", &format!("\"unknown {number}\"")), &Json::claims(EC))
}

#[tokio::test(start_paused = true)]
async fn first_tokens_wait_for_the_first_keys() {
    let publisher = Publisher::default();
    publisher.publish(&[&Keyring::get().p256]);
    let world = World::new(publisher);
    // The task must start first; from then on a fetch is known to be in flight.
    tokio::task::yield_now().await;
    assert!(world.verify(&token(&Keyring::get().p256)).await.is_ok());
    assert_eq!(world.publisher.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_keys_make_tokens_unavailable_and_not_invalid() {
    let world = World::new(Publisher::default());
    world.publisher.fetched(1).await;
    let error = world.tokens.verify(&token(&Keyring::get().p256), now()).await.unwrap_err();
    assert_eq!(error.kind(), TokenErrorKind::KeysUnavailable);
    assert!(error.is_unavailable());
    assert_eq!(error.for_client(), "tokens cannot be verified at the moment: try again later");
    // A defect of the token itself is still reported.
    let expired = Keyring::get().p256.token(&Json::claims(EC).with("exp", "7"));
    assert_eq!(world.verify(&expired).await.unwrap_err(), TokenErrorKind::Expired);

    assert_eq!(
        world.publisher.last(),
        FetchOutcome::Failed { error: KeysError::new("connection refused"), age: None }
    );
    world.publisher.publish(&[&Keyring::get().p256]);
    world.pass(Duration::from_secs(30)).await;
    assert!(world.verify(&token(&Keyring::get().p256)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn tokens_do_not_wait_without_a_fetch_task() {
    let world = World::with(&[&Keyring::get().p256]).await;
    world.keeper.abort();
    let _ = (&mut { world.keeper }).await;
    let (tokens, now) = (world.tokens, world.clock.now());
    assert!(tokens.verify(&token(&Keyring::get().p256), now).await.is_ok());
    let before = tokio::time::Instant::now();
    assert_eq!(tokens.verify(&unknown(0), now).await.unwrap_err().kind(), TokenErrorKind::UnknownKey);
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(world.publisher.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_key_triggers_a_fetch_and_old_tokens_stay_valid() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    let old = token(&keyring.p256);
    world.verify(&old).await.unwrap();

    world.publisher.publish(&[&keyring.p256, &keyring.p384]);
    world.verify(&token(&keyring.p384)).await.unwrap();
    assert_eq!(world.publisher.fetches(), 2);
    assert_eq!(world.publisher.last(), FetchOutcome::Renewed { keys: 2, skipped: Vec::new(), is_changed: true });
    assert!(world.knows(&old), "its key is still in the set");
}

#[tokio::test(start_paused = true)]
async fn revoked_key_invalidates_cached_tokens() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256, &keyring.p384]).await;
    let (stays, goes) = (token(&keyring.p384), token(&keyring.p256));
    world.verify(&stays).await.unwrap();
    world.verify(&goes).await.unwrap();
    assert!(world.knows(&stays) && world.knows(&goes));

    world.publisher.publish(&[&keyring.p384]);
    world.pass(REFRESH).await;
    world.publisher.fetched(2).await;
    assert!(world.knows(&stays), "unchanged keys need no new verification");
    assert!(!world.knows(&goes));
    assert_eq!(world.verify(&goes).await.unwrap_err(), TokenErrorKind::UnknownKey);

    // The same name for another key is another key.
    let mut other = keyring.other_p256.jwk();
    other["kid"] = "p384".into();
    *world.publisher.published.lock() = Some(keyring::jwks_of([other]));
    world.pass(REFRESH).await;
    world.publisher.fetched(4).await;
    assert!(!world.knows(&stays));
    assert_eq!(world.verify(&stays).await.unwrap_err(), TokenErrorKind::Algorithm);
}

#[tokio::test(start_paused = true)]
async fn unchanged_key_set_keeps_cached_tokens() {
    let world = World::with(&[&Keyring::get().p256]).await;
    for count in 2..5 {
        world.pass(REFRESH).await;
        world.publisher.fetched(count).await;
        assert_eq!(
            world.publisher.last(),
            FetchOutcome::Renewed { keys: 1, skipped: Vec::new(), is_changed: false }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_an_unknown_key_share_one_fetch() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    world.publisher.publish(&[&keyring.p256, &keyring.p384]);
    let tokens: Vec<_> = (0..200)
        .map(|number| keyring.p384.token(&Json::claims(EC).with("jti", &format!("\"{number}\""))))
        .collect();
    let answers = futures_util::future::join_all(tokens.iter().map(|token| world.verify(token))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(world.publisher.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn flood_of_unknown_keys_causes_one_fetch_per_thirty_seconds() {
    let world = World::with(&[&Keyring::get().p256]).await;
    for number in 0..1_000 {
        assert_eq!(world.verify(&unknown(number)).await.unwrap_err(), TokenErrorKind::UnknownKey);
    }
    assert_eq!(world.publisher.fetches(), 2);
    world.pass(Duration::from_secs(29)).await;
    for number in 0..100 {
        world.verify(&unknown(number)).await.unwrap_err();
    }
    assert_eq!(world.publisher.fetches(), 2);
    world.pass(Duration::from_secs(1)).await;
    for number in 0..100 {
        world.verify(&unknown(number)).await.unwrap_err();
    }
    assert_eq!(world.publisher.fetches(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_from_a_regular_fetch_in_flight_causes_no_other_fetch() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    world.publisher.publish(&[&keyring.p384]);
    world.regular_fetch().await;
    assert!(world.verify(&token(&keyring.p384)).await.is_ok());
    assert_eq!(world.publisher.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_published_during_a_regular_fetch_causes_another() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    world.regular_fetch().await;
    world.publisher.publish(&[&keyring.p384]);
    assert!(world.verify(&token(&keyring.p384)).await.is_ok());
    assert_eq!(world.publisher.fetches(), 3);
    // It is the one fetch that unknown keys may cause within the pause.
    for number in 0..100 {
        assert_eq!(world.verify(&unknown(number)).await.unwrap_err(), TokenErrorKind::UnknownKey);
    }
    assert_eq!(world.publisher.fetches(), 3);
}

#[tokio::test(start_paused = true)]
async fn dropped_request_does_not_cancel_its_fetch() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    world.publisher.publish(&[&keyring.p384]);
    // The first request is polled once, starts the fetch, and is dropped.
    let impatient = token(&keyring.p384);
    assert!(futures_util::FutureExt::now_or_never(world.verify(&impatient)).is_none());
    world.publisher.fetched(2).await;
    assert!(world.verify(&impatient).await.is_ok());
    assert_eq!(world.publisher.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn outage_keeps_the_last_keys_for_a_day() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    let known = token(&keyring.p256);
    world.verify(&known).await.unwrap();
    world.publisher.vanish();
    world.pass(KEEP - Duration::from_secs(1)).await;
    assert!(world.knows(&known));
    assert!(world.verify(&known).await.is_ok());
    let FetchOutcome::Failed { age: Some(age), .. } = world.publisher.last() else {
        panic!("{:?}", world.publisher.last())
    };
    assert_eq!(age, Micros::from_secs(86_399));

    world.pass(Duration::from_secs(1)).await;
    assert!(!world.knows(&known), "not even tokens verified before");
    assert_eq!(world.verify(&known).await.unwrap_err(), TokenErrorKind::KeysUnavailable);

    world.publisher.publish(&[&keyring.p256]);
    world.pass(Duration::from_secs(30)).await;
    assert!(world.knows(&known), "the key is the same and is accepted again");
}

#[tokio::test(start_paused = true)]
async fn invalid_key_set_counts_as_an_outage() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    let known = token(&keyring.p256);
    world.verify(&known).await.unwrap();
    let secret = "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}";
    for (count, text) in [(2, "<html>"), (3, "{\"keys\":[]}"), (4, secret), (5, "{\"keys\":[{\"kty\":\"EC\"}]}")] {
        *world.publisher.published.lock() = Some(text.to_owned());
        world.pass(REFRESH).await;
        world.publisher.fetched(count).await;
        assert!(matches!(world.publisher.last(), FetchOutcome::Failed { .. }), "{text}");
        assert!(world.knows(&known) && world.verify(&known).await.is_ok(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_issuer_does_not_delay_known_keys() {
    let keyring = Keyring::get();
    let world = World::with(&[&keyring.p256]).await;
    *world.publisher.hangs.lock() = true;
    let before = tokio::time::Instant::now();
    assert_eq!(world.verify(&unknown(0)).await.unwrap_err(), TokenErrorKind::UnknownKey);
    assert_eq!(before.elapsed(), Duration::from_secs(5), "a fetch times out");
    assert!(world.verify(&token(&keyring.p256)).await.is_ok());
    assert_eq!(before.elapsed(), Duration::from_secs(5));
    let error = KeysError::new("no answer within 5 s");
    assert!(matches!(world.publisher.last(), FetchOutcome::Failed { error: told, .. } if told == error));
}

#[tokio::test(start_paused = true)]
async fn failed_fetches_back_off_exponentially() {
    let world = World::new(Publisher::default());
    // 1 + 2 + 4 + 8 + 16 s, and then every 30 s.
    world.pass(Duration::from_secs(32)).await;
    assert_eq!(world.publisher.fetches(), 6);
    world.pass(Duration::from_secs(300)).await;
    assert_eq!(world.publisher.fetches(), 16);
}
