// Rates and quantiles from two readings of counters, and the formats of numbers.

/** The increase between two readings, per second. */
export function perSecond(now, before, of) {
  const seconds = (now.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, of(now) - of(before)) / seconds : 0;
}

/** The increase of each bucket of a histogram. */
export function added(now, before) {
  return now.map((count, index) => Math.max(0, count - (before?.[index] ?? 0)));
}

/**
 * The value below which a share of all values lies. Within a bucket values are taken as evenly spread; those beyond the last
 * bound count as that. Null if there are none.
 */
export function quantile(bounds, counts, share) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) {
    return null;
  }
  let below = 0;
  for (let place = 0; place < bounds.length; place += 1) {
    const upTo = below + counts[place];
    if (upTo >= share * all) {
      const low = place === 0 ? 0 : bounds[place - 1];
      return low + (bounds[place] - low) * ((share * all - below) / counts[place]);
    }
    below = upTo;
  }
  return bounds.at(-1);
}

/** A count with three significant digits. */
export function short(value) {
  const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, unit] = units.find(([least]) => value >= least) ?? [1, ""];
  const scaled = value / size;
  const digits = scaled >= 100 || Number.isInteger(scaled) ? 0 : scaled >= 10 ? 1 : 2;
  return `${scaled.toFixed(digits)}${unit}`;
}

/** A duration given in microseconds. */
export function duration(micros) {
  if (micros === null) {
    return "–";
  }
  if (micros < 1_000) {
    return `${short(micros)} µs`;
  }
  return micros < 1_000_000 ? `${short(micros / 1_000)} ms` : `${short(micros / 1_000_000)} s`;
}

/** A duration as in a configuration, such as 1.5 min or 30 d; given in microseconds. */
export function span(micros) {
  const units = [[86_400e6, "d"], [3_600e6, "h"], [60e6, "min"], [1e6, "s"], [1e3, "ms"]];
  const [size, unit] = units.find(([least]) => micros >= least) ?? [1, "µs"];
  return `${Number((micros / size).toFixed(1))} ${unit}`;
}

/** A share as a percentage. */
export function percent(part, whole) {
  if (whole === 0) {
    return "–";
  }
  const value = (100 * part) / whole;
  return value > 0 && value < 0.1 ? "< 0.1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}

/** A time of day. */
export function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}
