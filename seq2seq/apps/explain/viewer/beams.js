// Shows the search step by step: a growing tree, and a list of the current step's candidates.

import { decimal, draw, make, scroller, table } from "./dom.js";
import { makeStepper } from "./stepper.js";

const MARKS = { kept: "✓ kept", dropped: "✕ dropped", finished: "■ finished" };

/** Show the beams of a search, one more step at a time; the last step is the result. */
export function makeBeams(beams) {
  const names = [...beams.steps.map((_, i) => String(i + 1)), "Result"];
  const nodes = new Map(beams.steps.flatMap((step) => step.candidates).map((one) => [one.id, one]));
  const tree = makeTree(beams, nodes);
  const show = (index) => {
    const isEnd = index === beams.steps.length;
    tree.grow(index);
    return [tree.element, ...(isEnd ? tellResult(beams) : tellStep(beams, nodes, index))];
  };
  const stepper = makeStepper({ label: "Steps of the search", names, show });
  const plain =
    "Beam search chooses the words: each step continues every live hypothesis, " +
    `keeps the best ${beams.beam} that can still win, and drops the others. ` +
    "A score is the sum of the log-probabilities so far.";
  return make(
    "section",
    { class: "beams", "aria-label": "The search, step by step" },
    make("h3", {}, "The beams"),
    make("p", { class: "lead" }, plain),
    stepper.element,
  );
}

/** Make the tree: a column of boxes for the start and for every step. */
function makeTree(beams, nodes) {
  const lines = draw("svg", { class: "branches", "aria-hidden": "true" });
  const start = make("div", { class: "node root" }, make("span", { class: "piece" }, "<s>"));
  const boxes = new Map([[null, start]]); // by candidate id
  const columns = beams.steps.map(({ candidates }) => {
    const items = candidates.map((one) => {
      const told = make("span", { class: "fate" }, `${decimal(one.score)} ${MARKS[one.fate].slice(0, 1)}`);
      const box = make("div", { class: `node ${one.fate}` }, make("span", { class: "piece" }, one.piece), told);
      boxes.set(one.id, box);
      return box;
    });
    return make("div", { class: "column" }, ...items);
  });
  const inner = make("div", { class: "grown" }, lines, make("div", { class: "column" }, start), ...columns);
  const element = scroller("Tree of the hypotheses; the table shows the same", inner, "img");
  element.classList.add("tree");
  const winners = lineage(nodes, beams.result[0]?.id);
  let until = 0;
  const paint = () => {
    const shown = beams.steps.slice(0, until + 1).flatMap((step) => step.candidates);
    lines.replaceChildren(...shown.map((one) => branch(boxes.get(one.parent), boxes.get(one.id), one.fate)));
  };
  new ResizeObserver(paint).observe(inner);
  const grow = (index) => {
    until = index;
    const isEnd = index === columns.length;
    columns.forEach((column, i) => {
      column.hidden = i > index;
      column.classList.toggle("present", i === index);
    });
    boxes.forEach((box, id) => box.classList.toggle("winner", isEnd && winners.has(id)));
    inner.classList.toggle("ended", isEnd);
    requestAnimationFrame(() => {
      paint();
      element.scrollLeft = isEnd ? 0 : element.scrollWidth;
    });
  };
  return { element, grow };
}

/** Return the ids of a hypothesis and of all its ancestors; null is the start. */
function lineage(nodes, id) {
  const found = new Set();
  for (let at = id; at !== null && at !== undefined; at = nodes.get(at)?.parent) found.add(at);
  return found.add(null);
}

function branch(parent, child, fate) {
  const [x, y] = [parent.offsetLeft + parent.offsetWidth, parent.offsetTop + parent.offsetHeight / 2];
  const [toX, toY] = [child.offsetLeft, child.offsetTop + child.offsetHeight / 2];
  const middle = (x + toX) / 2;
  const won = child.classList.contains("winner") ? " winner" : "";
  const d = `M${x} ${y} C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`;
  return draw("path", { class: `branch ${fate}${won}`, d });
}

function tellStep(beams, nodes, index) {
  const rows = beams.steps[index].candidates.map((one) => {
    const before = nodes.get(one.parent)?.text ?? "";
    const text = one.text.startsWith(before)
      ? [before, make("b", {}, one.text.slice(before.length))]
      : [make("b", {}, one.text)];
    const ending = one.fate === "finished" || one.text.trim() === before.trim() ? [" ", make("b", {}, one.piece)] : [];
    return [one.fate, [...text, ...ending], decimal(one.log_prob), decimal(one.score), MARKS[one.fate]];
  });
  const count = (fate) => beams.steps[index].candidates.filter((one) => one.fate === fate).length;
  const told = `Step ${index + 1}: ${count("kept")} kept, ${count("dropped")} dropped, ${count("finished")} finished.`;
  return [makeTable(told, ["Hypothesis", "log p of the piece", "Score", "Fate"], rows)];
}

function tellResult(beams) {
  const rows = beams.result.map((one, i) => [
    i ? "finished" : "kept",
    [i ? one.text : make("b", {}, one.text)],
    decimal(one.normalised_score, 3),
  ]);
  const count = "the number of its pieces, </s> included";
  const power = beams.length_penalty === 1 ? count : `${count}, to the power of ${beams.length_penalty}`;
  const told = `The finished hypotheses, best first. Each score is divided by ${power}, so that long hypotheses have no disadvantage.`;
  return [makeTable(told, ["Translation", "Score / length"], rows)];
}

function makeTable(caption, headings, rows) {
  const lines = rows.map(([kind, text, ...rest]) =>
    make("tr", { class: kind }, make("td", {}, ...text), ...rest.map((one) => make("td", {}, one))),
  );
  return table("candidates", [caption], headings, lines);
}
