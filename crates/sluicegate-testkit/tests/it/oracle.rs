//! The program behind `cargo xtask oracle`.

use std::process::Command;

#[test]
fn every_kind_of_case_on_the_embedded_store_has_its_share_of_the_seconds() {
    let ran = Command::new(env!("CARGO_BIN_EXE_oracle")).args(["memory", "1", "7"]).output().expect("it runs");
    let printed = String::from_utf8(ran.stdout).expect("text");
    assert!(ran.status.success(), "{printed}");
    let kinds: Vec<&str> = printed.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!(kinds, ["memory", "memory, at the same time", "memory, without room"], "{printed}");
}
