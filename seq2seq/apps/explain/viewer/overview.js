// Shows all layers and heads of all attention at once, as small pictures; a click opens a head.

import { make } from "./dom.js";
import { makeThumbnail } from "./heatmap.js";
import { partsOf, statisticsOf, weightsOf } from "./reading.js";

/** Make a picture of a head as a button, which is pressed if the head is the chosen one. */
export function makeTile(explanation, part, layer, head, unit, { label, isChosen = false, onOpen }) {
  const { entropy } = statisticsOf(explanation, part, layer, head);
  const name = `${label}, spread ${entropy.toFixed(2)} nats`;
  const attributes = { type: "button", class: "tile", "aria-label": name, title: name, click: onOpen };
  const picture = makeThumbnail(weightsOf(explanation, part, layer, head, unit));
  return make("button", { ...attributes, "aria-pressed": String(isChosen) }, picture, make("span", {}, String(head + 1)));
}

/** Make a section with every head of every layer; onPick({ layer, head }) is called for a head. */
export function makeOverview(explanation, unit, chosen, open, onPick) {
  const makePart = (part) => {
    const rows = explanation.attention[part.key].map((heads, layer) => {
      const tiles = heads.map((_, head) =>
        makeTile(explanation, part, layer, head, unit, {
          label: `${part.title}, layer ${layer + 1}, head ${head + 1}`,
          isChosen: layer === chosen.layer && head === chosen.head,
          onOpen: () => onPick({ layer, head }),
        }),
      );
      return make("div", { class: "row" }, make("span", { class: "lead" }, `Layer ${layer + 1}`), make("div", { class: "tiles" }, ...tiles));
    });
    return make("section", { class: "panel" }, make("h3", {}, part.title), ...rows);
  };
  const toggle = ({ target }) => {
    if (target.open && target.children.length === 1) target.append(make("div", { class: "panels" }, ...partsOf(explanation).map(makePart)));
  };
  return make("details", { class: "overview", open, toggle }, make("summary", {}, "All layers and heads"));
}
