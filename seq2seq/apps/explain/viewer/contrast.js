// Why this word and not another one: asks for the other word, and shows which source words speak for which.

import { decimal, make, scroller, share, table, tableRow } from "./dom.js";

const NOTE =
  "Attention: the share of what cross-attention takes from a source word while each of the two is written, by the size " +
  "of its values, in all layers. The last column is the honest test: if the source word is hidden, the first word loses " +
  "so much of its lead over the second. The losses need not add up to the lead.";

/** Make a form that asks for a word to compare the target word with; onContrast({ word, other }) is called with it. */
export function makeContrastForm(word, text, onContrast) {
  const id = "instead-of";
  const input = make("input", { id, type: "text", size: 14, maxlength: 100, required: true, autocomplete: "off", autocapitalize: "off", "data-name": id });
  const submit = (event) => {
    event.preventDefault();
    onContrast({ word, other: input.value });
  };
  const label = make("label", { for: id }, "Why ", make("b", {}, text), " and not");
  return make("form", { class: "contrast", submit }, label, input, make("button", { class: "button" }, "Compare"));
}

/** Make the table of both words, with the evidence of every source word; null: nothing was compared. */
export function makeContrast({ contrast, words }) {
  if (contrast === undefined) return null;
  const [ours, theirs] = contrast.texts;
  const [first, second] = contrast.log_probs.map((value) => `${decimal(value)} nats`);
  const head = ["Source word", `Attention: ${ours}`, `Attention: ${theirs}`, `For ${ours}, in nats`];
  const gaps = contrast.evidence.map(({ drops }) => drops[0] - drops[1]);
  const largest = Math.max(...gaps.map(Math.abs), 1e-9);
  const rows = contrast.evidence.map(({ looks }, i) =>
    tableRow(
      {},
      words.source[i].text,
      ...looks.map((look) => make("td", { class: "plus", "--share": look }, share(look))),
      make("td", { class: gaps[i] < 0 ? "minus" : "plus", "--share": Math.abs(gaps[i]) / largest }, decimal(gaps[i])),
    ),
  );
  const caption = [make("b", {}, ours), ` (${first}) rather than `, make("b", {}, theirs), ` (${second})`];
  const evidence = scroller("Evidence of the source words", table("comparison", caption, head, rows));
  return make("div", { class: "contrasted", role: "status" }, evidence, make("p", { class: "note" }, NOTE));
}
