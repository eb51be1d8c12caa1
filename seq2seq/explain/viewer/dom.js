// Makes elements and writes numbers. Text goes in as text nodes only, never as HTML.

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

/** An HTML element. Attributes: functions listen to the event of their name, names with "--" are CSS variables. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element; as `make`. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A formula, in MathML; children as `term` makes them. */
export function formula(...children) {
  return fill(document.createElementNS(MATHML, "math"), { display: "block" }, children);
}

/** A part of a formula: term("mi", "Q"), term("msup", term("mi", "K"), term("mi", "T")). */
export function term(tag, ...children) {
  return fill(document.createElementNS(MATHML, tag), {}, children);
}

let made = 0; // ids and names of what is made here must not meet

/** A labelled list to choose from; options are [value, text], value a string. */
export function picker(label, options, chosen, onChoose) {
  const id = `picker-${(made += 1)}`;
  const items = options.map(([value, text]) => make("option", { value, selected: value === chosen }, text));
  const list = make("select", { id, change: (event) => onChoose(event.target.value) }, ...items);
  return make("div", { class: "picker" }, make("label", { for: id }, label), list);
}

/** A few choices side by side; as `picker`. */
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

/** A weight from 0 to 1 as people write it in small tables: .83, 1, and nothing below a half percent. */
export function share(weight) {
  const text = weight.toFixed(2);
  return text === "0.00" ? "" : text === "1.00" ? "1" : text.slice(1);
}

/** A number with a true minus sign. */
export function decimal(value, places = 2) {
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A number within a formula: the negative ones in brackets. */
export function factor(value) {
  return Number(value.toFixed(2)) < 0 ? `(${decimal(value)})` : decimal(value);
}
