// Shows, below a translation, what the model attends to while it makes it, and how. Fetches it when needed.

import { charactersOf, newest, post } from "./asking.js";
import { picker } from "../viewer/dom.js";
import { showAttention } from "../viewer/attention.js";
import { showSteps } from "../viewer/steps.js";

const PAUSE = 300; // milliseconds without a change before an explanation is asked for

const at = (id) => document.getElementById(id);

/** Makes explain(sentences, target): show the first, or another that is picked; target null: the model's own. */
export function makeExplainer(settings, getKey) {
  const view = { sentences: [], index: 0, target: null, layer: 0, head: 0, isOpen: false, interventions: {}, before: null, contrast: {} };
  const limit = settings.explainLimit;
  const question = (wanted) => ({ ...wanted, api_key: getKey() });
  const show = newest(
    (wanted, signal) => post("explain", question(wanted), signal),
    (found, wanted) => draw(view, found, wanted),
    (error) => {
      if (error !== null && !error.seconds) {
        view.interventions = view.before ?? view.interventions; // undo what was refused
        view.contrast = {};
      }
      tell(error);
    },
  );
  function ask(pause) {
    const sentence = view.sentences[view.index];
    const isTooLong = sentence !== undefined && charactersOf(sentence) > limit;
    at("look").hidden = sentence === undefined;
    at("hint").hidden = sentence !== undefined;
    at("how").hidden = sentence === undefined || isTooLong;
    at("attention").hidden = isTooLong;
    tell(isTooLong ? new Error(`Only sentences of at most ${limit} characters are explained`) : null);
    if (sentence === undefined || isTooLong) return show(null);
    at("attention").setAttribute("aria-busy", "true");
    const { target, layer, head, interventions, contrast } = view;
    return show({ source: sentence, target, layer, head, ...interventions, ...contrast }, pause);
  }
  view.ask = ask;
  at("hint").hidden = false;
  at("open-steps").addEventListener("click", () => toggle(view));
  return (sentences, target) => {
    const shown = view.sentences[view.index];
    const isSame = sentences[view.index] === view.sentences[view.index] && target === view.target;
    const count = view.sentences.length;
    if (!isSame) view.contrast = {}; // of another translation
    view.sentences = sentences;
    view.target = target;
    if (view.index >= sentences.length || sentences.length > count) view.index = Math.max(0, sentences.length - 1);
    if (sentences[view.index] !== shown) showHiddenWords(view);
    listSentences(view);
    if (!isSame || sentences.length !== count) ask(PAUSE);
  };
}

/** Let all words be seen again, and compare none: those that are hidden or compared are another sentence's. */
function showHiddenWords(view) {
  view.contrast = {};
  const { without = [] } = view.interventions;
  view.before = null; // a change for another sentence is not undone
  view.interventions = { ...view.interventions, without: without.filter((name) => !name.startsWith("source.")) };
}

function tell(error) {
  at("look-state").textContent = error === null ? "" : `${error.message}.`;
  if (error !== null) at("attention").removeAttribute("aria-busy");
}

function listSentences(view) {
  const names = view.sentences.map((sentence, i) => [String(i), sentence.length > 60 ? `${sentence.slice(0, 59)}…` : sentence]);
  at("which").hidden = names.length < 2;
  const open = (value) => {
    view.index = Number(value);
    showHiddenWords(view);
    view.ask(0);
  };
  at("which").replaceChildren(picker(`Part of ${names.length}`, names, String(view.index), open));
}

function draw(view, found, wanted) {
  Object.assign(view, { found, wanted, before: null });
  at("attention").removeAttribute("aria-busy");
  const onIntervene = (interventions) => {
    view.before = view.interventions;
    view.interventions = interventions;
    view.contrast = {}; // the translation may be another one
    view.ask(0);
  };
  const onContrast = (contrast) => {
    view.contrast = contrast;
    view.ask(0);
  };
  const onPick = ({ layer, head }) => {
    Object.assign(view, { layer, head: head ?? 0 });
    showStepsOf(view);
  };
  const element = at("attention");
  element.style.minHeight = `${element.offsetHeight}px`; // while it is empty, a shorter page would scroll up
  const shown = showAttention(element, found, { onIntervene, onContrast, onPick });
  element.style.minHeight = "";
  onPick(shown);
}

/** Show the steps of the picked layer and head if they are open; ask the server if it was asked for another's. */
function showStepsOf(view) {
  if (!view.isOpen) return;
  const { found, wanted, layer, head } = view;
  if (wanted.layer === layer && wanted.head === head) showSteps(at("steps"), found.walks, found.beams);
  else view.ask(0);
}

function toggle(view) {
  view.isOpen = !view.isOpen;
  at("open-steps").setAttribute("aria-expanded", String(view.isOpen));
  at("open-steps").textContent = view.isOpen ? "Hide the steps" : "Show the steps";
  at("steps-part").hidden = !view.isOpen;
  if (view.found) showStepsOf(view);
}
