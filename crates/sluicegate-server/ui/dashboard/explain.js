// Explains a request: the rules that match and those that do not, the limits that apply, and their remaining quota.

import { ask } from "./client.js";
import { element } from "./elements.js";
import { read } from "./json.js";
import { span } from "./numbers.js";
import { ruleLink } from "./overview.js";

/** The most rules that are shown as not matching; the rest is counted. */
const OTHERS = 100;

const FIELDS = {
  resource: { name: "Resource", kinds: ["check"], isNeeded: ["check"], hint: "api.payment.create" },
  path: { name: "Path", kinds: ["http"], isNeeded: ["http"], hint: "/api/payments" },
  method: { name: "Method", kinds: ["http"], isNeeded: [], hint: "GET" },
  identifier: { name: "Identifier", kinds: ["check", "http"], isNeeded: ["check"], hint: "alice" },
  address: { name: "Client address", kinds: ["http"], isNeeded: [], hint: "192.0.2.7" },
  tenant: { name: "Tenant", kinds: ["check", "http"], isNeeded: [], hint: "default" },
  tier: { name: "Tier", kinds: ["check", "http"], isNeeded: [], hint: "none" },
  cost: { name: "Cost", kinds: ["check", "http"], isNeeded: [], hint: "the rule's cost" },
  host: { name: "Host", kinds: ["http"], isNeeded: [], hint: "shop.example.com" },
  headers: { name: "Header fields, one per line", kinds: ["http"], isNeeded: [], hint: "x-plan: gold", isLong: true },
  claims: { name: "Claims of a verified token, as JSON", kinds: ["http"], isNeeded: [], hint: '{ "groups": ["staff"] }', isLong: true },
};

/** The last values of the form, restored when the user returns to the page. */
const last = { kind: "check", values: {} };

function field(key) {
  const { name, hint, isLong } = FIELDS[key];
  const trouble = element("span", { class: "bad", id: `explain-${key}-trouble` });
  const input = element(isLong ? "textarea" : "input", {
    rows: isLong ? "2" : null,
    id: `explain-${key}`, name: key, placeholder: hint, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    inputmode: key === "cost" ? "numeric" : null, "aria-describedby": `explain-${key}-trouble`,
  });
  input.value = last.values[key] ?? "";
  const box = element("label", {}, element("span", {}, name), input, trouble);
  return {
    key, input, box,
    setError(words) {
      trouble.textContent = words;
      input.setAttribute("aria-invalid", String(words !== ""));
    },
  };
}

const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;

function wait(decision) {
  return decision.retryAfterMs === null ? "It never fits: the cost is more than the whole limit." : `It fits again in ${span(decision.retryAfterMs * 1_000)}.`;
}

/** The kind of the notice, and one sentence for the whole outcome. */
function sentence({ outcome, decision }) {
  if (outcome === "denied") {
    return ["bad", "Denied: no rule matches, and unmatched requests are denied here."];
  }
  if (outcome === "allowed") {
    return ["", "Allowed: no rule matches, so nothing limits this request."];
  }
  if (decision.degraded) {
    return ["watch", `The store does not answer in time. By the rules' on_store_failure, the request would be ${decision.allowed ? "allowed" : "denied"}.`];
  }
  if (outcome === "unlimited") {
    return ["", "Allowed: rules match, and none of them can deny it."];
  }
  return decision.allowed
    ? ["good", `Allowed now: ${decision.remaining} of ${decision.limit} left by ${decision.rule}.`]
    : ["bad", `Denied now by ${decision.rule}. ${wait(decision)}`];
}

function limitSource({ kind, name }) {
  return { rule: "the rule's own limits", tier: `limits of the tier ${name}`, override: `limits of the override ${name}` }[kind] ?? kind;
}

function limitText(limit, verdict) {
  const { bucket } = limit;
  const of = bucket
    ? `${limit.limit} at once, ${bucket.refillTokens} back every ${span(bucket.refillMicros)}`
    : `${limit.limit} in ${limit.calendar ? `every ${limit.calendar}` : span(limit.windowMicros)}`;
  const now = verdict ? ` – ${verdict.remaining} left${verdict.allowed ? "" : verdict.shadow ? ", and it would deny this" : ", and it denies this"}` : "";
  return `${limit.algorithm.replaceAll("_", " ")}: ${of}${now}`;
}

function matching(rule, decision) {
  const { terms } = rule;
  const verdicts = (decision.limits ?? []).filter((verdict) => verdict.rule === rule.name);
  const limits = terms.limits.map((limit, index) => element("li", {}, limitText(limit, verdicts[index])));
  const about = [limitSource(terms.limitsOf), terms.cost === null ? null : `cost ${terms.cost}`, `${terms.onStoreFailure} without the store`].filter(Boolean).join(" · ");
  return element("article", {},
    element("h3", {}, element("a", { href: ruleLink(rule.name) }, rule.name), " ", element("span", { class: `tag ${terms.mode}` }, terms.mode)),
    element("p", { class: "quiet" }, about),
    terms.ended ? element("p", { class: "quiet" }, `The override ${terms.ended.name} ended at ${terms.ended.until}.`) : "",
    terms.unlimited ? element("p", {}, "Unlimited.") : element("ul", {}, ...limits),
    terms.key === null ? "" : element("p", { class: "quiet" }, "Counted under ", element("code", {}, terms.key)));
}

function others(rules) {
  const shown = rules.slice(0, OTHERS).map((rule) =>
    element("li", {}, element("a", { href: ruleLink(rule.name) }, rule.name), ": ", rule.mismatches.map(({ reason }) => reason).join("; ")));
  const more = rules.length > OTHERS ? [element("li", { class: "quiet" }, `and ${rules.length - OTHERS} more`)] : [];
  return element("details", { open: rules.length <= 10 ? "" : null },
    element("summary", {}, `${plural(rules.length, "rule does", "rules do")} not match: reasons`),
    element("ul", {}, ...shown, ...more));
}

function answerBox(explained) {
  const [kind, words] = sentence(explained);
  const match = explained.rules.filter((rule) => rule.matches);
  const rest = explained.rules.filter((rule) => !rule.matches);
  return [
    element("p", { class: `notice ${kind}` }, element("strong", {}, words)),
    ...match.map((rule) => matching(rule, explained.decision ?? {})),
    ...(rest.length > 0 ? [others(rest)] : []),
  ];
}

/** An invalid field, found before anything is sent. */
class InvalidField extends Error {
  constructor(field, detail) {
    super(detail);
    this.field = field;
  }
}

/** Parses header fields, one per line. Fields of the same name become a list. */
function headers(text) {
  const found = new Map();
  for (const line of text.split("\n").filter((each) => each.trim() !== "")) {
    const colon = line.indexOf(":");
    if (colon < 1) {
      throw new InvalidField("headers", `${line.trim()} is not a header field; write name: value`);
    }
    const name = line.slice(0, colon).trim();
    found.set(name, [...(found.get(name) ?? []), line.slice(colon + 1).trim()]);
  }
  return Object.fromEntries(found);
}

function claims(text) {
  try {
    return read(text).value;
  } catch (error) {
    throw new InvalidField("claims", `this is not JSON: ${error.message}`);
  }
}

/** Converts values for the server. An invalid number is sent unchanged, and the server reports the error. */
const MEANINGS = { cost: (text) => (/^\d{1,10}$/.test(text) ? Number(text) : text), headers, claims };

/** The values of the form. */
function requestOf(fields) {
  const entries = fields.map(({ key, input }) => [key, input.value]).filter(([, value]) => value.trim() !== "");
  return Object.fromEntries(entries.map(([key, value]) => [key, MEANINGS[key]?.(value) ?? value]));
}

export function explainPage() {
  const fields = Object.keys(FIELDS).map(field);
  const result = element("div", { id: "explained", role: "status" });
  const kinds = [["check", "a check through the API"], ["http", "an HTTP request through the gateway"]].map(([kind, words]) => {
    const radio = element("input", { type: "radio", name: "kind", value: kind });
    radio.checked = last.kind === kind;
    radio.addEventListener("change", () => choose(kind));
    return element("label", { class: "inline" }, radio, words);
  });
  const choose = (kind) => {
    last.kind = kind;
    for (const { key, input, box } of fields) {
      box.hidden = !FIELDS[key].kinds.includes(kind);
      input.required = FIELDS[key].isNeeded.includes(kind);
    }
  };
  choose(last.kind);
  const form = element("form", {},
    element("fieldset", {}, element("legend", {}, "Explain"), ...kinds),
    element("div", { class: "fields" }, ...fields.map(({ box }) => box)),
    element("div", { class: "buttons" }, element("button", { class: "main" }, "Explain")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fields.forEach((each) => {
      each.setError("");
      last.values[each.key] = each.input.value;
    });
    try {
      const { answer } = await ask("/admin/v1/explain", { method: "POST", body: requestOf(fields.filter(({ key }) => FIELDS[key].kinds.includes(last.kind))) });
      result.replaceChildren(...answerBox(answer));
    } catch (error) {
      const about = fields.find(({ key, box }) => key === error.field && !box.hidden);
      about?.setError(error.message);
      about?.input.focus();
      const words = error.status === undefined && !about ? "The server does not answer; try again." : error.message;
      result.replaceChildren(...(about ? [] : [element("p", { class: "notice bad" }, words)]));
    }
  });
  const box = element("section", {},
    element("h2", {}, "Explain a request"),
    element("p", { class: "quiet" }, "Shows how a request would be decided now. Nothing is charged."),
    form, result);
  return { title: "Explain", box, update() {} };
}
