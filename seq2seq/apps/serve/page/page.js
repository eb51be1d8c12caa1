// Translates what is typed. Text of users and of the server goes in as text, never as HTML.

import { charactersOf, getSettings, newest, post } from "./asking.js";
import { checkModel, hasModel } from "./own_model.js";
import { makeExplainer } from "./explaining.js";

const EXAMPLES = ["The ball is blue.", "The black cat drank the milk."]; // for English models
const TOLD = 1500; // milliseconds for which the button says that it copied

const at = (id) => document.getElementById(id);
const view = { settings: null, ranked: [], chosen: 0, sentences: [], explain: null };
const source = at("source");

function key() {
  try {
    return sessionStorage.getItem("key") ?? view.key;
  } catch {
    return view.key; // storage is refused: the key lasts as long as the page
  }
}

function keep(typedKey) {
  view.key = typedKey;
  try {
    sessionStorage.setItem("key", typedKey);
  } catch {
    // as above
  }
}

const translate = newest(
  ({ text }, signal) => {
    const { language, alternatives } = view.settings;
    const codes = { source: language.source.code, target: language.target.code };
    const wanted = { q: text, ...codes, alternatives, sentences: true };
    return post("translate", { ...wanted, api_key: key() }, signal);
  },
  (answer, { text }) => {
    if (location.hash) history.replaceState(null, "", `#${encodeURIComponent(text)}`); // reloading shows this text
    const sentences = answer.sentences.filter((sentence) => /\p{L}|\p{N}/u.test(sentence));
    const others = sentences.length > 1 ? [] : (answer.alternatives ?? []); // of a long text nobody compares them
    Object.assign(view, { ranked: [answer.translatedText, ...others], chosen: 0, sentences });
    at("state").textContent = "";
    show();
  },
  (error) => {
    const again = error?.seconds ? ` Trying again in ${error.seconds} s.` : "";
    at("trouble").textContent = error === null ? "" : `${error.message.replace(/\.$/, "")}.${again}`;
    if (error !== null) at("state").textContent = "";
    if (error?.status === 403 && view.settings.keyRequired) at("key-form").hidden = false; // the key is wrong
  },
);

/** Show the chosen translation, the others to choose from, and what the model attends to for it. */
function show() {
  const { ranked, chosen } = view;
  at("target").textContent = ranked[chosen] ?? "";
  at("target").removeAttribute("data-old");
  at("copy").disabled = !ranked[chosen];
  at("ranked").hidden = ranked.length < 2;
  if (!at("ranked").hidden) list(ranked, chosen);
  explain();
}

function list(ranked, chosen) {
  const [legend] = at("ranked").children;
  const items = ranked.map((text, i) => {
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "ranked", checked: i === chosen });
    input.addEventListener("change", () => choose(i));
    const words = Object.assign(document.createElement("span"), { textContent: text, lang: at("target").lang });
    const label = document.createElement("label");
    label.append(input, words);
    return label;
  });
  at("ranked").replaceChildren(legend, ...items);
}

function choose(index) {
  view.chosen = index;
  at("target").textContent = view.ranked[index];
  explain();
}

function explain() {
  view.explain?.(view.sentences, view.chosen ? view.ranked[view.chosen] : null);
}

function typed() {
  const text = source.value;
  const { charLimit, frontendTimeout } = view.settings;
  const count = charactersOf(text);
  const excess = count > charLimit;
  at("count").textContent = text && `${count.toLocaleString("en")} / ${charLimit.toLocaleString("en")}`;
  at("count").toggleAttribute("data-excess", excess);
  source.setAttribute("aria-invalid", String(excess));
  at("examples").hidden = text !== "" || view.settings.language.source.code !== "en";
  at("trouble").textContent = excess ? `At most ${charLimit.toLocaleString("en")} characters are translated at a time.` : "";
  if (!text.trim() || excess) {
    translate(null);
    Object.assign(view, { ranked: [], chosen: 0, sentences: [] });
    at("state").textContent = "";
    show();
    return;
  }
  at("state").textContent = "Translating…";
  at("target").toggleAttribute("data-old", true);
  translate({ text }, frontendTimeout);
}

async function copy() {
  const text = view.ranked[view.chosen];
  try {
    await navigator.clipboard.writeText(text);
    at("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(at("target")); // no clipboard without https: select the text instead
    at("copy").textContent = "Selected";
  }
  setTimeout(() => (at("copy").textContent = "Copy"), TOLD);
}

function prepare(settings) {
  view.settings = settings;
  const { source: from, target: to } = settings.language;
  document.title = `${from.name} to ${to.name}`;
  document.querySelector("h1").textContent = `${from.name} to ${to.name}`;
  at("source-name").textContent = from.name;
  at("target-name").textContent = to.name;
  source.lang = from.code;
  at("target").lang = to.code;
  at("key-form").hidden = !settings.keyRequired || key() !== undefined;
  at("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keep(at("key").value);
    at("key-form").hidden = true;
    typed();
  });
  for (const text of EXAMPLES) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "example", textContent: text });
    button.addEventListener("click", () => {
      source.value = text;
      source.focus();
      typed();
    });
    at("examples").append(button);
  }
}

async function begin() {
  try {
    prepare(await getSettings());
  } catch {
    at("trouble").textContent = "The server does not answer. Trying again in 3 s.";
    setTimeout(begin, 3000);
    return;
  }
  at("trouble").textContent = "";
  source.addEventListener("input", typed);
  at("copy").addEventListener("click", copy);
  if (view.settings.explainLimit > 0) view.explain = makeExplainer(view.settings, key);
  addEventListener("hashchange", readAddress);
  readAddress();
  if (hasModel()) at("warning").textContent = await checkModel().catch(() => ""); // translating tells why it failed
}

/** Take the text from the address, as in #The%20ball%20is%20blue. */
function readAddress() {
  try {
    source.value = decodeURIComponent(location.hash.slice(1)) || source.value;
  } catch {
    // not escaped as an address is: no text
  }
  typed();
}

begin();
