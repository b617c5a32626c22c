// A rule as JSON, to be changed, made or deleted. What is wrong with it is said at its line; who comes second is told, and
// overwrites nothing without knowing it.

import { ask, change } from "./client.js";
import { confirm } from "./dialogs.js";
import { element, setText } from "./elements.js";
import { lineOf, Misplaced, placeOf, read, write } from "./json.js";
import { ruleLink } from "./overview.js";

export const editLink = (name) => `#/edit/${encodeURIComponent(name)}`;
export const NEW_LINK = "#/new";

const RULES = "/admin/v1/rules";
const path = (name) => `${RULES}/${encodeURIComponent(name)}`;

/** What a new rule begins with: it watches, so that nobody is denied by accident. */
const EXAMPLE = {
  name: "",
  match: { resource: "*" },
  per: "identifier",
  limits: [{ algorithm: "token_bucket", capacity: 100, refill: "100/60s" }],
  mode: "shadow",
};

/** The order that people expect; what is not in it comes after. */
const ORDER = ["name", "match", "per", "cost", "limits", "tiers", "overrides", "mode", "on_store_failure", "deadline"];

/** The text of a rule. */
function textOf(rule) {
  const place = ([name]) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return write(Object.fromEntries(Object.entries(rule).sort((one, other) => place(one) - place(other))));
}

/** Texts that were begun and not saved, by the place of their page; they last as long as the page. */
const drafts = new Map();
addEventListener("beforeunload", (event) => {
  if (drafts.size > 0) {
    event.preventDefault();
  }
});

/** What was just done, for the next page to tell. */
let news = null;
export function takeNews() {
  const taken = news;
  news = null;
  return taken;
}

function leave(words, hash) {
  news = words;
  location.hash = hash;
}

/** A text with its lines numbered, and marks on some of them. It is as high as its lines, so the numbers never scroll away. */
function editor(describedBy) {
  const numbers = element("div", { class: "numbers", "aria-hidden": "true" });
  const area = element("textarea", { id: "rule-text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-describedby": describedBy });
  const draw = (marked = []) => {
    const lines = area.value.split("\n").length;
    area.rows = Math.max(lines, 8);
    numbers.replaceChildren(...Array.from({ length: lines }, (_, index) => element("span", { class: marked.includes(index + 1) ? "bad" : null }, String(index + 1))));
    area.setAttribute("aria-invalid", String(marked.length > 0));
  };
  return {
    box: element("div", { class: "editor" }, numbers, area),
    area,
    draw,
    set(text) {
      area.value = text;
      draw();
    },
    goTo(line) {
      const before = area.value.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
      const length = area.value.split("\n")[line - 1]?.length ?? 0;
      area.focus();
      area.setSelectionRange(before, before + length);
    },
  };
}

/** What the server said about a text, each with the line that it is about, if it is about one. */
function findings(error, text, places) {
  return error.message.split("\n").map((words, index) => {
    const named = index === 0 && error.field ? error.field : words.slice(0, Math.max(words.indexOf(": "), 0));
    const place = placeOf(places, named);
    return { words, line: place === undefined ? null : lineOf(text, place) };
  });
}

/** The page on which a rule is changed, or made if it has no name yet. */
export function editPage(name) {
  const isNew = name === null;
  const place = isNew ? NEW_LINK : editLink(name);
  const messages = element("div", { id: "rule-messages" });
  const { box: editorBox, area, draw, set, goTo } = editor("rule-messages");
  const save = element("button", { class: "main" }, isNew ? "Make this rule" : "Save");
  const remove = element("button", { type: "button", class: "danger", hidden: isNew ? "" : null }, "Delete");
  const cancel = element("button", { type: "button" }, "Cancel");
  const form = element("form", { novalidate: "" },
    element("label", { for: "rule-text" }, "The rule, as in the configuration file, as JSON"),
    editorBox,
    messages,
    element("div", { class: "buttons" }, remove, cancel, save));
  const box = element("section", {}, element("h2", {}, isNew ? "A new rule" : `Change ${name}`), form);
  let tag = null;

  const say = (kind, ...parts) => messages.replaceChildren(element("div", { class: `notice ${kind}`, role: "alert" }, ...parts));
  const begin = (text, itsTag) => {
    tag = itsTag;
    set(text);
    messages.replaceChildren();
  };
  const forget = () => drafts.delete(place);
  const point = (found) => {
    draw(found.map(({ line }) => line).filter((line) => line !== null));
    say("bad", element("p", {}, "Nothing was changed:"), element("ul", {}, ...found.map(({ words, line }) => {
      const link = element("button", { type: "button", class: "link", onclick: () => goTo(line) }, `line ${line}`);
      return element("li", {}, ...(line === null ? [words] : [link, ` ${words}`]));
    })));
    const first = found.find(({ line }) => line !== null);
    if (first) {
      goTo(first.line);
    }
  };

  /** Somebody else was faster: both texts are there, and the person decides. */
  const conflict = async () => {
    const { answer, tag: theirTag } = await ask(path(name));
    const theirs = textOf(answer);
    const take = element("button", { type: "button", onclick: () => { forget(); begin(theirs, theirTag); area.focus(); } }, "Take theirs");
    const keep = element("button", { type: "button", onclick: () => { tag = theirTag; drafts.set(place, { text: area.value, tag }); messages.replaceChildren(); save.focus(); } }, "Keep mine, to save over it");
    say("watch",
      element("p", {}, "Somebody else has changed this rule since you opened it, and nothing of yours was saved. This is what it is now:"),
      element("pre", {}, theirs), element("div", { class: "buttons" }, take, keep));
    take.focus();
  };
  const refused = async (error, again) => {
    if (error.status === 412) {
      await conflict();
    } else if (error.status === 403) {
      say("bad", element("p", {}, error.message), element("div", { class: "buttons" }, element("button", { type: "button", onclick: () => again(true) }, "Use another token")));
    } else if (error.status === undefined) {
      say("bad", element("p", {}, "The server does not answer; nothing was changed, as far as is known. Your text is still here: try again."));
    } else {
      say("bad", element("p", {}, error.message));
    }
  };
  /** Runs one change at a time, and tells what came of it. */
  const attempt = async (act, isAnother) => {
    save.disabled = remove.disabled = true;
    try {
      await act(isAnother);
    } catch (error) {
      await refused(error, (another) => attempt(act, another)).catch(() => say("bad", element("p", {}, "The server does not answer.")));
    } finally {
      save.disabled = remove.disabled = false;
    }
  };

  const saving = async (isAnother) => {
    const text = area.value;
    let parsed;
    try {
      parsed = read(text);
    } catch (error) {
      if (error instanceof Misplaced) {
        point([{ words: error.message, line: lineOf(text, error.offset) }]);
        return;
      }
      throw error;
    }
    draw();
    try {
      const options = isNew ? { method: "POST", body: parsed.value } : { method: "PUT", body: parsed.value, match: tag };
      const answered = await change(isNew ? RULES : path(name), options, isAnother);
      if (answered !== null) {
        forget();
        leave(isNew ? "Made, and in force on this server." : "Saved, and in force on this server.", ruleLink(answered.answer.name));
      }
    } catch (error) {
      if (error.status !== 400) {
        throw error;
      }
      point(findings(error, text, parsed.places));
    }
  };
  const deleting = async (isAnother) => {
    const answered = await change(path(name), { method: "DELETE", match: tag }, isAnother);
    if (answered !== null) {
      forget();
      leave(`${name} is deleted.`, "#/rules");
    }
  };

  area.addEventListener("input", () => {
    draw();
    drafts.set(place, { text: area.value, tag });
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(saving, false);
  });
  remove.addEventListener("click", async () => {
    if (await confirm(`Delete ${name}?`, "What it limits is not limited by it any more, on every server of this database. What it has counted is forgotten in time.", "Delete it")) {
      attempt(deleting, false);
    }
  });
  cancel.addEventListener("click", () => {
    forget();
    leave(null, isNew ? "#/rules" : ruleLink(name));
  });

  const start = async () => {
    const draft = drafts.get(place);
    if (draft) {
      begin(draft.text, draft.tag);
      say("", element("p", {}, "This is your text from before; it is not saved yet. Cancel throws it away."));
    } else if (isNew) {
      begin(textOf(EXAMPLE), null);
    } else {
      save.disabled = true;
      const { answer, tag: itsTag } = await ask(path(name));
      begin(textOf(answer), itsTag);
      save.disabled = false;
    }
  };
  start().catch((error) => {
    area.disabled = remove.disabled = true;
    say("bad", element("p", {}, error.message));
  });
  return { title: isNew ? "A new rule" : `Change ${name}`, box, update() {} };
}

/** How rules can be changed on this server: links to do so, or what is needed for it. */
export function editing() {
  const box = element("div", {});
  let shown = null;
  return {
    box,
    set(rulesFrom) {
      if (rulesFrom === shown) {
        return;
      }
      shown = rulesFrom;
      if (rulesFrom === "database") {
        box.replaceChildren(element("p", {}, element("a", { class: "button", href: NEW_LINK }, "New rule")));
      } else {
        box.replaceChildren(element("p", { class: "quiet" },
          "Rules are those of the configuration file: what is changed there is in force within two seconds. To change them here, give the server a database, for example ",
          element("code", {}, "database: sqlite:///var/lib/sluicegate/rules.db"),
          ", and a token in ", element("code", {}, "SLUICEGATE_ADMIN_TOKEN"),
          "; it takes over the rules of the file at its next start."));
      }
    },
  };
}

/** What a rule says, with a way to change it where that is possible. */
export function definition(name) {
  const text = element("pre", {});
  const way = element("p", { hidden: "" }, element("a", { class: "button", href: editLink(name) }, "Change it"));
  const box = element("section", { hidden: "" }, element("h2", {}, "What it says"), text, way);
  let asked = false;
  return {
    box,
    set(rulesFrom) {
      way.hidden = rulesFrom !== "database";
      // Names with other characters are of what requests or tenants bring along; they are nowhere to be read.
      if (!asked && /^[\w.-]{1,64}$/.test(name)) {
        asked = true;
        ask(path(name)).then(({ answer }) => {
          setText(text, textOf(answer));
          box.hidden = false;
        }).catch(() => {});
      }
    },
  };
}
