// Shows attention: two sentences with lines, one table per part, pickers of layer and head.

import { makeContrast, makeContrastForm } from "./contrast.js";
import { makeDiagram } from "./diagram.js";
import { choices, fact, make, picker, share } from "./dom.js";
import { makeHeatmap } from "./heatmap.js";
import { interventionsOf, makeComparison, makeHeadSwitches, makeSettings, makeSwitch } from "./interventions.js";
import { makeOverview, makeTile } from "./overview.js";
import { linksOf, namesOf, openingLayer, partsOf, sizeOf, statisticsOf, weightsOf } from "./reading.js";

const GHOST = 0.1; // smallest weight of cross-attention that is drawn faintly behind the chosen word's lines
const MEAN = "mean"; // values of the picker of heads other than numbers
const ALL = "all";
const NOTHING = "This model has no attention: its decoder sees only the encoder's last state.";
const NOTE =
  "Spread is the entropy of a head's attention: 0 nats means one piece, ln n means n pieces equally. " +
  "Distance is how far away the head looks on average. Diagonal is the share of attention at the same position. " +
  "All three count pieces; several heads are shown by their mean.";

const views = new WeakMap(); // what an element shows; the next explanation in the element keeps its choices

/**
 * Show an explanation (the JSON of `seq2seq attend`) in an element, in place of its content.
 *
 * With onIntervene(interventions), parts of the model can be switched off: whoever gives it shows the explanation of the
 * changed model. With onContrast({ word, other }), a target word can be compared with another word: whoever gives it
 * shows an explanation with `contrast`. onPick is called with the layer and the head when others are picked; head null: the mean or all.
 * Returns those that are shown first.
 */
export function showAttention(element, explanation, { onIntervene = null, onContrast = null, onPick = () => {} } = {}) {
  element.classList.add("viewer");
  if (partsOf(explanation).length === 0) {
    element.replaceChildren(make("p", { class: "none" }, NOTHING));
    return { layer: 0, head: null };
  }
  if (explanation.architecture !== "transformer") [onIntervene, onContrast] = [null, null]; // it has no heads
  const size = sizeOf(explanation);
  const before = views.get(element) ?? { unit: "words", layer: openingLayer(explanation), head: MEAN };
  const view = { explanation, onIntervene, onContrast, unit: before.unit, parts: partsOf(explanation) };
  views.set(element, view);
  view.interventions = interventionsOf(explanation);
  view.layer = Math.min(before.layer, size.layers - 1);
  view.head = Number(before.head) >= size.heads ? MEAN : before.head;
  view.diagram = makeDiagram((chosen) => choose(view, chosen), (chosen) => preview(view, chosen));
  view.reading = make("p", { class: "reading", role: "status", "aria-live": "polite" });
  view.hiding = make("div", { class: "switches hiding" });
  view.panels = make("div", { class: "panels" });
  view.overview = make("details", { open: element.querySelector(".overview")?.open });
  const update = (changes) => {
    Object.assign(view, changes);
    if ("unit" in changes) setUnit(view);
    refresh(view);
    onPick({ layer: view.layer, head: headOf(view) });
  };
  view.update = update;
  view.controls = make("div", { class: "controls" }, ...pickers(view, size, update));
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.name : undefined;
  element.replaceChildren(
    view.controls,
    makeComparison(explanation, onIntervene) ?? "",
    view.diagram.element,
    view.reading,
    view.hiding,
    makeContrast(explanation) ?? "",
    view.panels,
    view.overview,
    make("p", { class: "note" }, NOTE),
  );
  setUnit(view);
  const isSameSource = before.explanation?.source === explanation.source; // the target may be another
  if (isSameSource && before.chosen?.side === "source") view.chosen = before.chosen;
  refresh(view);
  if (focused) element.querySelector(`[data-name="${focused}"]`)?.focus();
  return { layer: view.layer, head: headOf(view) };
}

function pickers(view, size, update) {
  const numbers = (count) => Array.from({ length: count }, (_, i) => [String(i), String(i + 1)]);
  const heads =
    size.heads > 1 ? [[MEAN, "mean of all"], ...numbers(size.heads), [ALL, "side by side"]] : [[MEAN, "the only one"]];
  return [
    picker("Layer", numbers(size.layers), String(view.layer), (value) => update({ layer: Number(value) })),
    picker("Head", heads, view.head, (value) => update({ head: value })),
    choices("Show", ["words", "pieces"].map((unit) => [unit, unit]), view.unit, (unit) => update({ unit })),
    ...(view.onIntervene ? makeSettings(view.interventions, view.onIntervene) : []),
  ];
}

/** Redraw the sentences and choose the word in the middle of the translation. */
function setUnit(view) {
  view.names = namesOf(view.explanation, view.unit);
  view.diagram.setNames(view.names);
  view.chosen = { side: "target", index: Math.max(1, Math.ceil((view.names.target.length - 2) / 2)) };
  view.preview = null;
}

const headOf = (view) => (view.head === MEAN || view.head === ALL ? null : Number(view.head));

/** Show the picked layer, head and unit. */
function refresh(view) {
  const { explanation, layer, unit, parts } = view;
  const weights = (part) => weightsOf(explanation, part, layer, headOf(view), unit);
  view.weights = Object.fromEntries(parts.map((part) => [part.key, weights(part)]));
  view.ghosts = (view.weights.cross ?? []).flatMap((row, i) =>
    row.flatMap((weight, j) => (weight >= GHOST ? [{ from: i + 1, to: j, weight }] : [])),
  );
  view.tables = {};
  view.panels.replaceChildren(...parts.map((part) => makePanel(view, part)));
  const chosen = { layer, head: headOf(view) };
  const overview = makeOverview(explanation, unit, chosen, view.overview.open, (picked) => open(view, picked));
  view.overview.replaceWith(overview);
  view.overview = overview;
  follow(view);
}

function choose(view, chosen) {
  view.chosen = chosen;
  preview(view, null);
}

function preview(view, chosen) {
  view.preview = chosen;
  follow(view);
}

/** Show the word under the pointer, or else the chosen word. */
function follow(view) {
  const shown = view.preview ?? view.chosen;
  const links = linksOf(view.weights, shown);
  view.diagram.show(links, shown, view.ghosts);
  view.reading.replaceChildren(...tell(view, links, shown));
  const asked = `${view.unit} ${view.chosen.side} ${view.chosen.index}`;
  if (view.hiding.dataset.asked !== asked) { // a word under the pointer must not empty the form
    view.hiding.dataset.asked = asked;
    view.hiding.replaceChildren(...makeChanges(view));
  }
  const isSource = shown.side === "source";
  view.tables.encoder?.choose(isSource ? shown.index : null);
  view.tables.decoder?.choose(isSource ? null : shown.index - 1);
  view.tables.cross?.choose(isSource ? null : shown.index - 1);
}

/** Make what changes the chosen word: the switch that hides a source word, or the form that asks for a target word. */
function makeChanges({ explanation, chosen: { side, index }, unit, interventions, onIntervene, onContrast }) {
  const words = explanation.words[side];
  const at = side === "source" ? index : index - 1; // the first name of the target is that of the start mark
  const number = unit === "words" ? at : words.findIndex((one) => one.pieces.includes(at));
  if (number === words.length - 1 || !(side === "source" ? onIntervene : onContrast)) return []; // the end mark
  const { text } = words[number];
  if (side === "target") return [makeContrastForm(number, text, onContrast)];
  return [makeSwitch(`source.${number + 1}`, `“${text}” visible`, `“${text}” visible`, interventions, onIntervene)];
}

/** Describe in words what the chosen word looks at, beside the lines and for screen readers. */
function tell(view, links, chosen) {
  const { names, weights } = view;
  const lead = (text) => make("span", { class: "lead" }, text);
  const most = (part, side) => {
    const known = links.filter((link) => link.part === part && link.weight >= 0.005);
    const best = known.sort((a, b) => b.weight - a.weight).slice(0, 3);
    const told = best.flatMap((link, i) => [
      i ? ", " : " ",
      make("b", {}, names[side][link.to]),
      ` ${share(link.weight)}`,
    ]);
    return [...(best.length ? told : [" nothing"]), ". "];
  };
  const sentence = chosen.side === "source" ? names.source : names.target;
  const word = make("strong", {}, sentence[chosen.index]);
  if (chosen.side === "source") {
    const own = weights.encoder ? [lead(" looks at"), ...most("encoder", "source")] : [];
    const seen = lead(weights.encoder ? "It is looked at by" : " is looked at by");
    return [word, ...own, ...(weights.cross ? [seen, ...most("cross", "target")] : [])];
  }
  const last = make("b", {}, names.target[chosen.index - 1]);
  const back = weights.decoder ? [lead(", looked back at"), ...most("decoder", "target")] : [];
  const across = lead(weights.decoder ? "In the source it looked at" : ", looked at");
  const chance = ` (probability ${probability(view, chosen.index - 1)})`;
  return [
    lead("To write "),
    word,
    lead(`${chance} the decoder, having read `),
    last,
    ...back,
    ...(weights.cross ? [across, ...most("cross", "source")] : []),
  ];
}

/** Return how probable the model finds a word or piece of the target, given the words before. */
function probability({ explanation, unit }, index) {
  const pieces = unit === "words" ? explanation.words.target[index].pieces : [index];
  const chance = Math.exp(pieces.reduce((sum, piece) => sum + explanation.log_probs[piece], 0));
  return share(chance) || "below .01";
}

function makePanel(view, part) {
  const { explanation, layer, interventions, onIntervene } = view;
  const layers = explanation.attention[part.key];
  const panel = [make("h3", {}, part.title), make("p", {}, part.plain)];
  if (layers[layer]) {
    panel.push(onIntervene && makeHeadSwitches(part, layer, layers[layer].length, interventions, onIntervene));
    panel.push(view.head === ALL ? makeGrid(view, part) : makeTable(view, part), tellStatistics(view, part));
  } else panel.push(make("p", { class: "none" }, `This part has no layer ${layer + 1}; its last layer is ${layers.length}.`));
  return make("section", { class: "panel" }, ...panel);
}

function makeTable(view, part) {
  const [side, first] = part.key === "encoder" ? ["source", 0] : ["target", 1]; // the target has a start mark
  const table = makeHeatmap({
    title: part.title,
    rows: view.names[part.asks],
    columns: view.names[part.gives],
    weights: view.weights[part.key],
    onRow: (row) => preview(view, row === null ? null : { side, index: row + first }),
  });
  view.tables[part.key] = table;
  return table.element;
}

/** Show all heads of the layer side by side; a click chooses a head. */
function makeGrid(view, part) {
  const { explanation, layer, unit } = view;
  const tiles = explanation.attention[part.key][layer].map((_, head) =>
    makeTile(explanation, part, layer, head, unit, { label: `Head ${head + 1}`, onOpen: () => open(view, { layer, head }) }),
  );
  return make("div", { class: "tiles" }, ...tiles);
}

/** Pick a layer and a head, as with the lists, which then show them. */
function open(view, { layer, head }) {
  const lists = view.controls.querySelectorAll("select");
  const picked = sizeOf(view.explanation).heads > 1 ? String(head) : MEAN;
  [lists[0].value, lists[1].value] = [String(layer), picked];
  lists[1].focus();
  view.update({ layer, head: picked });
}

function tellStatistics(view, part) {
  const { entropy, distance, diagonal } = statisticsOf(view.explanation, part, view.layer, headOf(view));
  const item = (name, value, unit) => fact(name, [value, make("small", {}, unit)]);
  return make(
    "dl",
    { class: "statistics" },
    item("Spread", entropy.toFixed(2), " nats"),
    item("Distance", distance.toFixed(1), " pieces"),
    item("Diagonal", Math.round(diagonal * 100).toString(), " %"),
  );
}
