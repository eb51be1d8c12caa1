// Reads names, weights and statistics from an explanation.

/**
 * The three kinds of attention, in the order in which they are shown: the map that a learner can read first.
 * asks and gives name the sentences of the rows and of the columns.
 */
export const PARTS = [
  {
    key: "cross",
    title: "Cross-attention",
    asks: "target_out",
    gives: "source",
    plain: "Before a word is written, the decoder looks at the source.",
  },
  {
    key: "encoder",
    title: "Encoder self-attention",
    asks: "source",
    gives: "source",
    plain: "Every source word looks at all source words, itself included.",
  },
  {
    key: "decoder",
    title: "Masked decoder self-attention",
    asks: "target_in",
    gives: "target_in",
    plain: "Each word of the translation looks at itself and at the words before it, never ahead.",
  },
];

/** Return the parts of this model; a decoder without causal mask is not called masked. */
export function partsOf(explanation) {
  const there = PARTS.filter((part) => explanation.attention[part.key].length > 0);
  const looksAhead = explanation.attention.decoder.some((layer) =>
    layer.some((head) => head.some((row, i) => row.some((weight, j) => j > i && weight > 0))),
  );
  const plain = "Each word of the translation looks at the whole translation, later words included.";
  return there.map((part) =>
    part.key === "decoder" && looksAhead ? { ...part, title: "Decoder self-attention without mask", plain } : part,
  );
}

/** Return the names of rows and columns. `target` is the shown target: the start mark, then the whole translation. */
export function namesOf(explanation, unit) {
  const { pieces, words } = explanation;
  const start = pieces.target_in[0];
  const [source, written] =
    unit === "words"
      ? [words.source.map((word) => word.text), words.target.map((word) => word.text)]
      : [pieces.source, pieces.target_out];
  return { source, target_out: written, target_in: [start, ...written.slice(0, -1)], target: [start, ...written] };
}

/** Return weights of one head, or of the heads' mean (head null): rows are queries; null if there is no such layer. */
export function weightsOf(explanation, part, layer, head, unit) {
  const heads = (unit === "words" ? explanation.by_word : explanation.attention)[part.key][layer];
  if (heads === undefined) return null;
  if (head !== null) return heads[head];
  return heads[0].map((row, i) => row.map((_, j) => mean(heads.map((one) => one[i][j]))));
}

/** Return statistics of one head, or their mean over the heads (head null). */
export function statisticsOf(explanation, part, layer, head) {
  const heads = explanation.heads[part.key][layer];
  if (head !== null) return heads[head];
  const names = ["entropy", "distance", "diagonal"];
  return Object.fromEntries(names.map((name) => [name, mean(heads.map((one) => one[name]))]));
}

/** Return the largest number of layers of any part, and the largest number of heads. */
export function sizeOf(explanation) {
  const stacks = partsOf(explanation).map((part) => explanation.attention[part.key]);
  return {
    layers: Math.max(...stacks.map((stack) => stack.length)),
    heads: Math.max(...stacks.map((stack) => stack[0].length)),
  };
}

/**
 * Return the layer to show first: the last but one of the decoder, whose cross-attention aligns words best (Garg et
 * al. 2019), or the last layer of a stack with fewer layers.
 */
export function openingLayer(explanation) {
  const counts = partsOf(explanation).map((part) => explanation.attention[part.key].length);
  return Math.max(0, Math.min(explanation.attention.cross.length - 2, ...counts.map((count) => count - 1)));
}

/**
 * Return the links between the chosen word and the others, by part.
 *
 * chosen = {side, index}: a source word, or place `index` of the shown target (0 is the start mark, which is never
 * chosen). A target word stands for the step that predicted it, when the decoder had read the word before.
 * Each link = {part, side, from, to, weight, isSeen}; isSeen: the other word looks at the chosen one.
 */
export function linksOf(weights, chosen) {
  const links = [];
  const add = (part, side, row, toShown, isSeen = false) =>
    row.forEach((weight, index) => links.push({ part, side, from: chosen.index, to: toShown(index), weight, isSeen }));
  if (chosen.side === "source") {
    if (weights.encoder) add("encoder", "source", weights.encoder[chosen.index], (j) => j);
    const column = weights.cross?.map((row) => row[chosen.index]);
    if (column) add("cross", "target", column, (i) => i + 1, true);
    return links;
  }
  const row = chosen.index - 1;
  const seen = weights.decoder?.[row].findLastIndex((weight, j) => j <= row || weight > 0) + 1;
  if (weights.decoder) add("decoder", "target", weights.decoder[row].slice(0, seen), (j) => j);
  if (weights.cross) add("cross", "source", weights.cross[row], (j) => j);
  return links;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
