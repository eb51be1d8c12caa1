// Asks the server, for the newest of what was wanted only, and again when it said when. Draws nothing.

import { askModel, hasModel, ownSettings } from "./own_model.js";

/** Why there is no answer; seconds: when to ask again, null: asking again is no use; status: of the answer, if any. */
export class Refused extends Error {
  constructor(message, seconds, status = null) {
    super(message);
    this.seconds = seconds;
    this.status = status;
  }
}

const UNREACHABLE = 3; // seconds until a server that is gone is asked again

/** Gives the settings for the page. Throws an error if the server does not answer. */
export async function getSettings() {
  if (hasModel()) return ownSettings();
  const response = await fetch("frontend/settings");
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

/** Post values to a path, or ask the page's own model; gives the answer's values. Throws Refused. */
export async function post(path, values, signal) {
  if (hasModel()) return askModel(path, values);
  let response;
  try {
    const headers = { "Content-Type": "application/json" };
    response = await fetch(path, { method: "POST", headers, body: JSON.stringify(values), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The server does not answer", UNREACHABLE);
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const seconds = Number(response.headers.get("Retry-After")) || null;
  const told = response.status === 429 ? "The server is busy" : (answer.error ?? `The server answered ${response.status}`);
  throw new Refused(told, seconds, response.status);
}

/** The number of characters as the server counts them: an emoji is one, though JavaScript's length counts it as two. */
export const charactersOf = (text) => [...text].length;

/**
 * Makes a function that works on the newest input: an older answer that comes late is dropped, a refused question is
 * asked again after the time that the server named.
 *
 * work(input, signal) gives a promise; onDone(result, input) and onTrouble(error or null) are told what came of it.
 */
export function newest(work, onDone, onTrouble) {
  let attempt = null;
  let timer = 0;
  async function run(input) {
    const mine = (attempt = new AbortController());
    try {
      const result = await work(input, mine.signal);
      if (attempt !== mine) return;
      onTrouble(null);
      onDone(result, input);
    } catch (error) {
      if (attempt !== mine) return;
      onTrouble(error);
      if (error.seconds) timer = setTimeout(run, 1000 * error.seconds, input);
    }
  }
  return (input, pause) => {
    clearTimeout(timer);
    attempt?.abort();
    attempt = null;
    if (input !== null) timer = setTimeout(run, pause, input);
  };
}
