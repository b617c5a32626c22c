// SVG charts: allowed and denied requests over time, and histograms.

import { element, setText } from "./elements.js";
import { clock, short } from "./numbers.js";

const HEIGHT = 200;
/** The width of a chart before it is part of the page. */
const WIDTH = 640;
const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;

function shape(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A chart that is redrawn whenever its container changes width, so that its text is never stretched. */
function picture(attributes, draw) {
  const root = shape("svg", { class: "chart", height: HEIGHT, role: "img", ...attributes });
  let width = WIDTH;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now > 0 && now !== width) {
      width = now;
      draw();
    }
  }).observe(root);
  return { root, width: () => width };
}

/** The smallest round number that is at least `value`. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/**
 * Allowed and denied on top of each other, and what rules that only watch would have denied as a line. `show` takes points
 * with `at` in milliseconds and rates; the pointer and the arrow keys read single points off.
 */
export function timeline(label) {
  const { root, width } = picture({ tabindex: "0", "aria-label": label }, () => draw());
  const reading = { at: element("b"), allowed: element("b"), denied: element("b"), shadow: element("b") };
  const key = (kind, name) => element("span", {}, element("span", { class: `key ${kind}` }), `${name} `, reading[kind], "/s");
  const legend = element("p", { class: "legend" }, element("span", {}, reading.at), key("allowed", "allowed"), key("denied", "denied"), key("shadow", "denied, if shadow rules decided"));
  const box = element("div", {}, root, legend);
  let points = [];
  let chosen = null;

  const across = (index) => LEFT + ((width() - LEFT) * index) / Math.max(points.length - 1, 1);
  const read = () => {
    const point = points[chosen ?? points.length - 1];
    if (!point) {
      return;
    }
    setText(reading.at, chosen === null ? "now" : clock(point.at));
    for (const kind of ["allowed", "denied", "shadow"]) {
      setText(reading[kind], short(point[kind]));
    }
  };
  const draw = () => {
    const most = roundUp(Math.max(1, ...points.map((point) => Math.max(point.allowed + point.denied, point.shadow))));
    const up = (value) => TOP + (HEIGHT - BOTTOM - TOP) * (1 - value / most);
    const area = (kind, low, high) => {
      const forth = points.map((point, index) => `${across(index).toFixed(1)},${up(high(point)).toFixed(1)}`);
      const back = points.map((point, index) => `${across(index).toFixed(1)},${up(low(point)).toFixed(1)}`).reverse();
      return shape("polygon", { class: kind, points: [...forth, ...back].join(" ") });
    };
    const line = points.map((point, index) => `${across(index).toFixed(1)},${up(point.shadow).toFixed(1)}`).join(" ");
    const grid = [0, 0.5, 1].flatMap((part) => [
      shape("line", { class: "grid", x1: LEFT, x2: width(), y1: up(part * most), y2: up(part * most) }),
      shape("text", { x: LEFT - 6, y: up(part * most) + 4, "text-anchor": "end" }, short(part * most)),
    ]);
    const times = points.length < 2 ? [] : [[0, "start"], [points.length - 1, "end"]].map(([index, anchor]) =>
      shape("text", { x: across(index), y: HEIGHT - 5, "text-anchor": anchor }, clock(points[index].at)));
    const cursor = chosen === null ? [] : [shape("line", { class: "cursor", x1: across(chosen), x2: across(chosen), y1: TOP, y2: HEIGHT - BOTTOM })];
    root.replaceChildren(
      ...grid,
      area("allowed", () => 0, (point) => point.allowed),
      area("denied", (point) => point.allowed, (point) => point.allowed + point.denied),
      shape("polyline", { class: "shadow", points: line }),
      ...times,
      ...cursor,
    );
    read();
  };
  const choose = (index) => {
    chosen = index === null || points.length === 0 ? null : Math.min(Math.max(index, 0), points.length - 1);
    draw();
  };
  root.addEventListener("pointermove", (event) => {
    const place = root.getBoundingClientRect();
    const x = event.clientX - place.left;
    choose(Math.round(((x - LEFT) / (width() - LEFT)) * (points.length - 1)));
  });
  root.addEventListener("pointerleave", () => choose(null));
  root.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      choose((chosen ?? points.length - 1) + step);
    } else if (event.key === "Escape") {
      choose(null);
    }
  });
  return {
    box,
    show(wanted) {
      points = wanted;
      chosen = chosen === null || points.length === 0 ? null : Math.min(chosen, points.length - 1);
      draw();
    },
  };
}

/** The width in pixels below which the label of a bar has no room for its unit. */
const NAME = 46;

/** A bar per count, with its label below. */
export function bars(label) {
  let [names, counts] = [[], []];
  const { root, width } = picture({ "aria-label": label }, () => draw());
  const draw = () => {
    const all = counts.reduce((sum, count) => sum + count, 0);
    const most = Math.max(...counts, 1);
    const wide = width() / Math.max(counts.length, 1);
    root.setAttribute("aria-label", `${label}: ${names.map((name, index) => `${name} ${counts[index]}`).join(", ")}`);
    root.replaceChildren(...counts.flatMap((count, index) => {
      const high = ((HEIGHT - BOTTOM - 24) * count) / most;
      const middle = wide * (index + 0.5);
      const share = all === 0 || count === 0 ? "" : `${Math.round((100 * count) / all)} %`;
      return [
        shape("rect", { class: "bar", x: wide * index + 3, y: HEIGHT - BOTTOM - high, width: wide - 6, height: high }),
        shape("text", { x: middle, y: HEIGHT - BOTTOM - high - 5, "text-anchor": "middle" }, share),
        shape("text", { x: middle, y: HEIGHT - 5, "text-anchor": "middle" }, wide < NAME ? names[index].replace("%", "") : names[index]),
      ];
    }));
  };
  return {
    box: root,
    show(...wanted) {
      [names, counts] = wanted;
      draw();
    },
  };
}
