// Shows a small matrix as a table of tinted numbers: accent for positive numbers, grey for negative ones.

import { decimal, make, scroller } from "./dom.js";

const CHANNELS = 5; // columns shown of a wide matrix

/**
 * Make a matrix with its name and size.
 *
 * rows: names of the rows; columns: names of the columns if they are pieces; width: number of all columns if only the
 * first are given or shown. A null in values is masked. chosen = {row, column}, either may be null. A click calls
 * onChoose(row, column), where column is null in a matrix of channels.
 */
export function makeMatrix({ name, rows, columns = null, values, width = values[0].length, chosen, onChoose }) {
  const shown = columns ? values[0].length : Math.min(CHANNELS, values[0].length);
  const isCut = shown < width;
  const largest = Math.max(...values.flatMap((row) => row.map((value) => Math.abs(value ?? 0)))) || 1;
  const lines = values.map((row, i) => {
    const cells = row.slice(0, shown).map((value, j) => {
      const isHere = i === chosen.row && columns && j === chosen.column;
      const click = onChoose ? () => onChoose(i, columns ? j : null) : null;
      return makeCell(value, largest, { click, class: isHere ? "here" : null });
    });
    const heading = make("th", { scope: "row" }, rows[i]);
    return make(
      "tr",
      { class: i === chosen.row ? "chosen" : null },
      heading,
      ...cells,
      ...(isCut ? [make("td", { class: "more" }, "…")] : []),
    );
  });
  const head =
    columns &&
    make("thead", {}, make("tr", {}, make("td"), ...columns.map((text) => make("th", { scope: "col" }, text))));
  const table = make("table", { class: "matrix" }, head, make("tbody", {}, ...lines));
  const size = `${values.length} × ${width}`;
  const label = `${name}, ${size}${isCut ? `, first ${shown} channels` : ""}`;
  const scroll = scroller(label, table);
  requestAnimationFrame(() => reveal(scroll, lines[chosen.row], columns && chosen.column));
  return make("figure", {}, make("figcaption", {}, make("b", {}, name), ` ${size}`), scroll);
}

function makeCell(value, largest, attributes) {
  if (value === null) return make("td", { ...attributes, class: `masked ${attributes.class ?? ""}` }, "−∞");
  const sign = value < 0 ? "minus" : "plus";
  return make(
    "td",
    { ...attributes, class: `${sign} ${attributes.class ?? ""}`, "--share": Math.abs(value) / largest },
    decimal(value),
  );
}

/** Scroll the followed row and column of a large matrix into view, without scrolling the page. */
function reveal(scroll, line, column) {
  scroll.scrollTop = line.offsetTop + line.offsetHeight / 2 - scroll.clientHeight / 2;
  const cell = line.children[(column ?? -1) + 1]; // the first is the row's name
  const isHidden = cell.offsetLeft + cell.offsetWidth > scroll.clientWidth;
  scroll.scrollLeft = isHidden ? cell.offsetLeft + cell.offsetWidth / 2 - scroll.clientWidth / 2 : 0;
}
