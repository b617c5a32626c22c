//! Rule files with arbitrary content.
//!
//! Properties: errors point into the file and name a remedy. A valid file gives the same rules when it is read again, and for every
//! request the explanation lists the same charges as the decision.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate::Request;
use sluicegate::core::Timestamp;
use sluicegate::identity::{Stage, Target};
use sluicegate::rules::RuleSet;
use sluicegate::rules::explain::MatchResult;
use sluicegate::rules::file::Environment;

fuzz_target!(|bytes: &[u8]| {
    let environment = Environment::new();
    match RuleSet::from_yaml(bytes, "rules.yaml", &environment) {
        Ok(rules) => {
            let again = RuleSet::from_yaml(bytes, "rules.yaml", &environment).expect("as before");
            assert_eq!(format!("{rules:?}"), format!("{again:?}"));
            requests().iter().for_each(|request| explanation_matches_charges(&rules, request));
        }
        Err(problems) => {
            let lines = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 1;
            for line in problems.to_string().lines().filter(|line| line.starts_with("rules.yaml:")) {
                let number = line.split(':').nth(1).and_then(|number| number.parse::<usize>().ok());
                assert!(number.is_none_or(|number| number <= lines), "{line} of {lines}");
            }
            assert!(!problems.to_string().is_empty());
        }
    }
});

fn requests() -> [Request<'static>; 4] {
    let plain = Request::new("api.payment.create", "alice");
    let target = Target::new("POST", "/api/payments/7");
    let from = "198.51.100.7".parse().ok();
    [
        plain,
        plain.tenant("shop").tier("pro"),
        Request { target: Some(target), address: from, ..plain },
        Request { target: Some(target), address: from, stage: Stage::Credential, ..plain },
    ]
}

fn explanation_matches_charges(rules: &RuleSet, request: &Request<'_>) {
    let now = Timestamp::now(1_705_312_800_000_000);
    let (explained, charged) = (rules.explain(request, now), rules.charges(request, now));
    let (Ok(explained), Ok(charged)) = (&explained, &charged) else {
        assert!(explained.is_err() && charged.is_err(), "only one of them knows the tier");
        return;
    };
    assert_eq!(explained.len(), rules.rules().len());
    let mut limited = 0;
    for each in explained {
        assert_eq!(each.rule.matches(request), !matches!(each.result, MatchResult::Mismatched(_)));
        match &each.result {
            MatchResult::Mismatched(reasons) => {
                assert!(!reasons.is_empty());
                assert!(reasons.iter().all(|reason| !reason.reason(request).is_empty()));
            }
            MatchResult::Unlimited(source) => assert!(each.rule.limits_of(*source).quotas().is_empty()),
            MatchResult::Limited(source, _) => {
                assert!(!each.rule.limits_of(*source).quotas().is_empty());
                limited += 1;
            }
        }
    }
    assert_eq!(charged.charges.len(), limited);
}
