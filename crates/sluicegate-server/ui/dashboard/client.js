// The connection to the server: JSON requests, and one event per second. Remote users need the admin token, which is kept
// until the tab is closed and sent only to this server.

import { askToken } from "./dialogs.js";

const TOKEN = "sluicegate-admin-token";
const PAUSE_FIRST = 1_000;
const PAUSE_MOST = 15_000;

const ownToken = () => sessionStorage.getItem(TOKEN);

export const hasToken = () => ownToken() !== null;

/** Announces that the token was set or removed. */
const tokenChanged = () => dispatchEvent(new Event("tokenchange"));

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
  tokenChanged();
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
  tokenChanged();
}

/** A header field contains bytes, so other characters than ASCII are sent as their UTF-8 bytes. */
function fields(token) {
  return token === null ? {} : { authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(token))}` };
}

/** An error response: `status`, the detail, and the field that it names, if any. */
export class Refused extends Error {
  constructor(status, { detail, field }) {
    super(detail ?? `the server answered ${status}`);
    this.status = status;
    this.field = field;
  }
}

async function refusal(response) {
  return new Refused(response.status, await response.json().catch(() => ({})));
}

/** Sends a request with optional JSON, and returns the JSON of the response. */
export async function ask(path, { method = "GET", body, match, token = ownToken() } = {}) {
  const headers = fields(token);
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

/**
 * Sends a change, which needs a token. It prompts until the server accepts a token, and only then keeps it. With `isAnother`,
 * it ignores the kept token. Null if the user cancels.
 */
export async function change(path, options, isAnother = false) {
  let [token, about] = [isAnother ? null : ownToken(), "Changes need the admin token."];
  for (;;) {
    token ??= await askToken(about);
    if (token === null) {
      return null;
    }
    try {
      const answered = await ask(path, { ...options, token });
      setToken(token);
      return answered;
    } catch (error) {
      if (error.status !== 401) {
        // With these errors the server has accepted the token.
        if ([400, 404, 409, 412].includes(error.status)) {
          setToken(token);
        }
        throw error;
      }
      forgetToken();
      [token, about] = [null, "The server rejects this token. Use the token that the server was started with."];
    }
  }
}

/** The data of a stream's events. */
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
 * Follows the server for ever, across its restarts. `onOverview` receives every overview, `onConnection` the state of the
 * connection: "live", "lost" with the milliseconds until the next attempt, or "refused" with the error, which ends `follow`.
 */
export async function follow(onOverview, onConnection) {
  let pause = PAUSE_FIRST;
  for (;;) {
    try {
      const response = await fetch("/admin/v1/events", { headers: fields(ownToken()) });
      if (!response.ok) {
        throw await refusal(response);
      }
      for await (const data of events(response)) {
        pause = PAUSE_FIRST;
        onConnection("live");
        onOverview(JSON.parse(data));
      }
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        forgetToken();
        onConnection("refused", error);
        return;
      }
    }
    onConnection("lost", pause);
    await wait(pause);
    pause = Math.min(pause * 2, PAUSE_MOST);
  }
}
