// Modal dialogs. Escape cancels.

import { element } from "./elements.js";

/** Shows a form and waits for its answer; null if it is cancelled. */
function put(title, body, yes, kind, answer) {
  return new Promise((resolve) => {
    const heading = element("h2", { id: "question" }, title);
    const cancel = element("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const form = element("form", {}, heading, ...body, element("div", { class: "buttons" }, cancel, element("button", { class: kind }, yes)));
    const dialog = element("dialog", { "aria-labelledby": "question" }, form);
    let result = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      result = answer();
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** True if the user confirms. */
export async function confirm(title, about, yes) {
  return (await put(title, [element("p", {}, about)], yes, "danger", () => true)) === true;
}

/** Prompts for a token; null if cancelled. `about` is the reason. */
export function askToken(about) {
  const input = element("input", { type: "password", autocomplete: "off", required: "", id: "admin-token" });
  const body = [
    element("p", { role: "alert" }, about),
    element("label", {}, "Admin token", input),
    element("p", { class: "quiet" }, "It is kept until this tab is closed and sent only to this server."),
  ];
  const answered = put("Admin token required", body, "Continue", "main", () => input.value);
  input.focus();
  return answered;
}
