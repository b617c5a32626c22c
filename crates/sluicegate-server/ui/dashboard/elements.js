// Elements, and tables that reuse their rows. Foreign text is only set as text, never parsed as markup.

/** An element with attributes and children; strings become text. Attributes that are null are skipped. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) {
      continue;
    }
    if (name.startsWith("on")) {
      made.addEventListener(name.slice(2), value);
    } else {
      made.setAttribute(name, value);
    }
  }
  made.append(...children);
  return made;
}

/** Sets the text of an element if it differs, so that a selection survives. */
export function setText(target, text) {
  if (target.textContent !== text) {
    target.textContent = text;
  }
}

/** A tile with a number: its name, and a function that sets it. */
export function tile(name) {
  const value = element("dd", {}, "–");
  const box = element("div", { class: "tile" }, element("dt", {}, name), value);
  return {
    box,
    set(text, isBad = false) {
      setText(value, text);
      box.classList.toggle("bad", isBad);
    },
  };
}

/**
 * A table whose rows are told apart by a key. Rows stay the same elements as long as their key does, so that the focus
 * does not jump while numbers move. A column is a title, a class and a function that fills a cell.
 */
export function table(columns, keyOf, empty) {
  const titles = columns.map(({ title, kind }) => element("th", { scope: "col", class: kind ?? null }, title));
  const body = element("tbody");
  const box = element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...titles)), body));
  const rows = new Map();
  const row = (key) => {
    if (!rows.has(key)) {
      rows.set(key, element("tr", {}, ...columns.map(({ kind }) => element("td", { class: kind ?? null }))));
    }
    return rows.get(key);
  };
  return {
    box,
    set(items) {
      const keys = items.map(keyOf);
      for (const key of [...rows.keys()].filter((known) => !keys.includes(known))) {
        rows.delete(key);
      }
      const wanted = items.map((item, index) => {
        const made = row(keys[index]);
        columns.forEach((column, place) => column.fill(made.cells[place], item));
        return made;
      });
      if (wanted.length === 0) {
        wanted.push(element("tr", {}, element("td", { class: "empty", colspan: String(columns.length) }, empty)));
      }
      const isSame = wanted.length === body.rows.length && wanted.every((made, index) => made === body.rows[index]);
      if (!isSame) {
        body.replaceChildren(...wanted);
      }
    },
  };
}

/** A cell with a text. */
export const text = (of) => (cell, item) => setText(cell, of(item));
