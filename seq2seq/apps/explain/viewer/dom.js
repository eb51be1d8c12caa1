// Makes elements and formats numbers. Text becomes text nodes only, never HTML.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Make an HTML element. Attributes that are functions listen to events; names with "--" are CSS variables. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element, like `make`. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Make a formula from fractions, and from texts with a space between the terms: "A_ij = √c", "W^Q". */
export function formula(...parts) {
  const terms = parts.flatMap((part) => (typeof part === "string" ? part.split(" ").map(term) : [part]));
  return fill(document.createElementNS(MATHML, "math"), { display: "block" }, terms);
}

/** Make a fraction of a formula from two texts. */
export function fraction(above, below) {
  return math("mfrac", ...[above, below].map((text) => math("mrow", ...text.split(" ").map(term))));
}

function term(text) {
  const [, root, name, below, above] = /^(√?)([^_^]+)_?([^^]*)\^?(.*)$/.exec(text);
  const base = math(/\p{L}/u.test(name) ? "mi" : /\d/.test(name) ? "mn" : "mo", name);
  if (root) return math("msqrt", base);
  if (!below) return above ? math("msup", base, term(above)) : base;
  const index = math("mrow", ...Array.from(below, term));
  return above ? math("msubsup", base, index, term(above)) : math(name === "∑" ? "munder" : "msub", base, index);
}

function math(tag, ...children) {
  return fill(document.createElementNS(MATHML, tag), {}, children);
}

let made = 0; // number of elements made, for unique ids and names

/** Make a labelled list to choose from; options are [value, text], value a string. */
export function picker(label, options, chosen, onChoose) {
  const id = `picker-${(made += 1)}`;
  const items = options.map(([value, text]) => make("option", { value, selected: value === chosen }, text));
  const list = make("select", { id, change: (event) => onChoose(event.target.value) }, ...items);
  return make("div", { class: "picker" }, make("label", { for: id }, label), list);
}

/** Make a few choices side by side, like `picker`. */
export function choices(label, options, chosen, onChoose) {
  const name = `choice-${(made += 1)}`;
  const items = options.map(([value, text]) => {
    const change = () => onChoose(value);
    return make(
      "label",
      {},
      make("input", { type: "radio", name, value, checked: value === chosen, change }),
      make("span", {}, text),
    );
  });
  return make("fieldset", { class: "choices" }, make("legend", {}, label), make("div", {}, ...items));
}

/** Make a table with a caption and a row of headings ("": none), or without them (null); rows are its other rows. */
export function table(kind, caption, headings, rows) {
  const headingOf = (text) => (text ? make("th", { scope: "col" }, text) : make("td"));
  const head = headings && make("thead", {}, make("tr", {}, ...headings.map(headingOf)));
  return make("table", { class: kind }, caption && make("caption", {}, ...caption), head, make("tbody", {}, ...rows));
}

/** Make a row of a table that begins with a heading; null cells are left out. */
export function tableRow(attributes, heading, ...cells) {
  return make("tr", attributes, make("th", { scope: "row" }, heading), ...cells);
}

/** Make a frame in which a wide element scrolls, also by the keyboard. */
export function scroller(label, content, role = "group") {
  return make("div", { class: "scroll", tabindex: "0", role, "aria-label": label }, content);
}

/** Make a number with its name, for a list of numbers. */
export function fact(name, value, attributes = {}) {
  return make("div", attributes, make("dt", {}, name), make("dd", {}, ...value));
}

/** Format a weight from 0 to 1 for small tables: .83, 1, and nothing below half a percent. */
export function share(weight) {
  const text = weight.toFixed(2);
  return text === "0.00" ? "" : text === "1.00" ? "1" : text.slice(1);
}

/** Format a number with a true minus sign. */
export function decimal(value, places = 2) {
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** Format a number in a formula, negative numbers in brackets. */
export function factor(value) {
  return Number(value.toFixed(2)) < 0 ? `(${decimal(value)})` : decimal(value);
}
