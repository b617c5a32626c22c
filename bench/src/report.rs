//! What was measured, as a table for people and as JSON for machines.

use crate::contender::NAMES;
use crate::expiry::Expiry;
use serde_json::{Value, json};

/// Everything `core` measured.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) cells: Vec<Cell>,
    pub(crate) bytes_per_key: Vec<(&'static str, f64)>,
    pub(crate) expiry: Option<Expiry>,
}

/// All rounds of one workload on one number of threads.
pub(crate) struct Cell {
    workload: &'static str,
    threads: usize,
    rounds: Vec<(&'static str, f64)>,
}

impl Cell {
    pub(crate) fn new(workload: &'static str, threads: usize) -> Self {
        Self { workload, threads, rounds: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &'static str, nanos: f64) {
        self.rounds.push((name, nanos));
    }

    fn sorted(&self, name: &str) -> Vec<f64> {
        let mut nanos: Vec<f64> = self.rounds.iter().filter(|each| each.0 == name).map(|each| each.1).collect();
        nanos.sort_by(f64::total_cmp);
        nanos
    }

    fn median(&self, name: &str) -> f64 {
        let sorted = self.sorted(name);
        sorted[sorted.len() / 2]
    }
}

pub(crate) fn print(report: &Report) {
    println!("nanoseconds per decision, median of the rounds (least–most); × = times slower than sluicegate\n");
    println!("{:<15} {:>7}  {:<26} {:<26} {:<26}", "workload", "threads", NAMES[0], NAMES[1], NAMES[2]);
    for cell in &report.cells {
        let ours = cell.median(NAMES[0]);
        let shown = NAMES.map(|name| {
            let sorted = cell.sorted(name);
            let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
            let median = cell.median(name);
            format!("{median:>6.1} ({least:.0}–{most:.0}) {:.2}×", median / ours)
        });
        println!("{:<15} {:>7}  {:<26} {:<26} {:<26}", cell.workload, cell.threads, shown[0], shown[1], shown[2]);
    }
    println!("\nbytes of resident memory per key, one million keys");
    for (name, bytes) in &report.bytes_per_key {
        println!("  {name:<13} {bytes:>6.1}");
    }
    if let Some(expiry) = &report.expiry {
        let ratio = expiry.expiring_p999_nanos as f64 / expiry.idle_p999_nanos as f64;
        let Expiry { keys, idle_p999_nanos, expiring_p999_nanos, keys_left } = expiry;
        println!("\np99.9 of a decision with {keys} keys (clock included): {idle_p999_nanos} ns idle,");
        println!("  {expiring_p999_nanos} ns while they expire ({ratio:.2}×; {keys_left} keys left at the end)");
    }
}

pub(crate) fn write_json(report: &Report, path: &str) -> Result<(), String> {
    let cells: Vec<Value> = report
        .cells
        .iter()
        .map(|cell| {
            let nanos = NAMES.map(|name| (name.to_owned(), json!(cell.sorted(name))));
            let nanos = Value::Object(nanos.into_iter().collect());
            json!({ "workload": cell.workload, "threads": cell.threads, "nanoseconds": nanos })
        })
        .collect();
    let bytes: serde_json::Map<String, Value> =
        report.bytes_per_key.iter().map(|(name, bytes)| ((*name).to_owned(), json!(bytes))).collect();
    let expiry = report.expiry.as_ref().map(|expiry| {
        json!({
            "keys": expiry.keys,
            "idle_p999_nanos": expiry.idle_p999_nanos,
            "expiring_p999_nanos": expiry.expiring_p999_nanos,
        })
    });
    let whole = json!({ "benchmark": "core", "cells": cells, "bytes_per_key": bytes, "expiry": expiry });
    std::fs::write(path, format!("{whole:#}\n")).map_err(|error| format!("writing {path}: {error}"))
}
