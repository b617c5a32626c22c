// The dashboard: follows the server and shows the page that the address names.

import { follow, setToken } from "./client.js";
import { element, setText, table, text } from "./elements.js";
import { percent, short } from "./numbers.js";
import { modeCell, overview, ruleCell, withRate } from "./overview.js";
import { rulePage } from "./rule.js";

/** How many looks are remembered: five minutes. */
const LOOKS = 301;

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
      { title: "typically left", kind: "number", fill: text((rule) => rule.left) },
    ],
    (rule) => rule.name,
    "There are no rules: every request passes. Write some into the configuration.",
  );
  const note = element("p", { class: "quiet" });
  const update = (looks) => {
    const [now, before] = [looks.at(-1), looks.at(-2) ?? looks.at(-1)];
    rows.set(now.rules.map((rule) => withRate(rule, now, before)));
    setText(note, now.ruleCount > now.rules.length ? `The busiest ${now.rules.length} of ${now.ruleCount} rules.` : "");
  };
  return { title: "Rules", box: element("section", {}, element("h2", {}, "Rules"), rows.box, note), update };
}

/** The page that the address names. */
function pageOf(hash) {
  const rule = /^#\/rules\/(.+)$/.exec(hash);
  if (rule) {
    return rulePage(decodeURIComponent(rule[1]));
  }
  return hash === "#/rules" ? rules() : overview();
}

function show() {
  page = pageOf(location.hash);
  document.title = `${page.title} – Sluicegate`;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === (location.hash || "#/") || (link.hash === "#/rules" && location.hash.startsWith("#/rules/"));
    link.toggleAttribute("aria-current", isHere);
  }
  view.replaceChildren(page.box);
  if (looks.length > 0) {
    page.update(looks);
  }
}

/** What an operator should know before anything else. */
function warn(look) {
  const made = [];
  if (look.store.state !== "up") {
    const what = look.store.state === "down" ? "The store does not answer" : "A part of the store does not answer";
    made.push(element("div", { class: "notice bad", role: "alert" },
      element("p", {}, `${what} (${look.store.trouble}). Rules answer by their on_store_failure until it does.`),
      element("p", { class: "quiet" }, "Look at the store's own log and at sluicegate_store_errors_total; nothing has to be restarted here.")));
  }
  if (look.health.status === "stopping") {
    made.push(element("div", { class: "notice watch", role: "alert" }, element("p", {}, "The server is stopping.")));
  }
  const isSame = notices.children.length === made.length && made.every((notice, index) => notice.textContent === notices.children[index].textContent);
  if (!isSame) {
    notices.replaceChildren(...made);
  }
}

function told(look) {
  // Counts that are less than before are those of another process.
  const last = looks.at(-1);
  if (last && look.requests.allowed + look.requests.denied < last.requests.allowed + last.requests.denied) {
    looks = [];
  }
  looks = [...looks, look].slice(-LOOKS);
  setText(document.querySelector("#version"), look.version);
  warn(look);
  page.update(looks);
}

function changed(state, about) {
  connection.className = state;
  if (state === "live") {
    setText(connection, "Live");
  } else if (state === "lost") {
    setText(connection, `The server does not answer; trying again in ${Math.round(about / 1000)} s`);
  } else {
    setText(connection, "The admin token is needed");
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
    follow(told, changed);
  });
  notices.replaceChildren(form);
  input.focus();
}

addEventListener("hashchange", () => {
  show();
  view.focus();
});
show();
follow(told, changed);
