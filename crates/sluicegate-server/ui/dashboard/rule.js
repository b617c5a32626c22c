// One rule: its mode and limits, what came of it now and within the last hour, and what is left after its decisions.

import { bars } from "./charts.js";
import { definition } from "./edit.js";
import { element, setText, tile } from "./elements.js";
import { percent, short } from "./numbers.js";
import { outcomes, ratioNames, rates, withRate } from "./overview.js";

export function rulePage(name) {
  const find = (look) => look.rules.find((rule) => rule.name === name);
  const tiles = Object.fromEntries(["decisions /s", "allowed", "denied", "would have denied", "denied share", "typically left"].map((each) => [each, tile(each)]));
  const about = element("p", { class: "quiet" });
  const shadow = element("div", { class: "notice watch", hidden: "" });
  const absent = element("div", { class: "notice", hidden: "" },
    element("p", {}, "This rule is not among the busiest at the moment, or is no more. Its last hour is below; numbers appear as soon as it decides."));
  const chart = outcomes("Its decisions per second", `Decisions of ${name} per second`, name);
  const remaining = bars("What was left after its decisions");
  const says = definition(name);
  const box = element("div", {},
    element("h2", {}, name),
    about,
    shadow,
    absent,
    says.box,
    element("dl", { class: "tiles" }, ...Object.values(tiles).map((each) => each.box)),
    chart.box,
    element("section", {}, element("h2", {}, "What was left after its decisions"), remaining.box),
  );
  const update = (looks) => {
    const now = looks.at(-1);
    chart.set(rates(looks, find));
    says.set(now.rulesFrom);
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
    tiles["typically left"].set(rule.left);
    shadow.hidden = rule.mode !== "shadow";
    setText(shadow, `This rule only watches. Had it decided, it would have denied ${percent(rule.shadowDenied, all)} of ${short(all)} decisions. Set its mode to enforce when that is what you want.`);
    remaining.show(ratioNames(now.remaining.boundsMillionths), rule.remaining.slice(0, now.remaining.boundsMillionths.length));
  };
  return { title: name, box, update };
}
