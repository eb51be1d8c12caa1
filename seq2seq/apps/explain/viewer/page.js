// Fills the page of `seq2seq attend` with its embedded data.

import { showAttention } from "./attention.js";
import { showSteps } from "./steps.js";

const { explanation, walks, beams } = JSON.parse(document.getElementById("data").textContent);
document.querySelector("h1").textContent = explanation.source;
document.querySelector(".translation").textContent = explanation.target;
document.querySelector(".whose").textContent = explanation.translated
  ? "The model's own translation."
  : "A given translation, as the model reads it.";
showAttention(document.getElementById("attention"), explanation);
const hasSteps = walks.length > 0 || (beams.steps ?? []).length > 0;
if (hasSteps) showSteps(document.getElementById("steps"), walks, beams);
else document.getElementById("steps-section").remove();
