// Shows one attention step by step with the model's own numbers, then the search.

import { makeBeams } from "./beams.js";
import { make, picker } from "./dom.js";
import { PARTS } from "./reading.js";
import { makeStepper } from "./stepper.js";
import { STEPS, matrices } from "./mechanism.js";

const picks = new WeakMap(); // the attention and step shown in an element, kept for the next walks in the element

/** Show walks (attentions to choose from) and the beams of a search in an element; either may be empty. */
export function showSteps(element, walks, beams) {
  element.classList.add("viewer");
  const hasBeams = (beams?.steps ?? []).length > 0;
  const kept = picks.get(element) ?? { name: null, part: null, step: 0 };
  picks.set(element, kept);
  element.replaceChildren(...(walks.length ? [makeWalks(walks, kept)] : []), ...(hasBeams ? [makeBeams(beams)] : []));
}

function makeWalks(given, kept) {
  const walks = given.map((walk) => (walk.part === "cross" ? { ...walk, rows: walk.rows.map(withNext) } : walk));
  const same = walks.find((walk) => nameOf(walk) === kept.name) ?? walks.find((walk) => walk.part === kept.part);
  const first = walks.find((walk) => walk.part === PARTS[0].key) ?? walks[0];
  const view = { walk: same ?? first, row: 0, column: 0 };
  const numbered = (texts) => texts.map((text, i) => [String(i), text]);
  const open = (value) => {
    view.walk = walks[Number(value)];
    begin();
  };
  const which = picker("Attention", numbered(walks.map(nameOf)), String(walks.indexOf(view.walk)), open);
  const controls = make("div", { class: "controls" }, which);
  const show = (index) => {
    kept.step = index;
    return showStep(STEPS[index], view, follow);
  };
  const names = STEPS.map((step) => step.name);
  const stepper = makeStepper({ label: "Steps of attention", names, show, start: kept.step });
  function follow(row, column) {
    const weights = view.walk.weights[row];
    view.row = row;
    view.column = column ?? weights.indexOf(Math.max(...weights));
    const [, query, key] = controls.querySelectorAll("select"); // a list that was replaced would lose the keyboard
    [query.value, key.value] = [String(view.row), String(view.column)];
    stepper.refresh();
  }
  function begin() {
    const { walk } = view;
    Object.assign(kept, { name: nameOf(walk), part: walk.part });
    while (controls.children.length > 1) controls.lastChild.remove();
    controls.append(
      picker("Follow the query of", numbered(walk.rows), null, (value) => follow(Number(value), null)),
      picker("and the key of", numbered(walk.columns), null, (value) => follow(view.row, Number(value))),
    );
    follow(...clearest(walk));
  }
  begin();
  return make("section", { class: "walk", "aria-label": "One attention, step by step" }, controls, stepper.element);
}

/** Name a query of cross-attention: the piece that was read, and the next one, which it writes. */
const withNext = (piece, i, rows) => `${piece} → ${rows[i + 1] ?? "</s>"}`;

function nameOf(walk) {
  const title = PARTS.find((part) => part.key === walk.part).title;
  return `${title}, layer ${walk.layer + 1}, head ${walk.head + 1}`;
}

/** Return the row and column of the largest share between two pieces that have letters. */
function clearest({ part, rows, columns, weights }) {
  const best = { share: -1, at: [Math.floor(rows.length / 2), null] };
  const hasWord = (name) => /\p{L}{2}/u.test(name) && !name.startsWith("<");
  rows.forEach((row, i) =>
    columns.forEach((column, j) => {
      const isItself = part !== "cross" && i === j;
      if (!isItself && hasWord(row) && hasWord(column) && weights[i][j] > best.share) Object.assign(best, { share: weights[i][j], at: [i, j] });
    }),
  );
  return best.at;
}

function showStep(step, view, follow) {
  const { formula, plain, figures, numbers } = step.show(view.walk, view, matrices(view.walk, view, follow));
  const worked = numbers ? [make("p", { class: "worked" }, ...numbers)] : [];
  return [
    make("h3", {}, step.title),
    make("div", { class: "told" }, make("p", {}, plain), make("div", { class: "formula" }, formula)),
    ...worked,
    make("div", { class: "figures" }, ...figures),
  ];
}
