// Who gets what, and why: every rule says whether a request is its business, by whose limits, and what is left of them.

import { ask } from "./client.js";
import { element } from "./elements.js";
import { span } from "./numbers.js";
import { ruleLink } from "./overview.js";

/** The most rules that do not match that are shown; the rest is counted. */
const OTHERS = 100;

const FIELDS = {
  resource: { name: "Resource", kinds: ["check"], isNeeded: ["check"], hint: "api.payment.create" },
  path: { name: "Path", kinds: ["http"], isNeeded: ["http"], hint: "/api/payments" },
  method: { name: "Method", kinds: ["http"], isNeeded: [], hint: "GET" },
  identifier: { name: "Who asks", kinds: ["check", "http"], isNeeded: ["check"], hint: "alice" },
  address: { name: "From which address", kinds: ["http"], isNeeded: [], hint: "192.0.2.7" },
  tenant: { name: "Tenant", kinds: ["check", "http"], isNeeded: [], hint: "default" },
  tier: { name: "Tier", kinds: ["check", "http"], isNeeded: [], hint: "none" },
  cost: { name: "Cost", kinds: ["check", "http"], isNeeded: [], hint: "as the rule says" },
};

/** What was asked last, so that the form is as it was when somebody comes back. */
const last = { kind: "check", values: {} };

function field(key) {
  const { name, hint } = FIELDS[key];
  const trouble = element("span", { class: "bad", id: `explain-${key}-trouble` });
  const input = element("input", {
    id: `explain-${key}`, name: key, placeholder: hint, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    inputmode: key === "cost" ? "numeric" : null, "aria-describedby": `explain-${key}-trouble`,
  });
  input.value = last.values[key] ?? "";
  const box = element("label", {}, element("span", {}, name), input, trouble);
  return {
    key, input, box,
    say(words) {
      trouble.textContent = words;
      input.setAttribute("aria-invalid", String(words !== ""));
    },
  };
}

const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;

function wait(decision) {
  return decision.retryAfterMs === null ? "It never fits: the cost is more than the whole limit." : `It fits again in ${span(decision.retryAfterMs * 1_000)}.`;
}

/** One sentence for all of it, and whether it is good news. */
function sentence({ outcome, decision }) {
  if (outcome === "denied") {
    return ["bad", "Denied: no rule matches, and unmatched requests are denied here."];
  }
  if (outcome === "allowed") {
    return ["", "Allowed: no rule matches, so nothing limits this request."];
  }
  if (decision.degraded) {
    return ["watch", `The store does not answer: ${decision.allowed ? "it would be allowed" : "it would be denied"}, by what rules say of that.`];
  }
  if (outcome === "unlimited") {
    return ["", "Allowed: rules match, and none of them can deny it."];
  }
  return decision.allowed
    ? ["good", `Allowed now: ${decision.remaining} of ${decision.limit} left by ${decision.rule}.`]
    : ["bad", `Denied now by ${decision.rule}. ${wait(decision)}`];
}

function whose({ kind, name }) {
  return { rule: "the rule's own limits", tier: `limits of the tier ${name}`, override: `limits of the override ${name}` }[kind] ?? kind;
}

function limitWords(limit, verdict) {
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
  const limits = terms.limits.map((limit, index) => element("li", {}, limitWords(limit, verdicts[index])));
  const about = [whose(terms.limitsOf), terms.cost === null ? null : `cost ${terms.cost}`, `${terms.onStoreFailure} without the store`].filter(Boolean).join(" · ");
  return element("article", {},
    element("h3", {}, element("a", { href: ruleLink(rule.name) }, rule.name), " ", element("span", { class: `tag ${terms.mode}` }, terms.mode)),
    element("p", { class: "quiet" }, about),
    terms.ended ? element("p", { class: "quiet" }, `The override ${terms.ended.name} has ended at ${terms.ended.until}.`) : "",
    terms.unlimited ? element("p", {}, "Unlimited.") : element("ul", {}, ...limits),
    terms.key === null ? "" : element("p", { class: "quiet" }, "Counted under ", element("code", {}, terms.key)));
}

function others(rules) {
  const shown = rules.slice(0, OTHERS).map((rule) =>
    element("li", {}, element("a", { href: ruleLink(rule.name) }, rule.name), ": ", rule.mismatches.map(({ reason }) => reason).join("; ")));
  const more = rules.length > OTHERS ? [element("li", { class: "quiet" }, `and ${rules.length - OTHERS} more`)] : [];
  return element("details", { open: rules.length <= 10 ? "" : null },
    element("summary", {}, `${plural(rules.length, "rule does", "rules do")} not match, and why`),
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

/** What the form says, as the server takes it. */
function question(fields) {
  const entries = fields.map(({ key, input }) => [key, input.value]).filter(([, value]) => value !== "");
  // A cost that is no number is sent as it is, and the server says so.
  return Object.fromEntries(entries.map(([key, value]) => [key, key === "cost" && /^\d{1,10}$/.test(value) ? Number(value) : value]));
}

export function explainPage() {
  const fields = Object.keys(FIELDS).map(field);
  const result = element("div", { id: "explained", role: "status" });
  const kinds = [["check", "a check, as the API is asked"], ["http", "an HTTP request, as the gateway sees it"]].map(([kind, words]) => {
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
      each.say("");
      last.values[each.key] = each.input.value;
    });
    try {
      const { answer } = await ask("/admin/v1/explain", { method: "POST", body: question(fields.filter(({ key }) => FIELDS[key].kinds.includes(last.kind))) });
      result.replaceChildren(...answerBox(answer));
    } catch (error) {
      const about = fields.find(({ key, box }) => key === error.field && !box.hidden);
      about?.say(error.message);
      about?.input.focus();
      const words = error.status === undefined ? "The server does not answer; try again." : error.message;
      result.replaceChildren(...(about ? [] : [element("p", { class: "notice bad" }, words)]));
    }
  });
  const box = element("section", {},
    element("h2", {}, "Who gets what, and why"),
    element("p", { class: "quiet" }, "Says what would become of a request now. Nothing is charged."),
    form, result);
  return { title: "Explain", box, update() {} };
}
