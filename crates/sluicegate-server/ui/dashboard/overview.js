// The overview: current decisions, their latency, the busiest rules and the busiest clients.

import { ask } from "./client.js";
import { bars, timeline } from "./charts.js";
import { element, setText, table, text, tile } from "./elements.js";
import { added, duration, percent, perSecond, quantile, short } from "./numbers.js";

/** The number of overviews over which the percentiles are computed. */
const RECENT = 60;

export const ruleLink = (name) => `#/rules/${encodeURIComponent(name)}`;

function nameOf(entry) {
  return entry.tenant === "default" ? entry.identifier : `${entry.tenant} / ${entry.identifier}`;
}

function identities(title, note) {
  const columns = [
    { title: "client", kind: "name", fill: text(nameOf) },
    { title: "kind", fill: text((entry) => entry.kind) },
    { title: "requests/s", kind: "number", fill: text((entry) => short(Number(entry.requestsPerSecond))) },
    { title: "denied/s", kind: "number", fill: text((entry) => short(Number(entry.deniedPerSecond))) },
  ];
  const rows = table(columns, (entry) => `${entry.kind} ${entry.tenant} ${entry.identifier}`, note);
  return { box: element("section", {}, element("h2", {}, title), rows.box), set: rows.set };
}

/** Links to a rule's page. The link element is reused, so it keeps the focus. */
export function ruleCell(cell, rule) {
  const link = cell.firstElementChild ?? cell.appendChild(element("a", {}));
  setText(link, rule.name);
  link.setAttribute("href", ruleLink(rule.name));
}

export function modeCell(cell, rule) {
  const mode = rule.mode ?? "brought";
  const tag = cell.firstElementChild ?? cell.appendChild(element("span", {}));
  setText(tag, mode);
  tag.className = `tag ${mode}`;
}

/** The share that a rule denies, or would have denied in shadow mode. */
function deniedShare(rule) {
  const share = percent(rule.denied + rule.shadowDenied, rule.allowed + rule.denied + rule.shadowDenied);
  return rule.mode === "shadow" && rule.shadowDenied > 0 ? `would have: ${share}` : share;
}

/** A chart with a choice between the last minutes, from events, and the last hour, from the history. */
export function outcomes(title, label, rule) {
  const chart = timeline(label);
  const buttons = [["5 min", false], ["1 h", true]].map(([name, isHour]) =>
    element("button", { type: "button", "aria-pressed": String(!isHour), onclick: () => choose(isHour) }, name));
  const box = element("section", {}, element("div", { class: "choice", role: "group", "aria-label": "Time range" }, ...buttons), element("h2", {}, title), chart.box);
  let [showsHour, live, asked] = [false, [], 0];
  const choose = (isHour) => {
    showsHour = isHour;
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String((index === 1) === isHour)));
    asked = 0;
    show();
  };
  const show = () => {
    if (!showsHour) {
      chart.show(live);
    } else if (Date.now() - asked > 10_000) {
      asked = Date.now();
      hour(rule).then((points) => showsHour && chart.show(points)).catch(() => { asked = 0; });
    }
  };
  return { box, set(points) { live = points; show(); } };
}

async function hour(rule) {
  const { answer } = await ask(`/admin/v1/history${rule === undefined ? "" : `?rule=${encodeURIComponent(rule)}`}`);
  const step = answer.stepSeconds;
  return answer.points.map(([allowed, denied, shadow], index) => ({
    at: answer.until - (answer.points.length - 1 - index) * step * 1000,
    allowed: allowed / step,
    denied: denied / step,
    shadow: shadow / step,
  }));
}

/** The rates between consecutive overviews. */
export function rates(looks, of) {
  return looks.slice(1).map((now, index) => {
    const before = looks[index];
    const rate = (name) => perSecond(now, before, (look) => of(look)?.[name] ?? 0);
    return { at: now.at, allowed: rate("allowed"), denied: rate("denied"), shadow: rate("shadowDenied") };
  });
}

const shadowOf = (look) => look.rules.reduce((sum, rule) => sum + rule.shadowDenied, 0);
const requestsOf = (look) => ({ allowed: look.requests.allowed, denied: look.requests.denied + look.requests.undecided, shadowDenied: shadowOf(look) });

/** The labels of the buckets of remaining quota. */
export function ratioNames(bounds) {
  return bounds.map((bound, index) => (index === 0 ? "none" : `≤${bound / 10_000}%`));
}

export function overview() {
  const tiles = Object.fromEntries(["allowed /s", "denied /s", "denied share", "p50", "p95", "p99", "store", "tracked keys"].map((name) => [name, tile(name)]));
  const chart = outcomes("Decisions per second", "Decisions per second, allowed and denied");
  const remaining = bars("Remaining quota after a decision");
  const heaviest = identities("Top clients by request rate", "No requests within the last seconds.");
  const denied = identities("Top clients by denials", "No denials within the last seconds.");
  const ruleTable = table(
    [
      { title: "rule", kind: "name", fill: ruleCell },
      { title: "mode", fill: modeCell },
      { title: "decisions/s", kind: "number", fill: text((rule) => short(rule.rate)) },
      { title: "denied", kind: "number", fill: text(deniedShare) },
      { title: "median remaining", kind: "number", fill: text((rule) => rule.left) },
    ],
    (rule) => rule.name,
    "There are no rules: every request passes.",
  );
  const more = element("p", { class: "quiet" });
  const hint = element("div", { class: "notice", hidden: "" },
    element("p", {}, "No requests since the server started. Try:"),
    element("pre", {}, `curl -s http://127.0.0.1:8081/v1/check -H 'content-type: application/json' -d '{"resource":"demo","identifier":"alice"}'`));
  const box = element("div", {},
    hint,
    element("dl", { class: "tiles" }, ...Object.values(tiles).map((each) => each.box)),
    chart.box,
    element("div", { class: "columns" }, denied.box, heaviest.box),
    element("section", {}, element("h2", {}, "Rules ", element("small", {}, "busiest first")), ruleTable.box, more),
    element("section", {}, element("h2", {}, "Remaining quota after a decision"), remaining.box),
  );

  const update = (looks) => {
    const now = looks.at(-1);
    const before = looks.at(-2) ?? now;
    const since = looks.at(-1 - RECENT) ?? looks[0];
    const all = now.requests.allowed + now.requests.denied + now.requests.undecided;
    hint.hidden = all > 0;
    const rate = (of) => perSecond(now, before, (look) => of(requestsOf(look)));
    const [allowedRate, deniedRate] = [rate((counts) => counts.allowed), rate((counts) => counts.denied)];
    tiles["allowed /s"].set(short(allowedRate));
    tiles["denied /s"].set(short(deniedRate));
    tiles["denied share"].set(percent(deniedRate, allowedRate + deniedRate));
    const spread = added(now.latency.decisions, since === now ? null : since.latency.decisions);
    for (const [name, share] of [["p50", 0.5], ["p95", 0.95], ["p99", 0.99]]) {
      tiles[name].set(duration(quantile(now.latency.boundsMicros, spread, share)));
    }
    tiles.store.set(`${now.store.kind} ${now.store.state}`, now.store.state !== "up");
    tiles["tracked keys"].set(short(now.trackedKeys));
    chart.set(rates(looks, requestsOf));
    heaviest.set(now.heaviest);
    denied.set(now.mostDenied);
    remaining.show(ratioNames(now.remaining.boundsMillionths), now.remaining.counts.slice(0, now.remaining.boundsMillionths.length));
    ruleTable.set(now.rules.map((rule) => withRate(rule, now, before)));
    setText(more, now.ruleCount > now.rules.length ? `${now.rules.length} of ${now.ruleCount} rules are shown.` : "");
  };
  return { title: "Overview", box, update };
}

/** A rule with its rate and its median remaining quota, computed from two overviews. */
export function withRate(rule, now, before) {
  const former = before.rules.find((each) => each.name === rule.name);
  const all = (each) => each.allowed + each.denied + each.shadowDenied;
  const seconds = (now.at - before.at) / 1000;
  const rate = former && seconds > 0 ? Math.max(0, all(rule) - all(former)) / seconds : 0;
  const middle = quantile(now.remaining.boundsMillionths, rule.remaining, 0.5);
  return { ...rule, rate, left: middle === null ? "–" : `${Math.round(middle / 10_000)} %` };
}
