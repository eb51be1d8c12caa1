// Shows a small matrix as a table of tinted numbers: accent for positive numbers, grey for negative ones.

import { decimal, make, scroller, table, tableRow } from "./dom.js";

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
      const kind = value === null ? "masked" : value < 0 ? "minus" : "plus";
      const isHere = i === chosen.row && columns && j === chosen.column;
      const click = onChoose ? () => onChoose(i, columns ? j : null) : null;
      const attributes = { click, class: isHere ? `${kind} here` : kind, "--share": Math.abs(value ?? 0) / largest };
      return make("td", attributes, value === null ? "−∞" : decimal(value));
    });
    const more = isCut ? make("td", { class: "more" }, "…") : null;
    return tableRow({ class: i === chosen.row ? "chosen" : null }, rows[i], ...cells, more);
  });
  const size = `${values.length} × ${width}`;
  const label = `${name}, ${size}${isCut ? `, first ${shown} channels` : ""}`;
  const scroll = scroller(label, table("matrix", null, columns && ["", ...columns], lines));
  requestAnimationFrame(() => reveal(scroll, lines[chosen.row], columns && chosen.column));
  return make("figure", {}, make("figcaption", {}, make("b", {}, name), ` ${size}`), scroll);
}

/** Scroll the followed row and column of a large matrix into view, without scrolling the page. */
function reveal(scroll, line, column) {
  scroll.scrollTop = line.offsetTop + line.offsetHeight / 2 - scroll.clientHeight / 2;
  const cell = line.children[(column ?? -1) + 1]; // the first is the row's name
  const isHidden = cell.offsetLeft + cell.offsetWidth > scroll.clientWidth;
  scroll.scrollLeft = isHidden ? cell.offsetLeft + cell.offsetWidth / 2 - scroll.clientWidth / 2 : 0;
}
