//! Renders the metrics in Prometheus' text format with the `prometheus` crate.

use std::time::Duration;

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use sluicegate::core::Quota;
use sluicegate::decision::LimitOutcome;
use sluicegate::observe::Operation;
use sluicegate::rules::LeaseBounds;
use sluicegate::store::{Savings, UnchargedUsage};

use super::histogram::{DURATION_MICROS, HistogramSnapshot, RATIO_MILLIONTHS};
use super::thread_counters::RuleTotals;
use super::{Metrics, RuleLabels};

/// The media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Values from outside the counters.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// Whether all nodes of the store are usable.
    pub(crate) is_store_up: bool,
    /// The number of keys with state in this process.
    pub(crate) tracked_keys: u64,
    /// Calls that the store saved, for stores that count them.
    pub(crate) savings: Savings,
    pub(crate) uncharged_usage: UnchargedUsage,
    /// The bounds of leases, by rule.
    pub(crate) leases: Vec<(Box<str>, LeaseBounds)>,
    /// Whether the active configuration is the last one that was read.
    pub(crate) is_config_current: bool,
    /// The time when the active configuration took effect, in milliseconds since 1970.
    pub(crate) config_loaded_at_ms: u64,
    /// Spans by outcome, if traces are on.
    pub(crate) spans: Option<[(&'static str, u64); 3]>,
    /// Decisions that exceeded the line rate of the decision log.
    pub(crate) left_out: u64,
    /// Log lines that were lost because the reader of the log did not keep up.
    pub(crate) lost_lines: u64,
    /// Requests without a valid identity, by reason.
    pub(crate) unauthorized: Vec<(&'static str, u64)>,
}

type MetricLabels<'a> = &'a [(&'static str, &'a str)];

/// Renders all families.
pub(super) fn write(metrics: &Metrics, gauges: &Gauges) -> String {
    let mut families = counts(metrics);
    families.extend([
        one_gauge(
            "sluicegate_store_up",
            "Whether all nodes of the store are usable.",
            u64::from(gauges.is_store_up),
        ),
        one_gauge(
            "sluicegate_tracked_keys",
            "Keys with state in this process, and entries of sliding windows.",
            gauges.tracked_keys,
        ),
        one_gauge(
            "sluicegate_config_last_reload_successful",
            "Whether the active configuration is the last one that was read.",
            u64::from(gauges.is_config_current),
        ),
        one_gauge(
            "sluicegate_config_last_reload_success_timestamp_seconds",
            "Time when the active configuration took effect, in seconds since 1970.",
            gauges.config_loaded_at_ms / 1_000,
        ),
        family(
            "sluicegate_unauthorized_total",
            "Requests rejected without a valid identity, by reason.",
            MetricType::COUNTER,
            gauges.unauthorized.iter().map(|(reason, count)| counter(&[("reason", reason)], *count)).collect(),
        ),
        family(
            "sluicegate_decision_log_left_out_total",
            "Decisions omitted from the decision log because of its line rate limit.",
            MetricType::COUNTER,
            vec![counter(&[], gauges.left_out)],
        ),
        family(
            "sluicegate_log_lines_lost_total",
            "Log lines lost because the reader of the log did not keep up.",
            MetricType::COUNTER,
            vec![counter(&[], gauges.lost_lines)],
        ),
        family(
            "sluicegate_trace_spans_total",
            "Spans by outcome: exported to the collector, failed, or dropped because the queue was full.",
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
    families.push(uncharged_usage(gauges.uncharged_usage));
    families.extend(leases(&gauges.leases, &gauges.savings.leased_tokens));
    // The encoder rejects families without metrics. An empty rule set leads to such families.
    families.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families).unwrap_or_default()
}

fn counts(metrics: &Metrics) -> Vec<MetricFamily> {
    let totals = metrics.counters.totals();
    let rules = metrics.rules.read();
    let inline = metrics.inline.iter().map(|rule| (rule, totals.inline.clone()));
    let rules: Vec<(&RuleLabels, RuleTotals)> =
        rules.iter().map(|rule| (rule, metrics.of_rule(rule))).chain(inline).collect();
    let store = Operation::ALL.iter().zip(&totals.store);
    let errors = metrics.counters.store_errors();
    let remaining = rules.iter().filter(|(rule, _)| !rule.algorithms.is_empty());
    vec![
        family(
            "sluicegate_decisions_total",
            "Decisions of every limit, by outcome.",
            MetricType::COUNTER,
            decisions(&rules),
        ),
        family(
            "sluicegate_decision_duration_seconds",
            "Duration of decisions, including the store.",
            MetricType::HISTOGRAM,
            vec![durations(&[], &totals.decisions)],
        ),
        family(
            "sluicegate_store_duration_seconds",
            "Duration of calls to the store, including failed calls.",
            MetricType::HISTOGRAM,
            store.map(|(operation, counted)| durations(&[("operation", operation.name())], counted)).collect(),
        ),
        family(
            "sluicegate_store_errors_total",
            "Failed calls to the store, by error class.",
            MetricType::COUNTER,
            errors.map(|(class, count)| counter(&[("class", class.name())], count)).collect(),
        ),
        family(
            "sluicegate_remaining_ratio",
            "Remaining quota after each decision, as a share of the limit.",
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

/// Families of saved calls. A store that does not count them has no such series.
fn savings(savings: &Savings) -> Vec<MetricFamily> {
    let one = |name, help, count: Option<u64>| {
        let metrics = count.map(|count| counter(&[], count)).into_iter().collect();
        family(name, help, MetricType::COUNTER, metrics)
    };
    vec![
        one(
            "sluicegate_coalesced_requests_total",
            "Requests that shared a call to the store with other requests (coalesced).",
            savings.coalesced_requests,
        ),
        one(
            "sluicegate_denied_from_cache_total",
            "Requests denied from the denial cache, without a call to the store.",
            savings.denied_from_cache,
        ),
    ]
}

/// The family of usage that was reported and not charged.
fn uncharged_usage(units: UnchargedUsage) -> MetricFamily {
    let UnchargedUsage { debt, store, unknown } = units;
    family(
        "sluicegate_uncharged_usage_units_total",
        "Units of reported usage that were not charged, because of the bound on debt or of the store, or perhaps not.",
        MetricType::COUNTER,
        [("debt", debt), ("store", store), ("unknown", unknown)]
            .map(|(reason, units)| counter(&[("reason", reason)], units))
            .into(),
    )
}

/// Families of leases. Every rule with a lease has its series from the start, even without held permits.
fn leases(leases: &[(Box<str>, LeaseBounds)], held: &[(Box<str>, u64)]) -> Vec<MetricFamily> {
    let held = |rule: &str| held.iter().find(|(name, _)| **name == *rule).map_or(0, |(_, tokens)| *tokens);
    let each = |value: fn(&LeaseBounds) -> u64| {
        leases.iter().map(|(rule, bounds)| gauge(&[("rule", rule)], value(bounds))).collect()
    };
    vec![
        family(
            "sluicegate_leased_tokens",
            "Tokens charged in advance that this server holds for future requests.",
            MetricType::GAUGE,
            leases.iter().map(|(rule, _)| gauge(&[("rule", rule)], held(rule))).collect(),
        ),
        family(
            "sluicegate_lease_extra_tokens",
            "Most tokens that leases may admit beyond capacity and rate in any interval, with the servers known now.",
            MetricType::GAUGE,
            each(|bounds| bounds.extra),
        ),
        family(
            "sluicegate_lease_stranded_tokens_max",
            "Most tokens that other servers may hold unused when this server denies a request.",
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

fn labelled(labels: MetricLabels<'_>) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn counter(labels: MetricLabels<'_>, value: u64) -> Metric {
    let (mut metric, mut counter) = (labelled(labels), Counter::default());
    counter.set_value(value as f64);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: MetricLabels<'_>, value: u64) -> Metric {
    let (mut metric, mut gauge) = (labelled(labels), Gauge::default());
    gauge.set_value(value as f64);
    metric.set_gauge(gauge);
    metric
}

fn durations<const BUCKETS: usize>(labels: MetricLabels<'_>, counted: &HistogramSnapshot<BUCKETS>) -> Metric {
    histogram(labels, counted, &DURATION_MICROS)
}

fn ratios<const BUCKETS: usize>(labels: MetricLabels<'_>, counted: &HistogramSnapshot<BUCKETS>) -> Metric {
    histogram(labels, counted, &RATIO_MILLIONTHS)
}

/// A histogram of values in millionths of a second or of the limit.
fn histogram<const BUCKETS: usize>(
    labels: MetricLabels<'_>,
    counted: &HistogramSnapshot<BUCKETS>,
    bounds: &[u64],
) -> Metric {
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
