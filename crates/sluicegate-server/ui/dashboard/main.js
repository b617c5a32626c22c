// The dashboard: follows the server's events and shows the page of the current address.

import { follow, forgetToken, hasToken, setToken } from "./client.js";
import { editing, editPage, NEW_LINK, takeNotice } from "./edit.js";
import { element, setText, table, text } from "./elements.js";
import { explainPage } from "./explain.js";
import { percent, short } from "./numbers.js";
import { modeCell, overview, ruleCell, ruleLink, withRate } from "./overview.js";
import { rulePage } from "./rule.js";

/** The number of overviews that are kept: five minutes. */
const LOOKS = 301;
/** The number of overviews that cover the last seconds. */
const RECENT_LOOKS = 6;

const view = document.querySelector("#view");
const connection = document.querySelector("#connection");
const notices = document.querySelector("#notices");
let looks = [];
let page = null;

function rules() {
  const rows = table(
    [
      { title: "rule", kind: "name", fill: ruleCell },
      { title: "mode", fill: modeCell },
      { title: "algorithms", fill: text((rule) => rule.algorithms.join(", ") || "–") },
      { title: "decisions/s", kind: "number", fill: text((rule) => short(rule.rate)) },
      { title: "allowed", kind: "number", fill: text((rule) => short(rule.allowed)) },
      { title: "denied", kind: "number", fill: text((rule) => short(rule.denied)) },
      { title: "would have denied", kind: "number", fill: text((rule) => short(rule.shadowDenied)) },
      { title: "share", kind: "number", fill: text((rule) => percent(rule.denied + rule.shadowDenied, rule.allowed + rule.denied + rule.shadowDenied)) },
      { title: "median remaining", kind: "number", fill: text((rule) => rule.left) },
    ],
    (rule) => rule.name,
    "There are no rules: every request passes.",
  );
  const note = element("p", { class: "quiet" });
  const name = element("input", { id: "rule-name", required: "", autocomplete: "off", spellcheck: "false" });
  const find = element("form", { class: "find", hidden: "" }, element("label", {}, "Rule name", name), element("button", {}, "Show"));
  find.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = ruleLink(name.value);
  });
  const change = editing();
  const update = (looks) => {
    const [now, before] = [looks.at(-1), looks.at(-2) ?? looks.at(-1)];
    rows.set(now.rules.map((rule) => withRate(rule, now, before)));
    setText(note, now.ruleCount > now.rules.length ? `The busiest ${now.rules.length} of ${now.ruleCount} rules.` : "");
    find.hidden = now.ruleCount <= now.rules.length;
    change.set(now.rulesFrom);
  };
  return { title: "Rules", box: element("section", {}, element("h2", {}, "Rules"), change.box, rows.box, note, find), update };
}

/** Decodes a name in the address. A typed address may be invalid. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The page of an address. */
function pageOf(hash) {
  const [, kind, name] = /^#\/(rules|edit)\/(.+)$/.exec(hash) ?? [];
  if (kind) {
    return kind === "edit" ? editPage(decoded(name)) : rulePage(decoded(name));
  }
  const pages = { "#/rules": rules, "#/explain": explainPage, [NEW_LINK]: () => editPage(null) };
  return (pages[hash] ?? overview)();
}

/** True if a link of the menu leads to the current page or its section. */
function isHere(link) {
  const isOfRules = /^#\/(rules|edit|new)(\/|$)/.test(location.hash);
  return link.hash === (location.hash || "#/") || (link.hash === "#/rules" && isOfRules);
}

function show() {
  page = pageOf(location.hash);
  document.title = `${page.title} – Sluicegate`;
  for (const link of document.querySelectorAll("nav a")) {
    if (isHere(link)) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  const notice = takeNotice();
  view.replaceChildren(...(notice === null ? [] : [element("p", { class: "notice good", role: "status" }, notice)]), page.box);
  if (looks.length > 0) {
    page.update(looks);
  }
}

/** True if requests were decided without the store in the last seconds, although it was up. */
function isOverloaded() {
  const recent = looks.slice(-RECENT_LOOKS);
  return recent.length > 1 && recent.every((look) => look.store.state === "up")
    && recent.at(-1).requests.degraded > recent[0].requests.degraded;
}

/** The warnings at the top of the page. */
function warn(look) {
  const made = [];
  if (look.store.state !== "up") {
    const what = look.store.state === "down" ? "The store does not answer" : "A part of the store does not answer";
    made.push(element("div", { class: "notice bad", role: "alert" },
      element("p", {}, `${what} (${look.store.trouble}). Until it does, rules decide by their on_store_failure.`),
      element("p", { class: "quiet" }, "Check the store's log and sluicegate_store_errors_total. This server needs no restart.")));
  }
  if (isOverloaded()) {
    made.push(element("div", { class: "notice watch", role: "alert" },
      element("p", {}, "The store is up but overloaded: requests that it does not decide in time are decided by this server's share of the limits."),
      element("p", { class: "quiet" }, "sluicegate_decisions_total counts them as overload_allowed and overload_denied. Check the busiest clients first.")));
  }
  if (look.health.awaitingConfiguration) {
    made.push(element("div", { class: "notice bad", role: "alert" },
      element("p", {}, "The control plane has not sent a configuration yet: none of its limits applies."),
      element("p", { class: "quiet" }, "GET /admin/v1/reload shows the state of the connection, and the log the reason.")));
  } else if (look.health.staleConfiguration) {
    made.push(element("div", { class: "notice watch", role: "alert" },
      element("p", {}, "The last configuration has mistakes. What was in force stays in force."),
      element("p", { class: "quiet" }, "GET /admin/v1/reload lists them.")));
  }
  if (look.health.status === "stopping") {
    made.push(element("div", { class: "notice watch", role: "alert" }, element("p", {}, "The server is stopping.")));
  }
  const isSame = notices.children.length === made.length && made.every((notice, index) => notice.textContent === notices.children[index].textContent);
  if (!isSame) {
    notices.replaceChildren(...made);
  }
}

function onOverview(look) {
  // Counts below the previous ones come from a restarted server.
  const last = looks.at(-1);
  if (last && look.requests.allowed + look.requests.denied < last.requests.allowed + last.requests.denied) {
    looks = [];
  }
  looks = [...looks, look].slice(-LOOKS);
  setText(document.querySelector("#version"), look.version);
  warn(look);
  page.update(looks);
}

function onConnection(state, about) {
  connection.className = state;
  if (state === "live") {
    setText(connection, "Live");
  } else if (state === "lost") {
    setText(connection, `The server does not answer; retrying in ${Math.round(about / 1000)} s`);
  } else {
    setText(connection, "Admin token required");
    askForToken(about);
  }
}

function askForToken(error) {
  const input = element("input", { type: "password", autocomplete: "off", required: "", id: "token" });
  const form = element("form", { class: "notice" },
    element("p", {}, error.message),
    element("label", {}, "Admin token", input),
    element("div", {}, element("button", { class: "main" }, "Show the dashboard")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(input.value);
    notices.replaceChildren();
    follow(onOverview, onConnection);
  });
  notices.replaceChildren(form);
  input.focus();
}

const forget = document.querySelector("#forget");
forget.addEventListener("click", () => {
  forgetToken();
  connection.focus();
});
const showToken = () => { forget.hidden = !hasToken(); };
addEventListener("tokenchange", showToken);
showToken();
addEventListener("hashchange", () => {
  show();
  view.focus();
});
show();
follow(onOverview, onConnection);
