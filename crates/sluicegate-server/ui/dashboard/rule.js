// One rule: its mode and limits, its decisions now and within the last hour, and the quota that remains after them.

import { bars } from "./charts.js";
import { definition } from "./edit.js";
import { element, setText, tile } from "./elements.js";
import { percent, short } from "./numbers.js";
import { outcomes, ratioNames, rates, withRate } from "./overview.js";

export function rulePage(name) {
  const find = (look) => look.rules.find((rule) => rule.name === name);
  const tiles = Object.fromEntries(["decisions /s", "allowed", "denied", "would have denied", "denied share", "median remaining"].map((each) => [each, tile(each)]));
  const about = element("p", { class: "quiet" });
  const shadow = element("div", { class: "notice watch", hidden: "" });
  const absent = element("div", { class: "notice", hidden: "" },
    element("p", {}, "This rule is not among the busiest at the moment, or was deleted. Its last hour is below; numbers appear with its next decision."));
  const chart = outcomes("Decisions per second", `Decisions of ${name} per second`, name);
  const remaining = bars("Remaining quota after its decisions");
  const definitionBox = definition(name);
  const box = element("div", {},
    element("h2", {}, name),
    about,
    shadow,
    absent,
    definitionBox.box,
    element("dl", { class: "tiles" }, ...Object.values(tiles).map((each) => each.box)),
    chart.box,
    element("section", {}, element("h2", {}, "Remaining quota after its decisions"), remaining.box),
  );
  const update = (looks) => {
    const now = looks.at(-1);
    chart.set(rates(looks, find));
    definitionBox.set(now.rulesFrom);
    const line = find(now);
    absent.hidden = line !== undefined;
    if (!line) {
      return;
    }
    const rule = withRate(line, now, looks.at(-2) ?? now);
    const all = rule.allowed + rule.denied + rule.shadowDenied;
    setText(about, [rule.mode ?? "limits that requests bring", rule.algorithms.join(", "), rule.onStoreFailure && `${rule.onStoreFailure} without the store`].filter(Boolean).join(" · "));
    tiles["decisions /s"].set(short(rule.rate));
    tiles.allowed.set(short(rule.allowed));
    tiles.denied.set(short(rule.denied));
    tiles["would have denied"].set(short(rule.shadowDenied));
    tiles["denied share"].set(percent(rule.denied + rule.shadowDenied, all));
    tiles["median remaining"].set(rule.left);
    shadow.hidden = rule.mode !== "shadow";
    setText(shadow, `This rule is in shadow mode. It would have denied ${percent(rule.shadowDenied, all)} of ${short(all)} decisions. To enforce it, set its mode to enforce.`);
    remaining.show(ratioNames(now.remaining.boundsMillionths), rule.remaining.slice(0, now.remaining.boundsMillionths.length));
  };
  return { title: name, box, update };
}
