//! `cargo xtask oracle`: the library against its contract, or the front doors of a server, with random rules, clients and
//! operations.
//!
//! The campaigns of the library are a program of the test kit, those of the front doors a test of the server. This file
//! selects their seed, stores and front doors, and passes them the addresses of the servers.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers::Servers;
use crate::workspace::Workspace;

/// The default duration of the test of each store.
const SECONDS_DEFAULT: u64 = 60;
const STORES: [&str; 4] = ["memory", "redis", "denials", "cluster"];
const DOORS: [&str; 5] = ["all", "http", "rls", "resp", "gateway"];

const USAGE: &str = "\
`oracle` takes options:
  --store S     memory, redis, denials (Redis with remembered denials), cluster, or all, the default
  --door D      the front doors of a server instead of the library: http, rls, resp, gateway, or all of them
  --seconds N   seconds per store (default: 60), shared by sequential operations, concurrent requests and full stores
  --seed S      the seed of the first case (default: random)";

#[derive(Debug, PartialEq, Eq)]
struct Options {
    stores: Vec<&'static str>,
    door: Option<&'static str>,
    seconds: u64,
    seed: Option<u64>,
}

/// `cargo xtask oracle [options]`.
pub(crate) fn run(arguments: &[String], workspace: &Workspace) -> Result<(), Failure> {
    let Options { stores, door, seconds, seed } = Options::parse(arguments)?;
    let seed = seed.unwrap_or_else(another_seed);
    println!("the first case of every store has seed {seed}");
    if let Some(door) = door {
        let servers = Servers::find_or_install(workspace)?;
        return servers.tell(through_doors(&stores, door, seconds, seed)).run();
    }
    for store in stores {
        let invocation = invocation(store, seconds, seed);
        let needs_servers = store != "memory";
        let invocation =
            if needs_servers { Servers::find_or_install(workspace)?.tell(invocation) } else { invocation };
        invocation.run()?;
    }
    Ok(())
}

fn invocation(store: &str, seconds: u64, seed: u64) -> Invocation {
    Invocation::cargo()
        .arguments("run --quiet --locked --package sluicegate-testkit --features servers --bin oracle --")
        .argument(store)
        .argument(seconds.to_string())
        .argument(seed.to_string())
}

/// A server always remembers denials on Redis, so both of its layouts with one server are the same.
fn through_doors(stores: &[&str], door: &str, seconds: u64, seed: u64) -> Invocation {
    let tests = stores.iter().map(|store| match *store {
        "memory" => "embedded",
        "cluster" => "cluster",
        _ => "redis",
    });
    let tests: BTreeSet<String> = tests.map(|store| format!(" oracle::front_doors_on_{store}")).collect();
    let tests: String = tests.into_iter().collect();
    Invocation::cargo()
        .arguments("test --quiet --locked --package sluicegate-server --all-features --test it -- --nocapture --test-threads 1")
        .arguments(&tests)
        .variable("SLUICEGATE_ORACLE_DOOR", door)
        .variable("SLUICEGATE_ORACLE_SECONDS", seconds.to_string())
        .variable("SLUICEGATE_ORACLE_SEED", seed.to_string())
}

/// A seed that is hardly ever the same twice.
#[expect(clippy::disallowed_methods, reason = "a campaign that is told no seed tries other cases each time")]
fn another_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let unknown = || Failure::usage(format!("cannot read `{}`: {USAGE}", arguments.join(" ")));
        let mut options = Self { stores: STORES.to_vec(), door: None, seconds: SECONDS_DEFAULT, seed: None };
        let mut rest = arguments;
        while let Some((word, after)) = rest.split_first() {
            let (value, after) = after.split_first().ok_or_else(unknown)?;
            match word.as_str() {
                "--store" if value == "all" => options.stores = STORES.to_vec(),
                "--store" => {
                    options.stores = vec![*STORES.iter().find(|name| *name == value).ok_or_else(unknown)?]
                }
                "--door" => {
                    options.door = Some(*DOORS.iter().find(|name| *name == value).ok_or_else(unknown)?);
                }
                "--seconds" => options.seconds = value.parse().map_err(|_| unknown())?,
                "--seed" => options.seed = Some(value.parse().map_err(|_| unknown())?),
                _ => return Err(unknown()),
            }
            rest = after;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments).map_err(|failure| failure.to_string())
    }

    #[test]
    fn all_stores_run_for_a_minute_by_default() {
        let all = Options { stores: STORES.to_vec(), door: None, seconds: 60, seed: None };
        assert_eq!(parse("").unwrap(), all);
        let one = Options { stores: vec!["cluster"], door: Some("rls"), seconds: 5, seed: Some(7) };
        assert_eq!(parse("--seed 7 --store cluster --door rls --seconds 5").unwrap(), one);
        for bad in ["fast", "--store", "--store disk", "--door back", "--seconds x", "--seed -1"] {
            assert!(parse(bad).unwrap_err().contains("`oracle` takes options"), "{bad}");
        }
    }

    #[test]
    fn the_program_receives_store_seconds_and_seed() {
        assert!(invocation("redis", 5, 7).to_string().ends_with("--bin oracle -- redis 5 7"));
        let doors = through_doors(&["redis", "denials", "memory"], "rls", 5, 7).to_string();
        let tests = "-- --nocapture --test-threads 1 oracle::front_doors_on_embedded oracle::front_doors_on_redis";
        assert!(doors.ends_with(tests), "{doors}");
    }
}
