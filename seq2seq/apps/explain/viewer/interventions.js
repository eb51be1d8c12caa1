// Switches parts of the model off, and compares what it does with them and without. The server computes.

import { choices, decimal, make, table, tableRow } from "./dom.js";

const NONE = { without: [], average: [], temperature: 1 };
const TEMPERATURES = [0.25, 0.5, 1, 2, 4];
const SETTINGS = [
  ["positions", "Word order"],
  ["mask", "Causal mask"],
];

/** Return what is changed in the model of an explanation. */
export function interventionsOf(explanation) {
  return { ...NONE, ...explanation.interventions };
}

/** Make a button that switches a part off, or on again; name is that of `seq2seq attend --without`. */
export function makeSwitch(name, text, label, interventions, onIntervene) {
  const { without } = interventions;
  const isOff = without.includes(name);
  const click = () =>
    onIntervene({ ...interventions, without: isOff ? without.filter((one) => one !== name) : [...without, name] });
  const attributes = { type: "button", class: "switch", "data-name": name, "aria-pressed": String(!isOff) };
  return make("button", { ...attributes, "aria-label": label, click }, text);
}

/** Make a switch for each head of a layer. */
export function makeHeadSwitches(part, layer, count, interventions, onIntervene) {
  const heads = Array.from({ length: count }, (_, head) => {
    const name = `${part.key}.${layer + 1}.head.${head + 1}`;
    return makeSwitch(name, String(head + 1), `Head ${head + 1} on`, interventions, onIntervene);
  });
  const group = { class: "switches", role: "group", "aria-label": `Heads of ${part.title}, layer ${layer + 1}` };
  return make("div", group, make("span", { class: "lead" }, "Heads on"), ...heads);
}

/** Make the switches and the temperature that hold for the whole model. */
export function makeSettings(interventions, onIntervene) {
  const switches = SETTINGS.map(([name, text]) => makeSwitch(name, text, `${text} on`, interventions, onIntervene));
  const temperatures = TEMPERATURES.map((value) => [String(value), `${value}`]);
  const change = (value) => onIntervene({ ...interventions, temperature: Number(value) });
  const group = { class: "switches", role: "group", "aria-label": "Parts of the model" };
  return [
    make("div", group, ...switches),
    choices("Softmax temperature", temperatures, String(interventions.temperature), change),
  ];
}

/** Make the table of both translations, and a button that undoes all changes; null: nothing is changed. */
export function makeComparison(explanation, onIntervene) {
  const { unchanged, target, log_probs: logProbs } = explanation;
  if (unchanged === undefined) return null;
  const interventions = interventionsOf(explanation);
  const score = logProbs.reduce((sum, one) => sum + one, 0);
  const row = (name, text, value) =>
    tableRow({}, name, make("td", {}, text), make("td", { class: "score" }, `${decimal(value)} nats`));
  const rows = [row("unchanged", unchanged.target, unchanged.log_prob), row("changed", target, score)];
  const caption = [`Without ${told(interventions, explanation)}`];
  const both = table("comparison", caption, ["model", "translation", "log-probability"], rows);
  const reset = onIntervene && make("button", { type: "button", class: "button", click: () => onIntervene(NONE) }, "Undo");
  return make("div", { class: "compared", role: "status" }, both, reset);
}

/** Describe interventions in words. */
function told({ without, average, temperature }, explanation) {
  const spell = (name) => {
    const [part, layer, , head] = name.split(".");
    if (part === "source") return `the word “${explanation.words.source[layer - 1].text}”`;
    if (part === "mask") return "the causal mask";
    if (part === "positions") return "the order of words";
    const attention = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "cross-attention" };
    return [attention[part] ?? part, layer && `layer ${layer}`, head && `head ${head}`].filter(Boolean).join(" ");
  };
  const softmax = temperature === 1 ? [] : [`the usual temperature (${temperature} instead)`];
  return [...without.map(spell), ...average.map((name) => `the choice of ${spell(name)}`), ...softmax].join(", ");
}
