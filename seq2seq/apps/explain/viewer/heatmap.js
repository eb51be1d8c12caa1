// Draws weights as a table of tinted cells, and as a small picture.

import { draw, make, scroller, share, table, tableRow } from "./dom.js";

const MOST_NUMBERED = 14; // columns; beyond them cells are too small for numbers
const MOST_SMALL = 17; // columns; beyond them cells are tiny

/** Make a table: rows are queries, columns keys. It calls onRow(index) with the row under the pointer, or null. */
export function makeHeatmap({ title, rows, columns, weights, onRow }) {
  const isNumbered = columns.length <= MOST_NUMBERED;
  const lines = weights.map((row, i) => {
    const cells = row.map((weight, j) => {
      const title = `${rows[i]} → ${columns[j]}: ${weight.toFixed(2)}`; // the only number of a cell without text
      return make("td", { "--share": weight, title }, isNumbered ? share(weight) : null);
    });
    return tableRow({ pointerenter: () => onRow(i) }, rows[i], ...cells);
  });
  const kind = isNumbered ? "heatmap" : `heatmap small${columns.length > MOST_SMALL ? " tiny" : ""}`;
  const caption = make("span", { class: "unseen" }, `${title}: rows look at columns, and each row's shares sum to 1`);
  const map = table(kind, [caption], ["", ...columns.map((name) => make("span", {}, name))], lines);
  map.tBodies[0].addEventListener("pointerleave", () => onRow(null));
  const element = scroller(`${title}, table of weights`, map);
  return { element, choose: (chosen) => lines.forEach((line, i) => line.classList.toggle("chosen", i === chosen)) };
}

/** Make a picture of a head, with weights in ten shades. */
export function makeThumbnail(weights) {
  const shades = Array.from({ length: 10 }, () => "");
  weights.forEach((row, i) =>
    row.forEach((weight, j) => {
      const shade = Math.min(9, Math.floor(weight * 10));
      if (weight >= 0.02) shades[shade] += `M${j} ${i}h1v1h-1z`;
    }),
  );
  const paths = shades.map((d, shade) => d && draw("path", { d, "--share": (shade + 0.5) / 10 })).filter(Boolean);
  const viewBox = `0 0 ${weights[0].length} ${weights.length}`;
  return draw("svg", { class: "thumbnail", viewBox, "aria-hidden": "true", preserveAspectRatio: "none" }, ...paths);
}
