// Draws two sentences and the lines between their words: as rows, or as columns on narrow screens.

import { draw, make, share } from "./dom.js";

const LEAST = 0.02; // weight of a line worth drawing
const ROOM = 60; // pixels for the arcs beside a sentence in rows, equal to viewer.css
const NARROW_ROOM = 30; // in columns

/**
 * Make a diagram. It calls onChoose({side, index}) when a word is clicked or reached by keyboard, and onPreview with
 * the same argument when the pointer enters a word, or with null when the pointer leaves.
 */
export function makeDiagram(onChoose, onPreview) {
  const layers = { ghosts: draw("g"), links: draw("g") };
  const lines = draw("svg", { class: "lines", "aria-hidden": "true" }, layers.ghosts, layers.links);
  const sides = {
    source: make("div", { class: "side", role: "toolbar", "aria-label": "Source sentence" }),
    target: make("div", { class: "side", role: "toolbar", "aria-label": "Translation" }),
  };
  const element = make("div", { class: "diagram" }, lines, sides.source, sides.target);
  const diagram = { element, lines, layers, sides, words: { source: [], target: [] }, links: [], ghosts: [] };
  element.addEventListener("keydown", (event) => move(event, diagram));
  element.addEventListener("pointerleave", () => onPreview(null));
  new ResizeObserver(() => arrange(diagram)).observe(element);
  return {
    element,
    setNames: (names) => setNames(diagram, names, onChoose, onPreview),
    show: (links, chosen, ghosts) => show(diagram, links, chosen, ghosts),
  };
}

function setNames(diagram, names, onChoose, onPreview) {
  for (const side of ["source", "target"]) {
    diagram.words[side] = names[side].map((text, index) => {
      const parts = [make("span", { class: "text" }, text), make("span", { class: "share" })];
      const isMark = text.startsWith("<") && text.endsWith(">");
      const kind = isMark ? "word mark" : "word";
      if (side === "target" && index === 0) return make("span", { class: `${kind} start` }, ...parts);
      const here = { side, index };
      return make(
        "button",
        {
          class: kind,
          type: "button",
          tabindex: "-1",
          click: () => onChoose(here),
          focus: () => onChoose(here),
          pointerenter: (event) => event.pointerType === "mouse" && onPreview(here),
          pointerleave: (event) => event.pointerType === "mouse" && onPreview(null),
        },
        ...parts,
      );
    });
    diagram.sides[side].replaceChildren(...diagram.words[side]);
  }
  diagram.links = diagram.ghosts = [];
  arrange(diagram);
}

/** Let arrow keys go along the sentence and across to the other sentence. */
function move(event, { element, words }) {
  const side = ["source", "target"].find((one) => words[one].includes(event.target));
  if (!side) return;
  const index = words[side].indexOf(event.target);
  const isRows = element.dataset.flow === "rows";
  const [back, on, up, down] = isRows
    ? ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]
    : ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
  const first = side === "target" ? 1 : 0;
  const last = words[side].length - 1;
  const along = { [back]: Math.max(first, index - 1), [on]: Math.min(last, index + 1), Home: first, End: last };
  let next = null;
  if (event.key in along) next = words[side][along[event.key]];
  else if (event.key === (side === "source" ? down : up))
    next = nearest(event.target, words[side === "source" ? "target" : "source"], isRows);
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function nearest(from, others, isRows) {
  const along = (node) => {
    const box = node.getBoundingClientRect();
    return isRows ? box.left + box.width / 2 : box.top + box.height / 2;
  };
  const gap = (node) => Math.abs(along(node) - along(from));
  return others
    .filter((node) => node.tagName === "BUTTON")
    .reduce((best, node) => (gap(node) < gap(best) ? node : best));
}

function show(diagram, links, chosen, ghosts) {
  const isOther = ghosts !== diagram.ghosts;
  Object.assign(diagram, { links, ghosts, chosen });
  for (const side of ["source", "target"]) {
    const shares = new Map(links.filter((link) => link.side === side).map((link) => [link.to, link.weight]));
    diagram.words[side].forEach((word, index) => {
      const weight = shares.get(index);
      const isChosen = side === chosen.side && index === chosen.index;
      word.style.setProperty("--share", weight ?? 0);
      word.querySelector(".share").textContent = weight === undefined ? "" : share(weight);
      word.classList.toggle("ahead", side === "target" && chosen.side === "target" && index > chosen.index);
      word.classList.toggle("chosen", isChosen);
      if (word.tagName !== "BUTTON") return;
      word.setAttribute("aria-pressed", String(isChosen));
      word.tabIndex = isChosen || (side !== chosen.side && index === diagram.words[side].length - 1) ? 0 : -1;
    });
  }
  paint(diagram, isOther);
}

/** Lay the sentences out as rows if each fits on a line, else as columns. */
function arrange(diagram) {
  const { element, sides } = diagram;
  element.dataset.flow = "rows";
  const isTooWide = Object.values(sides).some((side) => side.scrollWidth > element.clientWidth);
  if (isTooWide) element.dataset.flow = "columns";
  for (const side of Object.values(sides)) side.setAttribute("aria-orientation", isTooWide ? "vertical" : "horizontal");
  paint(diagram, true);
}

/** Draw the chosen word's lines, and redraw the faint lines if they changed or the words have moved. */
function paint(diagram, withGhosts) {
  const { element, lines, layers, links, ghosts, chosen } = diagram;
  const frame = element.getBoundingClientRect();
  if (!frame.width || !chosen) return;
  lines.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  const isRows = element.dataset.flow === "rows";
  const place = (side, index) => {
    const box = diagram.words[side][index].getBoundingClientRect();
    const x = box.left - frame.left;
    const y = box.top - frame.top;
    return isRows
      ? { along: x + box.width / 2, near: y, far: y + box.height }
      : { along: y + box.height / 2, near: x, far: x + box.width };
  };
  const path = (from, to) => outline(from, to, place, isRows);
  const strong = links
    .filter((link) => link.weight >= LEAST)
    .map((link) => {
      const d = path({ side: chosen.side, index: link.from }, { side: link.side, index: link.to });
      const kind = link.isSeen ? "link seen" : "link";
      return draw("path", { class: kind, d, "--share": link.weight });
    });
  layers.links.replaceChildren(...strong);
  if (!withGhosts) return;
  const faint = ghosts.map((ghost) =>
    draw("path", {
      class: "ghost",
      d: path({ side: "target", index: ghost.from }, { side: "source", index: ghost.to }),
      "--share": ghost.weight,
    }),
  );
  layers.ghosts.replaceChildren(...faint);
}

/** Return the path between two words: an arc beside one sentence, or a curve from one sentence to the other. */
function outline(from, to, place, isRows) {
  const point = (along, across) =>
    isRows ? `${along.toFixed(1)} ${across.toFixed(1)}` : `${across.toFixed(1)} ${along.toFixed(1)}`;
  const [a, b] = [place(from.side, from.index), place(to.side, to.index)];
  if (from.side !== to.side) {
    const [start, end] = from.side === "source" ? [a.far, b.near] : [a.near, b.far];
    const middle = (start + end) / 2;
    return `M${point(a.along, start)} C${point(a.along, middle)} ${point(b.along, middle)} ${point(b.along, end)}`;
  }
  const isOuterNear = from.side === "source";
  const edge = isOuterNear ? a.near : a.far;
  const room = isRows ? ROOM : NARROW_ROOM;
  const height = Math.min(room, (isRows ? 16 : 12) + Math.abs(a.along - b.along) * 0.3) * (4 / 3);
  const top = isOuterNear ? edge - height : edge + height;
  if (from.index === to.index) {
    const [start, end] = [point(a.along - 9, edge), point(a.along + 9, edge)];
    return `M${start} C${point(a.along - 14, top)} ${point(a.along + 14, top)} ${end}`;
  }
  const other = isOuterNear ? b.near : b.far;
  return `M${point(a.along, edge)} C${point(a.along, top)} ${point(b.along, top)} ${point(b.along, other)}`;
}
