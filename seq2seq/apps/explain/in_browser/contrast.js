// Why this word and not another one: the twin of seq2seq/apps/explain/interventions.py.

import { product, sum } from "./layers.js";
import { BOS } from "./tokenizer.js";

/**
 * Compare a target word (its index) with another one in its place, which is text; return the values of `Contrast`.
 *
 * src, tgt: the ids of a sentence and its translation, end marks last; words: { source, target } with their subwords.
 */
export function contrast(translator, { src, tgt, words }, word, other) {
  const { model, target: tokenizer } = translator;
  const ids = tokenizer.encode(other);
  const text = tokenizer.decode(ids);
  if (text.split(" ").filter(Boolean).length !== 1) throw new Error(`'${other.slice(0, 60)}' is not one word: give a single one`);
  const { pieces } = words.target[word];
  const before = tgt.slice(0, pieces[0]);
  const both = [pieces.map((position) => tgt[position]), ids];
  const read = (one) => [BOS, ...before, ...one.slice(0, -1)];
  const logProbs = (changedModel) => {
    const memory = changedModel.encode(src);
    return both.map((one) => {
      const rows = changedModel.read(read(one), memory);
      return sum(one.map((id, i) => rows[before.length + i][id]));
    });
  };
  const usual = logProbs(model);
  const looks = both.map((one) => looksOf(model, src, read(one), one.length));
  const evidence = words.source.slice(0, -1).map((one) => {
    const hidden = logProbs(model.changed(model.interventions, [...model.hidden, ...one.pieces]));
    return { looks: looks.map((shares) => sum(one.pieces.map((i) => shares[i]))), drops: usual.map((value, i) => value - hidden[i]) };
  });
  return { word, texts: [words.target[word].text, text], log_probs: usual, evidence };
}

/** Return the share of every source subword in what cross-attention takes for the last `count` rows (Kobayashi et al. 2020). */
function looksOf(model, src, read, count) {
  const calls = [];
  model.read(read, model.encode(src), (part, layer) => (call) => part === "cross" && (calls[layer] = call));
  const shares = src.map(() => 0);
  calls.forEach(({ shares: weights, memory, isOn }, layer) => {
    const { data, shape } = model.weights[`decoder_layers.${layer}.cross_attention.out_proj.weight`];
    for (const ofHeads of weights.slice(-count)) {
      const channels = shape[1] / ofHeads.length;
      const weightOf = (i, column) => (isOn(i) ? ofHeads[Math.floor(i / channels)][column] : 0);
      const weighted = memory.values.map((row, column) => row.map((value, i) => value * weightOf(i, column)));
      const norms = product(weighted, data, shape).map((row) => Math.hypot(...row));
      norms.forEach((norm, column) => (shares[column] += norm / (sum(norms) || 1) / count / calls.length));
    }
  });
  return shares;
}
