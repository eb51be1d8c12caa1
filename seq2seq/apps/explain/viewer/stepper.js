// Goes through numbered steps by buttons, by a list of steps, and by arrow keys.

import { make } from "./dom.js";

let steppers = 0; // number of steppers, for unique ids of tabs

/** Make a stepper; show(index) returns the nodes of a step. `refresh` redraws the current step. */
export function makeStepper({ label, names, show, start = 0 }) {
  const id = `stepper-${(steppers += 1)}`;
  const stepper = { index: -1, show, names };
  stepper.tabs = names.map((name, index) => makeTab(stepper, id, name, index));
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": label }, ...stepper.tabs);
  stepper.panel = make("div", { class: "step", role: "tabpanel", id });
  const makeButton = (kind, text, move) =>
    make("button", { type: "button", class: `button ${kind}`, click: () => go(stepper, stepper.index + move) }, text);
  stepper.back = makeButton("back", "← Previous", -1);
  stepper.next = makeButton("next", "Next →", 1);
  stepper.place = make("span", { class: "place" });
  const buttons = make("div", { class: "buttons" }, stepper.back, stepper.place, stepper.next);
  const element = make(
    "div",
    { class: "stepper", keydown: (event) => press(stepper, event) },
    make("div", { class: "bar" }, list, buttons),
    stepper.panel,
  );
  go(stepper, start);
  return { element, refresh: () => stepper.panel.replaceChildren(...show(stepper.index)) };
}

function makeTab(stepper, id, name, index) {
  const number = String(index + 1);
  const told = name === number ? [name] : [make("span", { class: "number" }, number), make("span", {}, name)];
  const click = () => go(stepper, index);
  return make(
    "button",
    { type: "button", role: "tab", class: "tab", id: `${id}-${index}`, "aria-controls": id, click },
    ...told,
  );
}

function go(stepper, wanted) {
  const { tabs, panel, back, next } = stepper;
  const last = tabs.length - 1;
  const index = Math.max(0, Math.min(last, wanted));
  if (index === stepper.index) return;
  const focused = document.activeElement;
  stepper.index = index;
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(i === index));
    tab.tabIndex = i === index ? 0 : -1;
  });
  panel.setAttribute("aria-labelledby", tabs[index].id);
  panel.replaceChildren(...stepper.show(index));
  stepper.place.textContent = `${index + 1} of ${tabs.length}`;
  back.disabled = index === 0;
  next.disabled = index === last;
  if (tabs.includes(focused)) tabs[index].focus();
  else if (focused === back && index === 0)
    next.focus(); // a disabled button would lose the keyboard
  else if (focused === next && index === last) back.focus();
}

function press(stepper, event) {
  if (event.target.closest("select, input, .scroll") || event.altKey || event.ctrlKey || event.metaKey) return;
  const { index, tabs } = stepper;
  const wanted = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (wanted === undefined) return;
  event.preventDefault();
  go(stepper, wanted);
}
