// Talks to the server: JSON, and what it tells once per second. Whoever is not on the server's own machine needs the admin
// token, which is kept for as long as the tab is open and sent to nobody else.

const TOKEN = "sluicegate-admin-token";
const PAUSE_FIRST = 1_000;
const PAUSE_MOST = 15_000;

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

function fields() {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/** The server said no; `status` and what it says about it. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  return new Refused(response.status, problem.detail ?? `the server answered ${response.status}`);
}

/** Asks for JSON, or sends some. */
export async function ask(path, { method = "GET", body, match } = {}) {
  const headers = { ...fields() };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  if (match) {
    headers["if-match"] = match;
  }
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!response.ok) {
    throw await refusal(response);
  }
  const answer = response.status === 204 ? null : await response.json();
  return { answer, tag: response.headers.get("etag") };
}

/** Events of a stream, by their name and data. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length > 0) {
        yield data.join("\n");
      }
    }
  }
}

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Follows the server for ever, across its restarts. `told` hears every overview, `changed` how the connection is: "live",
 * "lost" with the milliseconds until the next try, or "refused" with why, after which `follow` ends.
 */
export async function follow(told, changed) {
  let pause = PAUSE_FIRST;
  for (;;) {
    try {
      const response = await fetch("/admin/v1/events", { headers: fields() });
      if (!response.ok) {
        throw await refusal(response);
      }
      for await (const data of events(response)) {
        pause = PAUSE_FIRST;
        changed("live");
        told(JSON.parse(data));
      }
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        changed("refused", error);
        return;
      }
    }
    changed("lost", pause);
    await wait(pause);
    pause = Math.min(pause * 2, PAUSE_MOST);
  }
}
