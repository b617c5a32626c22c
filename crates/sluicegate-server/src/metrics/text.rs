//! The counts in Prometheus' text format, written by the library of its users.

use std::time::Duration;

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use sluicegate::core::Quota;
use sluicegate::observe::{LimitOutcome, Operation};
use sluicegate::rules::LeaseBounds;
use sluicegate::store::Savings;

use super::cells::RuleTotals;
use super::histogram::{Counted, DURATION_MICROS, RATIO_MILLIONTHS};
use super::{Metrics, RuleLabels};
use crate::reload::status::Status;

/// The media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is not counted but stands as it is.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// Whether all of the store can be used.
    pub(crate) is_store_up: bool,
    /// How many keys have their state in this process.
    pub(crate) tracked_keys: u64,
    /// What the store did without asking a server, as far as it counts that.
    pub(crate) savings: Savings,
    /// What charging ahead may cost, by the name of each rule that does.
    pub(crate) leases: Vec<(Box<str>, LeaseBounds)>,
    /// How the last reload of the configuration went.
    pub(crate) reload: Status,
    /// Spans by what became of them, if there are any.
    pub(crate) spans: Option<[(&'static str, u64); 3]>,
    /// Decisions that were left out of the decision log.
    pub(crate) left_out: u64,
    /// Lines of the log that were lost because nobody read it.
    pub(crate) lost_lines: u64,
    /// Requests whose sender is not known, by the reason.
    pub(crate) unauthorized: Vec<(&'static str, u64)>,
}

type Labels<'a> = &'a [(&'static str, &'a str)];

/// Everything, family by family.
pub(super) fn write(metrics: &Metrics, gauges: &Gauges) -> String {
    let mut families = counts(metrics);
    families.extend([
        one_gauge("sluicegate_store_up", "Whether all of the store can be used.", u64::from(gauges.is_store_up)),
        one_gauge(
            "sluicegate_tracked_keys",
            "Keys whose state this process holds, and entries of sliding windows.",
            gauges.tracked_keys,
        ),
        one_gauge(
            "sluicegate_config_last_reload_successful",
            "Whether the configuration in force is the last that was read.",
            u64::from(gauges.reload.successful),
        ),
        one_gauge(
            "sluicegate_config_last_reload_success_timestamp_seconds",
            "When a configuration last took effect, in seconds since 1970.",
            gauges.reload.succeeded_at / 1_000,
        ),
        family(
            "sluicegate_unauthorized_total",
            "Requests that were refused because their sender is not known, by the reason.",
            MetricType::COUNTER,
            gauges.unauthorized.iter().map(|(reason, count)| counter(&[("reason", reason)], *count)).collect(),
        ),
        family(
            "sluicegate_decision_log_left_out_total",
            "Decisions that the decision log left out because there were too many.",
            MetricType::COUNTER,
            vec![counter(&[], gauges.left_out)],
        ),
        family(
            "sluicegate_log_lines_lost_total",
            "Lines of the log that were lost because nobody read it.",
            MetricType::COUNTER,
            vec![counter(&[], gauges.lost_lines)],
        ),
        family(
            "sluicegate_trace_spans_total",
            "Spans by what became of them: exported to the collector, failed, or dropped because too many waited.",
            MetricType::COUNTER,
            gauges
                .spans
                .iter()
                .flatten()
                .map(|(outcome, count)| counter(&[("outcome", outcome)], *count))
                .collect(),
        ),
        family(
            "sluicegate_build_info",
            "The version of this server.",
            MetricType::GAUGE,
            vec![gauge(&[("version", env!("CARGO_PKG_VERSION"))], 1)],
        ),
    ]);
    families.extend(savings(&gauges.savings));
    families.extend(leases(&gauges.leases, &gauges.savings.leased_tokens));
    // A family without metrics is the only thing that it refuses; a set of no rules has such families.
    families.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families).unwrap_or_default()
}

fn counts(metrics: &Metrics) -> Vec<MetricFamily> {
    let totals = metrics.counters.totals();
    let rules = metrics.rules.read();
    let brought = metrics.brought.iter().map(|rule| (rule, totals.brought.clone()));
    let rules: Vec<(&RuleLabels, RuleTotals)> =
        rules.iter().map(|rule| (rule, metrics.of_rule(rule))).chain(brought).collect();
    let store = Operation::ALL.iter().zip(&totals.store);
    let errors = metrics.counters.store_errors();
    let remaining = rules.iter().filter(|(rule, _)| !rule.algorithms.is_empty());
    vec![
        family(
            "sluicegate_decisions_total",
            "Decisions of every limit, by what came of it.",
            MetricType::COUNTER,
            decisions(&rules),
        ),
        family(
            "sluicegate_decision_duration_seconds",
            "The time that decisions take, the store included.",
            MetricType::HISTOGRAM,
            vec![durations(&[], &totals.decisions)],
        ),
        family(
            "sluicegate_store_duration_seconds",
            "The time that calls to the store take, failed ones included.",
            MetricType::HISTOGRAM,
            store.map(|(operation, counted)| durations(&[("operation", operation.name())], counted)).collect(),
        ),
        family(
            "sluicegate_store_errors_total",
            "Calls that the store could not answer.",
            MetricType::COUNTER,
            errors.map(|(class, count)| counter(&[("class", class.name())], count)).collect(),
        ),
        family(
            "sluicegate_remaining_ratio",
            "What is left of a limit after each decision, over the limit.",
            MetricType::HISTOGRAM,
            remaining.map(|(rule, totals)| ratios(&[("rule", &rule.name)], &totals.remaining)).collect(),
        ),
    ]
}

fn decisions(rules: &[(&RuleLabels, RuleTotals)]) -> Vec<Metric> {
    let mut decisions = Vec::new();
    for (rule, totals) in rules {
        for algorithm in &rule.algorithms {
            for (outcome, count) in LimitOutcome::ALL.iter().zip(totals.outcomes[*algorithm]) {
                let algorithm = Quota::ALGORITHMS[*algorithm];
                let labels = [("algorithm", algorithm), ("outcome", outcome.name()), ("rule", &*rule.name)];
                decisions.push(counter(&labels, count));
            }
        }
    }
    decisions
}

/// Only what has a source: a store that saves nothing has no such series.
fn savings(savings: &Savings) -> Vec<MetricFamily> {
    let one = |name, help, count: Option<u64>| {
        let metrics = count.map(|count| counter(&[], count)).into_iter().collect();
        family(name, help, MetricType::COUNTER, metrics)
    };
    vec![
        one(
            "sluicegate_coalesced_requests_total",
            "Requests that were decided together with another one, in one call to the store.",
            savings.coalesced_requests,
        ),
        one(
            "sluicegate_denied_from_cache_total",
            "Requests that were denied without a call to the store, because it was known that they would be.",
            savings.denied_from_cache,
        ),
    ]
}

/// Every rule with a lease has its series from the start, whether or not anything is held for it.
fn leases(leases: &[(Box<str>, LeaseBounds)], held: &[(Box<str>, u64)]) -> Vec<MetricFamily> {
    let held = |rule: &str| held.iter().find(|(name, _)| **name == *rule).map_or(0, |(_, tokens)| *tokens);
    let each = |value: fn(&LeaseBounds) -> u64| {
        leases.iter().map(|(rule, bounds)| gauge(&[("rule", rule)], value(bounds))).collect()
    };
    vec![
        family(
            "sluicegate_leased_tokens",
            "Tokens that this server holds for requests to come.",
            MetricType::GAUGE,
            leases.iter().map(|(rule, _)| gauge(&[("rule", rule)], held(rule))).collect(),
        ),
        family(
            "sluicegate_lease_extra_tokens",
            "Tokens that charging ahead may let pass beyond capacity and rate, in any interval, with the servers known now.",
            MetricType::GAUGE,
            each(|bounds| bounds.extra),
        ),
        family(
            "sluicegate_lease_stranded_tokens_max",
            "The most tokens that sit unused with other servers when this one denies a request.",
            MetricType::GAUGE,
            each(|bounds| bounds.stranded),
        ),
    ]
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn one_gauge(name: &str, help: &str, value: u64) -> MetricFamily {
    family(name, help, MetricType::GAUGE, vec![gauge(&[], value)])
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn counter(labels: Labels<'_>, value: u64) -> Metric {
    let (mut metric, mut counter) = (labelled(labels), Counter::default());
    counter.set_value(value as f64);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: Labels<'_>, value: u64) -> Metric {
    let (mut metric, mut gauge) = (labelled(labels), Gauge::default());
    gauge.set_value(value as f64);
    metric.set_gauge(gauge);
    metric
}

fn durations<const BUCKETS: usize>(labels: Labels<'_>, counted: &Counted<BUCKETS>) -> Metric {
    histogram(labels, counted, &DURATION_MICROS)
}

fn ratios<const BUCKETS: usize>(labels: Labels<'_>, counted: &Counted<BUCKETS>) -> Metric {
    histogram(labels, counted, &RATIO_MILLIONTHS)
}

/// A histogram of values in millionths, be they of seconds or of the whole.
fn histogram<const BUCKETS: usize>(labels: Labels<'_>, counted: &Counted<BUCKETS>, bounds: &[u64]) -> Metric {
    let millionths = |value| Duration::from_micros(value).as_secs_f64();
    let (mut metric, mut histogram, mut below) = (labelled(labels), Histogram::default(), 0);
    let mut buckets = Vec::with_capacity(bounds.len());
    for (bound, count) in bounds.iter().zip(counted.counts) {
        below += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(millionths(*bound));
        bucket.set_cumulative_count(below);
        buckets.push(bucket);
    }
    histogram.set_bucket(buckets);
    histogram.set_sample_count(counted.counts.iter().sum());
    histogram.set_sample_sum(millionths(counted.sum));
    metric.set_histogram(histogram);
    metric
}
