//! Configuration files of `envoyproxy/ratelimit` with arbitrary content.
//!
//! Properties: errors point into the file and name a remedy. A valid file gives the same result when it is read again, its rules
//! have names, and for every descriptor the explanation ends at its limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate::identity::Entry;
use sluicegate::rules::RuleSet;
use sluicegate::rules::envoy::explain::End;
use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions};
use sluicegate::rules::file::value;

fuzz_target!(|bytes: &[u8]| {
    // A second file with the same text repeats the domain of the first.
    let options = EnvoyOptions { merge_domains: bytes.len().is_multiple_of(2), ..EnvoyOptions::default() };
    let read = |count| EnvoyConfig::read([("a.yaml", bytes), ("b.yaml", bytes)].into_iter().take(count), &options);
    match read(1) {
        Ok(config) => {
            let again = read(1).expect("as before");
            assert!(config.described().eq(again.described()));
            assert!(read(2).is_err() || (options.merge_domains && config.rules().is_empty()));
            explanation_matches_lookup(config);
        }
        Err(mistakes) => {
            assert!(read(2).is_err());
            let lines = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 1;
            for problem in mistakes.files().iter().flat_map(|problems| problems.list()) {
                assert!(problem.place.line <= lines, "{problem} of {lines}");
                assert!(!problem.message.is_empty() && !problem.remedy.is_empty(), "{problem}");
            }
        }
    }
});

fn explanation_matches_lookup(config: EnvoyConfig) {
    assert!(config.rules().iter().all(|rule| value::name(rule.space.name()).is_ok()));
    // Two names share a digest with negligible probability.
    let rules = RuleSet::default().with_envoy(config).expect("names of their own");
    let envoy = rules.envoy().expect("just given");
    let pairs = [("path", "/login"), ("path", ""), ("k", "a"), ("k", "a*b"), ("remote_address", "10.0.0.1")];
    let entries = pairs.map(|(key, value)| Entry::new(key, value));
    for domain in envoy.domains() {
        for first in entries {
            for descriptor in [&[first][..], &[first, entries[2]], &[first, entries[4]], &[first; 4]] {
                let found = envoy.find(domain, descriptor);
                let End::Limit(explained) = envoy.explain(domain, descriptor).end else {
                    assert!(found.is_none());
                    continue;
                };
                let found = found.expect("it is explained");
                assert_eq!((found.rule, &found.identifier), (explained.rule, &explained.identifier));
                assert!(found.rule < rules.rules().len());
            }
        }
    }
}
