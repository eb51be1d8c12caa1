// Shows the steps of attention, each with its formula, a sentence, the matrices, and the calculation of one number.

import { decimal, factor, formula, fraction, make, share } from "./dom.js";
import { makeMatrix } from "./matrix.js";

const TERMS = 3; // terms of a long sum that are written out
const ROUNDING = 2e-3; // tolerance for sums of rounded numbers

const sign = (text) => make("span", { class: "sign" }, text); // between matrices
const near = (a, b) => Math.abs(a - b) < ROUNDING;
const isCross = (walk) => walk.part === "cross";

/** Return functions that make the matrices of a walk by their rows: its queries, its keys, or both; `at` is marked. */
export function matrices(walk, at, follow) {
  const { rows, columns } = walk;
  const ofRow = { rows, chosen: { row: at.row, column: null }, onChoose: (i) => follow(i, null) };
  const ofColumn = { rows: columns, chosen: { row: at.column, column: null }, onChoose: (j) => follow(at.row, j) };
  return {
    ofRows: (name, values, width) => makeMatrix({ name, values, width, ...ofRow }),
    ofKeys: (name, values) => makeMatrix({ name, values, ...ofColumn }),
    pairs: (name, values) => makeMatrix({ name, values, rows, columns, chosen: at, onChoose: follow }),
  };
}

function embed(walk, at, { ofRows }) {
  const { embedding, position, input, d_model: width } = walk;
  const hasPosition = position !== null;
  const isSum = input.every((line, i) => line.every((value, j) => near(value, embedding[i][j] + (position?.[i][j] ?? 0))));
  const added = hasPosition ? [sign("+"), ofRows("P", position, width)] : [];
  const below = walk.layer === 0 ? "" : ` Layer ${walk.layer + 1} sees what the layers below have made of it: X.`;
  const normed =
    !isSum && walk.layer === 0
      ? isCross(walk)
        ? " After the decoder's self-attention, it is X."
        : " Normalised, it is X."
      : "";
  const how = hasPosition
    ? "its embedding E, plus a pattern P for the position of the piece."
    : "its embedding E. No positions are added: rotary positions turn queries and keys instead, and a model without " +
      "positions does not know the order.";
  const [e, p, x] = [embedding, position, input].map((values) => values?.[at.row][0] ?? 0);
  return {
    formula: formula(`X ${isSum ? "=" : "⇠"} E${hasPosition ? " + P" : ""}`),
    plain: `Every piece becomes ${width} numbers: ${how}${below}${normed}`,
    figures: [ofRows("E", embedding, width), ...added, sign(isSum ? "=" : "⇢"), ofRows("X", input, width)],
    numbers:
      isSum && hasPosition
        ? [`First channel of `, make("b", {}, walk.rows[at.row]), `: ${decimal(e)} + ${factor(p)} = ${decimal(x)}`]
        : null,
  };
}

function project(walk, at, { ofRows, ofKeys }) {
  const given = isCross(walk) ? "M" : "X";
  const product = (name, from) => formula(`${name} = ${from} W^${name}`);
  const whence = isCross(walk)
    ? "The translation asks (queries Q); the encoded source M answers (keys K, values V). The query “a → b” " +
      "has read the piece a and looks for what writing b needs."
    : "Three matrices make three vectors of each piece: what it looks for (Q), how others find it (K), what it gives (V).";
  const isTurned = walk.position === null && !isCross(walk);
  const turned = isTurned ? " With rotary positions, Q and K are then turned by their positions." : "";
  return {
    formula: make("div", { class: "several" }, product("Q", "X"), product("K", given), product("V", given)),
    plain: whence + turned + ` In this head, each has ${walk.channels} channels.`,
    figures: [ofRows("Q", walk.queries), ofKeys("K", walk.keys), ofKeys("V", walk.values)],
  };
}

function relate(walk, at, { pairs }) {
  const [q, k] = [walk.queries[at.row], walk.keys[at.column]];
  const products = q.slice(0, TERMS).map((value, i) => `${factor(value)} × ${factor(k[i])}`);
  const more = q.length > TERMS ? ` + … (${q.length} products)` : "";
  return {
    formula: formula("S = Q K^T"),
    plain:
      "Every query is compared with every key: multiply channel by channel and add up. A larger sum means a better match.",
    figures: [pairs("S", walk.scores)],
    numbers: [
      ...asking(walk, at),
      ` ${products.join(" + ")}${more} = `,
      make("b", {}, decimal(walk.scores[at.row][at.column])),
    ],
  };
}

function scale(walk, at, { pairs }) {
  const root = Math.sqrt(walk.channels);
  const scaled = walk.scores.map((line) => line.map((value) => value / root));
  const value = walk.scores[at.row][at.column];
  return {
    formula: formula(`S^′ = S / √c = S / √${walk.channels}`),
    plain:
      "Sums of many products grow large, and then one key would take all the attention. " +
      "Dividing by the square root of c, the number of products, keeps the attention spread.",
    figures: [pairs("S′", scaled)],
    numbers: [...asking(walk, at), ` ${decimal(value)} / ${decimal(root)} = `, make("b", {}, decimal(value / root))],
  };
}

function mask(walk, at, { pairs }) {
  const hidden = walk.mask.flat().filter((isAllowed) => !isAllowed).length;
  const reason = walk.part === "decoder"
    ? "During training, the decoder has the whole translation. Scores of later pieces are set to −∞, so that no piece looks ahead."
    : "The scores of pieces that are switched off are set to −∞, so that no piece looks at them.";
  const plain = hidden
    ? reason
    : "Nothing is masked here: every query may look at all keys. Only padding would be set to −∞.";
  const allowed = walk.mask[at.row].filter(Boolean).length;
  return {
    formula: make(
      "div",
      { class: "several" },
      formula("S_ij^′ = − ∞"),
      make("span", {}, "where ", make("i", {}, "i"), " may not look at ", make("i", {}, "j")), // MathML would not wrap this
    ),
    plain,
    figures: [pairs("S′, masked", walk.scaled)],
    numbers: [make("b", {}, walk.rows[at.row]), ` may look at ${allowed} of ${walk.columns.length} pieces.`],
  };
}

function normalise(walk, at, { pairs }) {
  const value = walk.scaled[at.row][at.column];
  const power = (text) => make("span", {}, "e", make("sup", {}, text));
  const sum = walk.scaled[at.row].reduce((total, one) => total + (one === null ? 0 : Math.exp(one)), 0);
  const worked =
    value === null
      ? [" masked, so its share is ", make("b", {}, "0")]
      : [
          " ",
          power(decimal(value)),
          ` / sum of the row = ${decimal(Math.exp(value))} / ${decimal(sum)} = `,
          make("b", {}, decimal(walk.weights[at.row][at.column])),
        ];
  return {
    formula: formula("A_ij =", fraction("e^S_ij^′", "∑_k e^S_ik^′")),
    plain:
      "Softmax turns the scores into shares: all are positive, and each row sums to 1. These shares are the attention weights.",
    figures: [pairs("A", walk.weights)],
    numbers: [...asking(walk, at), ...worked],
  };
}

function mix(walk, at, { ofRows, ofKeys, pairs }) {
  const weights = walk.weights[at.row];
  const order = weights
    .map((_, j) => j)
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, TERMS);
  const terms = order.map((j) => `${share(weights[j]) || "0"} × ${factor(walk.values[j][0])} (${walk.columns[j]})`);
  const more = weights.length > TERMS ? " + …" : "";
  return {
    formula: formula("Z = A V"),
    plain: "Each piece's new value is a mixture of all values, each in proportion to its share.",
    figures: [pairs("A", walk.weights), sign("×"), ofKeys("V", walk.values), sign("="), ofRows("Z", walk.mixture)],
    numbers: [
      "First channel of ",
      make("b", {}, walk.rows[at.row]),
      `: ${terms.join(" + ")}${more} = `,
      make("b", {}, decimal(walk.mixture[at.row][0])),
    ],
  };
}

function join(walk, at, { ofRows }) {
  const { d_model: width, channels, head } = walk;
  const heads = width / channels;
  return {
    formula: formula(`O = [ ${heads > 1 ? `Z_1 , … , Z_${heads}` : "Z"} ] W^O`),
    plain:
      `The mixtures of all ${heads} heads are put side by side, ${heads} × ${channels} = ${width} channels, ` +
      "and one more matrix combines them. The result is added to each piece's previous vector.",
    figures: [ofRows("Z, all heads", walk.joined, width), sign("⇢"), ofRows("O", walk.output, width)],
    numbers: [`This head's numbers are channels ${head * channels + 1} to ${(head + 1) * channels}.`],
  };
}

function asking(walk, at) {
  return [make("b", {}, walk.rows[at.row]), " asks ", make("b", {}, walk.columns[at.column]), ":"];
}

export const STEPS = [
  { name: "Embed", title: "Pieces become vectors", show: embed },
  { name: "Q, K, V", title: "Queries, keys and values", show: project },
  { name: "QKᵀ", title: "Every query is compared with every key", show: relate },
  { name: "÷ √c", title: "Scores are scaled", show: scale },
  { name: "Mask", title: "The mask hides positions", show: mask },
  { name: "Softmax", title: "Scores become shares", show: normalise },
  { name: "× V", title: "Values are mixed", show: mix },
  { name: "Join", title: "The heads are joined", show: join },
];
