//! Sentinels detect a failure, agree, and elect another primary.

use sluicegate_testkit::redis_sentinel::{RedisSentinels, SERVICE};
use sluicegate_testkit::redis_server::{Options, Program};

fn chooses_another(options: &Options) {
    let watched = RedisSentinels::with(options);
    assert_eq!(watched.primary(), Some(0));
    watched.servers()[0].command::<()>(&["SET", "a", "1"]);
    assert_eq!(watched.servers()[0].command::<u32>(&["WAIT", "2", "10000"]), 2);

    let old = watched.kill_primary();
    assert_eq!(old, 0);
    let new = watched.wait_for_new_primary(old);
    let value: Option<String> = watched.servers()[new].command(&["GET", "a"]);
    assert_eq!(value.as_deref(), Some("1"));
    watched.servers()[new].command::<()>(&["SET", "a", "2"]);
    watched.wait_until_followed(new);
    assert_eq!(watched.servers()[new].command::<u32>(&["WAIT", "1", "10000"]), 1);
}

#[test]
fn redis_sentinels_choose_a_new_primary_after_a_death() {
    chooses_another(&Options::default());
}

#[test]
fn valkey_sentinels_choose_a_new_primary_although_there_is_a_password() {
    chooses_another(&Options::new(Program::Valkey).password("secret"));
}

#[test]
fn a_failover_can_be_ordered() {
    let watched = RedisSentinels::start();
    let new = watched.fail_over();
    assert_ne!(new, 0);
    watched.servers()[new].command::<()>(&["SET", "a", "1"]);
    let url = watched.url();
    assert!(url.starts_with("redis+sentinel://127.0.0.1:") && url.ends_with(&format!("/{SERVICE}")), "{url}");
}
