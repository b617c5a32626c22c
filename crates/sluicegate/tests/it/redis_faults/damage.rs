//! Foreign values: they count as exhausted under every policy, and affect no other key.

use super::fleet::{CAPACITY, Deadline, Fleet};
use super::record::POLICIES;
use super::{identities, key, run};
use sluicegate::Request;
use sluicegate_testkit::redis_server::RedisServer;

#[test]
fn a_damaged_value_denies_its_own_key_and_no_other() {
    run(async {
        let server = RedisServer::start();
        let names = identities("damaged", 3);
        let fleet = Fleet::start(&server.url(), Deadline::Generous, &names).await;
        let mut damaged = 0;
        for policy in POLICIES {
            let (rule, list, garbage) =
                (policy.name(), key(policy.name(), &names[0]), key(policy.name(), &names[1]));
            server.command::<u64>(&["RPUSH", &list, "1"]);
            server.command::<()>(&["SET", &garbage, "nan1"]);
            damaged += 2;
            for (name, allowed) in [(&names[0], false), (&names[1], false), (&names[2], true)] {
                let decision = fleet.limiter().check(&Request::new(rule, name)).await.unwrap();
                assert_eq!((decision.is_allowed(), decision.is_degraded()), (allowed, false), "{rule} of {name}");
            }
            assert_eq!(fleet.limiter().store().damaged_values(), damaged);
            let whole = fleet.limiter().peek(&Request::new(rule, &names[2])).await.unwrap();
            assert!(whole.tightest().unwrap().verdict.remaining < CAPACITY);
        }
        // The damaged value has been replaced, and refills like any other.
        fleet.until_whole().await;
        assert_eq!(fleet.limiter().store().damaged_values(), damaged);
    });
}
