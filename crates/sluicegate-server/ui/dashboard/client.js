// Talks to the server: JSON, and what it tells once per second. Whoever is not on the server's own machine needs the admin
// token, which is kept for as long as the tab is open and sent to nobody else.

import { askToken } from "./dialogs.js";

const TOKEN = "sluicegate-admin-token";
const PAUSE_FIRST = 1_000;
const PAUSE_MOST = 15_000;

const ownToken = () => sessionStorage.getItem(TOKEN);

export const hasToken = () => ownToken() !== null;

/** Tells whoever shows whether there is a token. */
const tokenChanged = () => dispatchEvent(new Event("tokenchange"));

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
  tokenChanged();
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
  tokenChanged();
}

/** A header field holds bytes, so what is no ASCII is sent as those of its UTF-8. */
function fields(token) {
  return token === null ? {} : { authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(token))}` };
}

/** The server said no: `status`, what it says about it, and the field that it is about, if it names one. */
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

/** Asks for JSON, or sends some. */
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
 * Changes something, which needs a token: the person is asked for one until the server knows it, and only then is it kept. With
 * `isAnother`, the one that is kept does not count. Null if the person would rather not.
 */
export async function change(path, options, isAnother = false) {
  let [token, about] = [isAnother ? null : ownToken(), "To change something, the server wants to know who you are."];
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
        // Whatever else there is to say, with these the token was the least of it.
        if ([400, 404, 409, 412].includes(error.status)) {
          setToken(token);
        }
        throw error;
      }
      forgetToken();
      [token, about] = [null, "The server does not know that token. Is it the one that the server was started with?"];
    }
  }
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
      const response = await fetch("/admin/v1/events", { headers: fields(ownToken()) });
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
        forgetToken();
        changed("refused", error);
        return;
      }
    }
    changed("lost", pause);
    await wait(pause);
    pause = Math.min(pause * 2, PAUSE_MOST);
  }
}
