// The editor of a rule as JSON: create, change or delete. Errors are shown at their lines. If the rule was changed
// meanwhile, the editor shows both versions and overwrites nothing without consent.

import { ask, change } from "./client.js";
import { confirm } from "./dialogs.js";
import { element, setText } from "./elements.js";
import { lineOf, Misplaced, placeOf, read, write } from "./json.js";
import { ruleLink } from "./overview.js";

export const editLink = (name) => `#/edit/${encodeURIComponent(name)}`;
export const NEW_LINK = "#/new";

const RULES = "/admin/v1/rules";
const path = (name) => `${RULES}/${encodeURIComponent(name)}`;

/** The template of a new rule. It is in shadow mode, so that no client is denied by accident. */
const EXAMPLE = {
  name: "",
  match: { resource: "*" },
  per: "identifier",
  limits: [{ algorithm: "token_bucket", capacity: 100, refill: "100/60s" }],
  mode: "shadow",
};

/** The conventional order of keys; other keys follow. */
const ORDER = ["name", "match", "per", "cost", "limits", "tiers", "overrides", "mode", "on_store_failure", "deadline"];

/** The text of a rule. */
function textOf(rule) {
  const place = ([name]) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return write(Object.fromEntries(Object.entries(rule).sort((one, other) => place(one) - place(other))));
}

/** Unsaved texts, by the address of their editor. They are lost when the page is closed. */
const drafts = new Map();
addEventListener("beforeunload", (event) => {
  if (drafts.size > 0) {
    event.preventDefault();
  }
});

/** The confirmation of the last change, for the next page to show. */
let notice = null;
export function takeNotice() {
  const taken = notice;
  notice = null;
  return taken;
}

function leave(words, hash) {
  notice = words;
  location.hash = hash;
}

/** A text area with line numbers and marked lines. It is as high as its text, so the numbers stay aligned. */
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

/** The server's errors about a text, each with its line if it names one. */
function findings(error, text, places) {
  return error.message.split("\n").map((words, index) => {
    const named = index === 0 && error.field ? error.field : words.slice(0, Math.max(words.indexOf(": "), 0));
    const place = placeOf(places, named);
    return { words, line: place === undefined ? null : lineOf(text, place) };
  });
}

/** The editor page of a rule, or of a new rule if `name` is null. */
export function editPage(name) {
  const isNew = name === null;
  const place = isNew ? NEW_LINK : editLink(name);
  const messages = element("div", { id: "rule-messages" });
  const { box: editorBox, area, draw, set, goTo } = editor("rule-messages");
  const save = element("button", { class: "main" }, isNew ? "Create rule" : "Save");
  const remove = element("button", { type: "button", class: "danger", hidden: isNew ? "" : null }, "Delete");
  const cancel = element("button", { type: "button" }, "Cancel");
  const form = element("form", { novalidate: "" },
    element("label", { for: "rule-text" }, "The rule, as in the configuration file, as JSON"),
    editorBox,
    messages,
    element("div", { class: "buttons" }, remove, cancel, save));
  const box = element("section", {}, element("h2", {}, isNew ? "A new rule" : `Change ${name}`), form);
  let tag = null;

  const showMessage = (kind, ...parts) => messages.replaceChildren(element("div", { class: `notice ${kind}`, role: "alert" }, ...parts));
  const begin = (text, itsTag) => {
    tag = itsTag;
    set(text);
    messages.replaceChildren();
  };
  const forget = () => drafts.delete(place);
  const point = (found) => {
    draw(found.map(({ line }) => line).filter((line) => line !== null));
    showMessage("bad", element("p", {}, "Nothing was changed:"), element("ul", {}, ...found.map(({ words, line }) => {
      const link = element("button", { type: "button", class: "link", onclick: () => goTo(line) }, `line ${line}`);
      return element("li", {}, ...(line === null ? [words] : [link, ` ${words}`]));
    })));
    const first = found.find(({ line }) => line !== null);
    if (first) {
      goTo(first.line);
    }
  };

  /** The rule was changed meanwhile: shows both versions, and the user decides. */
  const conflict = async () => {
    const { answer, tag: theirTag } = await ask(path(name));
    const theirs = textOf(answer);
    const take = element("button", { type: "button", onclick: () => { forget(); begin(theirs, theirTag); area.focus(); } }, "Use the saved version");
    const keep = element("button", { type: "button", onclick: () => { tag = theirTag; drafts.set(place, { text: area.value, tag }); messages.replaceChildren(); save.focus(); } }, "Keep my version and overwrite");
    showMessage("watch",
      element("p", {}, "This rule was changed since you opened it, and your text was not saved. The saved version is now:"),
      element("pre", {}, theirs), element("div", { class: "buttons" }, take, keep));
    take.focus();
  };
  const refused = async (error, again) => {
    if (error.status === 412) {
      await conflict();
    } else if (error.status === 403) {
      showMessage("bad", element("p", {}, error.message), element("div", { class: "buttons" }, element("button", { type: "button", onclick: () => again(true) }, "Use another token")));
    } else if (error.status === undefined) {
      showMessage("bad", element("p", {}, "The server does not answer, so the change was probably not made. Your text is still here: try again."));
    } else {
      showMessage("bad", element("p", {}, error.message));
    }
  };
  /** Runs one change at a time, and shows its outcome. */
  const attempt = async (act, isAnother) => {
    save.disabled = remove.disabled = true;
    try {
      await act(isAnother);
    } catch (error) {
      await refused(error, (another) => attempt(act, another)).catch(() => showMessage("bad", element("p", {}, "The server does not answer.")));
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
        leave(isNew ? "Created, and in force on this server." : "Saved, and in force on this server.", ruleLink(answered.answer.name));
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
    if (await confirm(`Delete ${name}?`, "The rule stops applying on every server of this database. Its state expires.", "Delete")) {
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
      showMessage("", element("p", {}, "This is your unsaved text; it is not saved yet. Cancel discards it."));
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
    showMessage("bad", element("p", {}, error.message));
  });
  return { title: isNew ? "A new rule" : `Change ${name}`, box, update() {} };
}

/** A link to create a rule, or instructions if this server cannot change rules. */
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
          "The rules come from the configuration file, where changes take effect within two seconds. To change them here, give the server a database, for example ",
          element("code", {}, "database: sqlite:///var/lib/sluicegate/rules.db"),
          ", and a token in ", element("code", {}, "SLUICEGATE_ADMIN_TOKEN"),
          "; at its next start it imports the rules of the file."));
      }
    },
  };
}

/** The definition of a rule, with a link to change it where that is possible. */
export function definition(name) {
  const text = element("pre", {});
  const way = element("p", { hidden: "" }, element("a", { class: "button", href: editLink(name) }, "Change"));
  const box = element("section", { hidden: "" }, element("h2", {}, "Definition"), text, way);
  let asked = false;
  return {
    box,
    set(rulesFrom) {
      way.hidden = rulesFrom !== "database";
      // Other names belong to limits that requests or tenants bring; they have no stored definition.
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
