// A page that has its own model (`seq2seq export html`) asks it, in a Web Worker, instead of a server.

const textOf = (id) => document.getElementById(id)?.textContent;
const DIFFERS =
  "This page computes something else than the model that it was made from, so its translations may be wrong: the " +
  "model's code (seq2seq/model) was changed, or this page was.";
const pending = new Map(); // by number: what becomes of a question
let worker = null;
let count = 0;

/** Whether this page has a model. */
export const hasModel = () => document.getElementById("model") !== null;

/** Give the settings that the page has instead of a server. */
export const ownSettings = () => JSON.parse(textOf("settings"));

/** Load the model, and compare it with the model that it was made from; gives a warning, empty if they agree. */
export async function checkModel() {
  const { differs } = await askModel("check", {});
  return differs ? DIFFERS : "";
}

/** Ask the model; of several questions with one path that wait, only the newest is answered. */
export function askModel(path, values) {
  worker ??= startWorker();
  return new Promise((resolve, reject) => {
    for (const [id, waiting] of pending) if (waiting.path === path && !waiting.isSent) pending.delete(id);
    pending.set(++count, { path, values, resolve, reject, isSent: false });
    sendNext();
  });
}

function startWorker() {
  const address = URL.createObjectURL(new Blob([textOf("worker")], { type: "text/javascript" }));
  const started = new Worker(address);
  started.addEventListener("message", ({ data: { id, answer, error } }) => {
    const { resolve, reject } = pending.get(id) ?? {};
    pending.delete(id);
    if (error === undefined) resolve?.(answer);
    else reject?.(new Error(error));
    sendNext();
  });
  started.addEventListener("error", () => {
    for (const { reject } of pending.values()) reject(new Error("The model stopped: reload the page"));
    pending.clear();
    started.terminate();
    worker = null;
  });
  started.postMessage({ id: 0, model: textOf("model") });
  return started;
}

function sendNext() {
  if ([...pending.values()].some(({ isSent }) => isSent)) return;
  const [first] = pending;
  if (first === undefined) return;
  const [id, question] = first;
  question.isSent = true;
  worker.postMessage({ id, path: question.path, values: question.values });
}
