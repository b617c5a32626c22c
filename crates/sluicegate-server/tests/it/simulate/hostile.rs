//! Hostile and corrupt logs: every line is counted, and memory stays bounded.

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Folder, TWO_A_MINUTE, gzip, line};
use crate::server::sluicegate;

/// The limit of the address space: a little more than half of the longest line below. A program that kept the line in memory
/// would fail here. Threads reserve much address space that they never use.
const ADDRESS_SPACE_KIB: u64 = 600 << 10;

/// Runs `simulate --json` in an address space that is smaller than its input.
fn confined(folder: &Folder, arguments: &[&str], write: impl FnOnce(&mut dyn Write)) -> Value {
    let config = folder.path("config.yaml");
    let inner = sluicegate(&["simulate", "--json", "--config", config.to_str().expect("text")]);
    let mut command = Command::new("sh");
    let limited = format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$0\" \"$@\"");
    command.args(["-c", &limited]).arg(inner.get_program()).args(inner.get_args()).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut stdin = BufWriter::with_capacity(1 << 20, child.stdin.take().expect("a pipe"));
    write(&mut stdin);
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn totals(report: &Value) -> [u64; 5] {
    ["lines", "malformed", "requests", "allowed", "denied"].map(|key| report[key].as_u64().expect("a number"))
}

#[test]
fn a_line_of_one_gigabyte_is_skipped_in_bounded_memory() {
    let folder = Folder::new(TWO_A_MINUTE);
    let block = vec![b'x'; 1 << 20];
    let report = confined(&folder, &["--log", "-"], |input| {
        input.write_all(line("192.0.2.1", 0, "/").as_bytes()).expect("a pipe");
        for _ in 0..1_024 {
            input.write_all(&block).expect("a pipe");
        }
        input.write_all(b"\n").expect("a pipe");
        input.write_all(line("192.0.2.1", 1, "/").as_bytes()).expect("a pipe");
    });
    assert_eq!(totals(&report), [3, 1, 2, 2, 0]);
    assert_eq!(report["samples"][0]["reason"], "the line has more than 65536 bytes");
}

#[test]
fn a_gzip_bomb_is_decompressed_in_bounded_memory() {
    let folder = Folder::new(TWO_A_MINUTE);
    // Each member expands by a factor of a thousand. Together they exceed the address space.
    let bomb = gzip(&vec![b'x'; 32 << 20]);
    assert!(bomb.len() < 200_000);
    let report = confined(&folder, &["--log", "-"], |input| {
        for _ in 0..24 {
            input.write_all(&bomb).expect("a pipe");
        }
        input.write_all(&gzip(format!("\n{}", line("192.0.2.1", 0, "/")).as_bytes())).expect("a pipe");
    });
    assert_eq!(totals(&report), [2, 1, 1, 1, 0]);
}

#[test]
fn lines_that_are_not_text_are_counted_and_escaped() {
    let folder = Folder::new(TWO_A_MINUTE);
    let mut log = line("192.0.2.1", 0, "/").into_bytes();
    log.extend_from_slice(b"\0\0\0\0\n\n\r\n\xff\xfe\n");
    log.extend_from_slice(
        &line("192.0.2.1", 0, "/X")
            .into_bytes()
            .iter()
            .map(|b| if *b == b'X' { 0xff } else { *b })
            .collect::<Vec<_>>(),
    );
    log.extend_from_slice(
        &line("192.0.2.1", 0, "/X")
            .into_bytes()
            .iter()
            .map(|b| if *b == b'X' { 0 } else { *b })
            .collect::<Vec<_>>(),
    );
    log.extend_from_slice(&line("192.0.2.1", 1, "/").into_bytes());
    let report = folder.json(&["--log", "-"], &log);
    assert_eq!(totals(&report), [8, 6, 2, 2, 0]);
    // Control characters are escaped.
    let (_, stdout, _) = folder.run(&["--log", "-"], &log);
    assert!(!stdout.contains('\0') && stdout.contains("\\0\\0"), "{stdout}");
}

#[test]
fn implausible_dates_do_not_shift_the_time_of_other_lines() {
    let folder = Folder::new(TWO_A_MINUTE);
    let ages = ["1970", "9999", "0000", "2099"].map(|year| line("192.0.2.1", 1, "/").replace("2023", year));
    let mut log: String = (0..3).map(|second| line("192.0.2.1", second, "/")).collect();
    log += &ages.concat();
    log += &line("192.0.2.1", 3, "/");
    let report = folder.json(&["--log", "-"], log.as_bytes());
    assert_eq!(totals(&report), [8, 4, 4, 2, 2]);
    let reasons: Vec<&str> = report["reasons"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|each| each["reason"].as_str().expect("text"))
        .collect();
    assert_eq!(
        reasons,
        [
            "its time is further ahead than --window, and the next line's is not",
            "its time is further back than --window; give the logs in the order of their times",
            "the time is invalid, before 1970 or after 2112",
        ]
    );
    // A log that begins in 1970 is valid.
    let old: String = (0..3).map(|second| line("192.0.2.1", second, "/").replace("2023", "1970")).collect();
    assert_eq!(totals(&folder.json(&["--log", "-"], old.as_bytes())), [3, 0, 3, 2, 1]);
}

#[test]
fn late_lines_are_reported_within_the_window_and_rejected_beyond_it() {
    let folder = Folder::new(TWO_A_MINUTE);
    let times = [7_200, 7_201, 7_190, 3_601, 0, 7_202];
    let log: String = times.iter().map(|second| line("192.0.2.1", *second, "/")).collect();
    let report = folder.json(&["--log", "-"], log.as_bytes());
    assert_eq!(totals(&report), [6, 1, 5, 2, 3]);
    assert_eq!(report["late"], json!({"lines": 2, "microsMax": 3_600_000_000_u64}));
    let narrow = folder.json(&["--log", "-", "--window", "5s"], log.as_bytes());
    assert_eq!(totals(&narrow), [6, 3, 3, 2, 1]);
    assert_eq!(narrow["late"], json!({"lines": 0, "microsMax": 0}));
}
