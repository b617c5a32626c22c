// Questions that must be answered before anything else goes on. Escape means no.

import { element } from "./elements.js";

/** Shows a form and waits: its answer, or null if the person wants nothing of it. */
function put(title, body, yes, kind, answer) {
  return new Promise((resolve) => {
    const heading = element("h2", { id: "question" }, title);
    const cancel = element("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const form = element("form", {}, heading, ...body, element("div", { class: "buttons" }, cancel, element("button", { class: kind }, yes)));
    const dialog = element("dialog", { "aria-labelledby": "question" }, form);
    let given = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      given = answer();
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Whether the person wants that. */
export async function confirm(title, about, yes) {
  return (await put(title, [element("p", {}, about)], yes, "danger", () => true)) === true;
}

/** A token, or null. `about` says why it is asked for. */
export function askToken(about) {
  const input = element("input", { type: "password", autocomplete: "off", required: "", id: "admin-token" });
  const body = [
    element("p", { role: "alert" }, about),
    element("label", {}, "Admin token", input),
    element("p", { class: "quiet" }, "It is kept until this tab is closed, and sent to this server only."),
  ];
  const answered = put("Who are you?", body, "Go on", "main", () => input.value);
  input.focus();
  return answered;
}
