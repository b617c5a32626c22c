//! Rate limits without HTTP: a worker checks its limit before it sends a mail, and keeps denied mails for later.
//! ```text
//! cargo run -p sluicegate --example embed
//! ```

use sluicegate::clock::{Clock, SystemClock};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{CheckError, Limiter, MemoryStore, Request, Retry};

/// Rules can also be built in code: see the first example of the library.
const RULES: &str = "
rules:
  - name: mail
    match: { resource: mail.send }
    limits:
      - { algorithm: token_bucket, capacity: 3, refill: 1/s }
      - { algorithm: sliding_window, limit: 100, window: 1h }
";

/// The recipients of this morning's mails.
pub const CUSTOMERS: [&str; 5] = ["alice", "alice", "alice", "alice", "bob"];

/// The result for one mail, as text.
pub async fn send<C: Clock>(limiter: &Limiter<MemoryStore, C>, customer: &str) -> Result<String, CheckError> {
    let decision = limiter.check(&Request::new("mail.send", customer)).await?;
    Ok(match decision.retry() {
        None => format!("{customer}: sent"),
        Some(Retry::After(wait)) => format!("{customer}: again in {} ms", wait.as_micros().div_ceil(1_000)),
        Some(Retry::Never) => format!("{customer}: never"),
    })
}

/// A limiter with its state in this process.
pub fn limiter<C: Clock>(clock: C) -> Result<Limiter<MemoryStore, C>, Box<dyn std::error::Error>> {
    let rules = RuleSet::from_yaml(RULES, "mail.yaml", &Environment::new())?;
    Ok(Limiter::new(rules, MemoryStore::default(), clock))
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example prints its results")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = limiter(SystemClock::new())?;
    for customer in CUSTOMERS {
        println!("{}", send(&limiter, customer).await?);
    }
    Ok(())
}
