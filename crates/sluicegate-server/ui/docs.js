// Shows /openapi.json as a page and lets the reader try its endpoints. Text from the document and from responses
// is only set as text, never parsed as markup.
"use strict";

/** An element with attributes and children; strings become text. */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Text in which `this` is code. */
function prose(tag, text) {
  const parts = text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
  return element(tag, {}, ...parts);
}

function table(titles, rows) {
  const head = element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)));
  const body = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell))));
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll" }, made);
}

/** Resolves the reference of a part of the document, if it is one. */
function resolver(api) {
  return (part) => {
    if (!part.$ref) {
      return part;
    }
    return part.$ref.slice(2).split("/").reduce((found, step) => found[step], api);
  };
}

function fields(schema) {
  const required = schema.required ?? [];
  return Object.entries(schema.properties).map(([name, property]) => {
    const types = [property.type].flat().join(" or ");
    const presence = required.includes(name) ? "" : ", optional";
    return [element("code", {}, name), types + presence, prose("span", property.description ?? "")];
  });
}

function request(operation, resolve) {
  const schema = resolve(operation.requestBody.content["application/json"].schema);
  const { checks } = schema.properties;
  if (!checks) {
    return [element("h3", {}, "Body"), table(["Field", "Type", "Meaning"], fields(schema))];
  }
  return [prose("p", `The body is {"checks": […]} with at most ${checks.maxItems} checks as in \`/v1/check\`.`)];
}

function parameters(operation, resolve) {
  const rows = operation.parameters.map(resolve).map(({ name, in: place, required, description }) =>
    [element("code", {}, name), required ? place : `${place}, optional`, prose("span", description)]);
  return [element("h3", {}, "Parameters"), table(["Name", "In", "Meaning"], rows)];
}

function responses(operation, resolve) {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const { description, headers } = resolve(response);
    const meaning = prose("span", description);
    if (headers) {
      const names = Object.keys(headers).map((name) => `\`${name}\``).join(", ");
      meaning.append(element("br", {}), ...prose("span", `with ${names}`).childNodes);
    }
    return [element("code", {}, status), meaning];
  });
  return [element("h3", {}, "Answers"), table(["Status", "Meaning"], rows)];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Sends the request of the form and shows the response. */
async function send(path, body, token, output) {
  const headers = { "content-type": "application/json" };
  if (token) {
    headers.authorization = `Bearer ${token}`;
  }
  try {
    const answer = await fetch(path, { method: "POST", headers, body });
    const verdict = `${answer.status} ${answer.statusText}`.trim();
    const status = element("p", { class: answer.ok ? "status good" : "status bad" }, verdict);
    const shown = ["content-type", "retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit",
      "x-ratelimit-remaining", "x-ratelimit-reset"];
    const lines = shown.filter((name) => answer.headers.has(name)).map((name) => `${name}: ${answer.headers.get(name)}`);
    output.replaceChildren(status, element("pre", {}, `${lines.join("\n")}\n\n${pretty(await answer.text())}`));
  } catch (error) {
    output.replaceChildren(element("p", { class: "status bad" }, `No answer: ${error.message}`));
  }
}

function tryIt(path, operation) {
  const examples = Object.entries(operation.requestBody.content["application/json"].examples);
  const shown = (example) => JSON.stringify(example.value, null, 2);
  const options = examples.map(([name, example]) => element("option", { value: name }, example.summary));
  const choice = element("select", {}, ...options);
  const body = element("textarea", { spellcheck: "false" });
  body.value = shown(examples[0][1]);
  choice.addEventListener("change", () => {
    body.value = shown(examples[choice.selectedIndex][1]);
  });
  const token = element("input", { type: "password", autocomplete: "off", placeholder: "SLUICEGATE_ADMIN_TOKEN" });
  const button = element("button", { type: "button" }, "Send");
  const output = element("div", { "aria-live": "polite" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    await send(path, body.value, token.value, output);
    button.disabled = false;
  });
  const inputs = [element("label", {}, "Example", choice), element("label", {}, "Body", body)];
  if (operation.security) {
    inputs.push(element("label", {}, "Admin token", token));
  }
  return [element("h3", {}, "Try it"), element("div", { class: "try" }, ...inputs, button, output)];
}

function section(path, method, operation, resolve) {
  const badge = element("span", { class: "method" }, method.toUpperCase());
  const parts = [
    element("h2", {}, badge, element("code", {}, path)),
    element("p", { class: "summary" }, operation.summary),
  ];
  if (operation.description) {
    parts.push(prose("p", operation.description));
  }
  if (operation.security) {
    const always = operation.security.every((way) => Object.keys(way).length > 0);
    parts.push(prose("p", `${always ? "Needs" : "May need"} the admin token as \`Authorization: Bearer …\`.`));
  }
  if (operation.parameters) {
    parts.push(...parameters(operation, resolve));
  }
  if (operation.requestBody) {
    parts.push(...request(operation, resolve));
  }
  parts.push(...responses(operation, resolve));
  if (operation.requestBody) {
    parts.push(...tryIt(path, operation));
  }
  return element("section", { id: operation.operationId }, ...parts);
}

async function show() {
  const about = document.getElementById("about");
  try {
    const api = await (await fetch("/openapi.json")).json();
    const resolve = resolver(api);
    const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method, operation })));
    const links = operations.map(({ path, operation }) =>
      element("li", {}, element("a", { href: `#${operation.operationId}` }, path), element("span", {}, operation.summary)));
    document.getElementById("version").textContent = api.info.version;
    about.textContent = api.info.description;
    document.getElementById("contents").replaceChildren(element("ul", {}, ...links));
    document.getElementById("operations").replaceChildren(
      ...operations.map(({ path, method, operation }) => section(path, method, operation, resolve)));
  } catch (error) {
    about.textContent = `The description could not be read: ${error.message}`;
  }
}

show();
