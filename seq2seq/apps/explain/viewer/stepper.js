// Goes through numbered steps by buttons, by a list of steps, and by arrow keys.

import { make } from "./dom.js";

let steppers = 0; // number of steppers, for unique ids of tabs

/** Make a stepper; show(index) returns the nodes of a step. `refresh` redraws the current step. */
export function makeStepper({ label, names, show, start = 0 }) {
  const id = `stepper-${(steppers += 1)}`;
  const last = names.length - 1;
  let current = -1;
  const tabs = names.map((name, index) => makeTab(id, name, index, () => go(index)));
  const panel = make("div", { class: "step", role: "tabpanel", id });
  const makeButton = (kind, text, move) =>
    make("button", { type: "button", class: `button ${kind}`, click: () => go(current + move) }, text);
  const [back, next] = [makeButton("back", "← Previous", -1), makeButton("next", "Next →", 1)];
  const place = make("span", { class: "place" });
  const bar = make(
    "div",
    { class: "bar" },
    make("div", { class: "tabs", role: "tablist", "aria-label": label }, ...tabs),
    make("div", { class: "buttons" }, back, place, next),
  );

  function go(wanted) {
    const index = Math.max(0, Math.min(last, wanted));
    if (index === current) return;
    const focused = document.activeElement;
    current = index;
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", tabs[index].id);
    panel.replaceChildren(...show(index));
    place.textContent = `${index + 1} of ${names.length}`;
    back.disabled = index === 0;
    next.disabled = index === last;
    if (tabs.includes(focused)) tabs[index].focus();
    else if (focused === back && back.disabled) next.focus(); // a disabled button would lose the keyboard
    else if (focused === next && next.disabled) back.focus();
  }

  function press(event) {
    if (event.target.closest("select, input, .scroll") || event.altKey || event.ctrlKey || event.metaKey) return;
    const wanted = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: last }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    go(wanted);
  }

  go(start);
  return {
    element: make("div", { class: "stepper", keydown: press }, bar, panel),
    refresh: () => panel.replaceChildren(...show(current)),
  };
}

function makeTab(id, name, index, click) {
  const number = String(index + 1);
  const told = name === number ? [name] : [make("span", { class: "number" }, number), make("span", {}, name)];
  const attributes = { type: "button", role: "tab", class: "tab", id: `${id}-${index}`, "aria-controls": id, click };
  return make("button", attributes, ...told);
}
