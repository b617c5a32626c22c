// A JSON reader and writer: short values on one line, and the position of each value in the text.

/** The longest line; a longer value is spread over several. */
const LINE = 88;

const flat = (value) => {
  if (Array.isArray(value)) {
    return `[${value.map(flat).join(", ")}]`;
  }
  if (value !== null && typeof value === "object") {
    const pairs = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${flat(each)}`);
    return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`;
  }
  return JSON.stringify(value);
};

/** The text of a value. */
export function write(value, indent = "") {
  const line = flat(value);
  const isWhole = indent === "" && value !== null && typeof value === "object";
  if (value === null || typeof value !== "object" || (!isWhole && indent.length + line.length <= LINE)) {
    return line;
  }
  const deeper = `${indent}  `;
  const parts = Array.isArray(value)
    ? value.map((each) => write(each, deeper))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${write(each, deeper)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  return `${open}\n${parts.map((part) => deeper + part).join(",\n")}\n${indent}${close}`;
}

/** Invalid JSON: the error and its offset. */
export class Misplaced extends Error {
  constructor(message, offset) {
    super(message);
    this.offset = offset;
  }
}

const SPACE = /[ \t\r\n]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"/y;
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

/**
 * Reads a text: its value, and the offset of everything in it by its path, such as `limits[0].refill`. Says where a text that is
 * no JSON goes wrong, and refuses a name that stands twice, of which other readers take the last.
 */
export function read(text) {
  const places = new Map();
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    at += found?.length ?? 0;
    return found;
  };
  const next = (character) => {
    take(SPACE);
    const isNext = text[at] === character;
    at += isNext ? 1 : 0;
    return isNext;
  };
  const stop = (message) => { throw new Misplaced(message, Math.min(at, text.length)); };
  const inside = (close, each) => {
    if (next(close)) {
      return;
    }
    do {
      take(SPACE);
      each();
    } while (next(","));
    if (!next(close)) {
      stop(`a comma or ${close} is missing here`);
    }
  };
  const object = (path) => {
    const made = {};
    inside("}", () => {
      const start = at;
      const name = take(STRING) ?? stop("a name in double quotes is missing here");
      const word = JSON.parse(name);
      if (Object.hasOwn(made, word)) {
        at = start;
        stop(`${word} stands twice`);
      }
      if (!next(":")) {
        stop("a colon is missing here");
      }
      const own = path === "" ? word : `${path}.${word}`;
      // With defineProperty, so that a name such as __proto__ is an ordinary one.
      Object.defineProperty(made, word, { value: value(own), enumerable: true, configurable: true, writable: true });
      places.set(own, start);
    });
    return made;
  };
  const array = (path) => {
    const made = [];
    inside("]", () => {
      const own = `${path}[${made.length}]`;
      places.set(own, at);
      made.push(value(own));
    });
    return made;
  };
  const value = (path) => {
    if (next("{")) {
      return object(path);
    }
    if (next("[")) {
      return array(path);
    }
    return JSON.parse(take(STRING) ?? take(SCALAR) ?? stop("a value is missing here, or it is not written as JSON"));
  };
  const whole = value("");
  take(SPACE);
  if (at < text.length) {
    stop("something stands behind the end");
  }
  return { value: whole, places };
}

/** The offset of the value at a path, or of its nearest existing ancestor; undefined if there is none. */
export function placeOf(places, path) {
  for (let rest = path; rest !== ""; rest = rest.replace(/(?:\.[^.[\]]*|\[\d*\]|^[^.[\]]*)$/, "")) {
    if (places.has(rest)) {
      return places.get(rest);
    }
    if (!/[.[]/.test(rest)) {
      return undefined;
    }
  }
  return undefined;
}

/** The line of an offset, counted from 1. */
export function lineOf(text, offset) {
  return text.slice(0, offset).split("\n").length;
}
