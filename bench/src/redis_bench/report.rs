//! What was measured, as tables for people and as JSON for machines.

use super::latency::Latency;
use super::memory::Memory;
use super::ways::{HASH, NAMES};
use super::{Cell, Sample};
use serde_json::{Value, json};

/// Everything `redis` measured.
pub(super) struct Report {
    pub(super) cells: Vec<Cell>,
    pub(super) latencies: Vec<Latency>,
    pub(super) memory: Memory,
}

/// One number of a measurement.
type Field = fn(&Sample) -> f64;

/// What is shown of latencies, and its name.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

impl Report {
    pub(super) fn print(&self) {
        println!(
            "decisions through Redis, median of the rounds (least–most); × = as many as the hash bucket, raw"
        );
        self.cells.iter().for_each(print_cell);
        self.print_latencies();
        self.print_memory();
    }

    fn print_latencies(&self) {
        println!("\nmicroseconds per decision at half of the peak, from when each was due");
        println!(
            "  {:<21} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "", "due/s", "p50", "p99", "p99.9", "most", "failed"
        );
        for Latency { way, per_second, micros, failed } in &self.latencies {
            let [p50, p99, p999] = QUANTILES.map(|(_, quantile)| micros.value_at_quantile(quantile));
            println!("  {way:<21} {per_second:>9.0} {p50:>8} {p99:>8} {p999:>8} {:>8} {failed:>8}", micros.max());
        }
    }

    fn print_memory(&self) {
        let Memory { each, growth, growth_keys } = &self.memory;
        println!("\nbytes per key, by MEMORY USAGE");
        let hash = each.last().map_or(f64::NAN, |(_, bytes)| *bytes);
        each.iter().for_each(|(name, bytes)| println!("  {name:<21} {bytes:>9.1} {:>6.2}×", bytes / hash));
        println!("bytes per key, by the growth of used_memory over {growth_keys} keys");
        let hash = growth[1].1;
        growth.iter().for_each(|(name, bytes)| println!("  {name:<21} {bytes:>9.1} {:>6.2}×", bytes / hash));
    }

    pub(super) fn write_json(&self, path: &str) -> Result<(), String> {
        let latencies: Vec<Value> = self.latencies.iter().map(latency_json).collect();
        let Memory { each, growth, growth_keys } = &self.memory;
        let whole = json!({
            "benchmark": "redis",
            "cells": self.cells.iter().map(cell_json).collect::<Vec<_>>(),
            "latency": latencies,
            "bytes_per_key": object(each),
            "bytes_grown_per_key": object(growth),
            "keys_grown": growth_keys,
        });
        std::fs::write(path, format!("{whole:#}\n")).map_err(|error| format!("writing {path}: {error}"))
    }
}

fn print_cell(cell: &Cell) {
    println!("\n{}, {} in flight", cell.workload.name, cell.workload.in_flight);
    println!("  {:<21} {:>30} {:>7} {:>10} {:>10}", "", "decisions/s", "", "server µs", "client µs");
    let hash = cell.median(HASH, |sample| sample.per_second);
    for way in NAMES {
        let sorted = cell.sorted(way, |sample| sample.per_second);
        let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { continue };
        let median = cell.median(way, |sample| sample.per_second);
        let (server, client) =
            (cell.median(way, |sample| sample.server_micros), cell.median(way, |sample| sample.client_micros));
        let rate = format!("{median:.0} ({least:.0}–{most:.0})");
        println!("  {way:<21} {rate:>30} {:>6.2}× {server:>10.2} {client:>10.2}", median / hash);
    }
}

fn cell_json(cell: &Cell) -> Value {
    let fields: [(&str, Field); 3] = [
        ("decisions_per_second", |sample| sample.per_second),
        ("server_micros", |sample| sample.server_micros),
        ("client_micros", |sample| sample.client_micros),
    ];
    let ways = NAMES.map(|way| {
        let found = fields.map(|(name, field)| (name.to_owned(), json!(cell.sorted(way, field))));
        (way.to_owned(), Value::Object(found.into_iter().collect()))
    });
    let ways = Value::Object(ways.into_iter().collect());
    json!({ "workload": cell.workload.name, "in_flight": cell.workload.in_flight, "ways": ways })
}

fn latency_json(latency: &Latency) -> Value {
    let micros =
        QUANTILES.map(|(name, quantile)| (name.to_owned(), json!(latency.micros.value_at_quantile(quantile))));
    let micros = Value::Object(micros.into_iter().collect());
    json!({ "way": latency.way, "due_per_second": latency.per_second, "micros": micros, "failed": latency.failed })
}

fn object(pairs: &[(&'static str, f64)]) -> Value {
    Value::Object(pairs.iter().map(|(name, bytes)| ((*name).to_owned(), json!(bytes))).collect())
}
