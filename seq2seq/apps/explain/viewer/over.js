// Fills the page of `seq2seq attend --over`: a slider over the checkpoints of a run.

import { decimal, fact } from "./dom.js";
import { makeHeatmap } from "./heatmap.js";

const PAUSE = 250; // milliseconds between two checkpoints while it plays

const at = (id) => document.getElementById(id);
const { source, target, rows, columns, moments } = JSON.parse(at("data").textContent);
const slider = at("when");
let timer = null;

document.querySelector("h1").textContent = source;
document.querySelector(".translation").textContent = target;
slider.max = String(moments.length - 1);
slider.value = slider.max;
slider.addEventListener("input", () => {
  stop();
  show();
});
at("play").addEventListener("click", () => (timer === null ? play() : stop()));
show();

/** Show the checkpoint at which the slider stands. */
function show() {
  const { updates, loss, translation, log_prob: logProb, weights } = moments[Number(slider.value)];
  const number = updates.toLocaleString("en");
  at("update").textContent = number;
  slider.setAttribute("aria-valuetext", `after ${number} updates`);
  at("told").replaceChildren(
    fact("The model's own translation", [translation || "(nothing)"], { class: "own" }),
    ...(loss === null ? [] : [fact("Loss", [`${decimal(loss)} nats per token`])]),
    fact("Log-probability of the translation above", [`${decimal(logProb)} nats`]),
  );
  const table = makeHeatmap({ title: "Cross-attention", rows, columns, weights, onRow: () => {} });
  at("map").replaceChildren(table.element);
}

/** Go from checkpoint to checkpoint, from the first if the last is shown. */
function play() {
  if (slider.value === slider.max) slider.value = "0";
  at("play").textContent = "Pause";
  show();
  timer = setInterval(() => {
    slider.value = String(Number(slider.value) + 1);
    show();
    if (slider.value === slider.max) stop();
  }, PAUSE);
}

function stop() {
  clearInterval(timer);
  timer = null;
  at("play").textContent = "Play";
}
