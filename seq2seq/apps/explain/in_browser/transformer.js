// The encoder-decoder Transformer: ids to log-probabilities. The twin of seq2seq/model/transformer.py.

import { attention, keysValues, sinusoidal } from "./attention.js";
import { add, feedForward, normalised, product, residual } from "./layers.js";

const UNCHANGED = { without: [], average: [], temperature: 1 };
const range = (count) => Array.from({ length: count }, (_, i) => i);

/** A model with its weights. `changed` gives one with parts switched off; both share the weights. */
export class Transformer {
  constructor(config, weights, interventions = UNCHANGED, hidden = []) {
    Object.assign(this, { config, weights, interventions, hidden: new Set(hidden) });
    this.isRotary = config.positions === "rotary" && !interventions.without.includes("positions");
    this.isSinusoidal = config.positions === "sinusoidal" && !interventions.without.includes("positions");
    this.isCausal = !interventions.without.includes("mask");
  }

  /** Return the model with interventions, as seq2seq/apps/explain/interventions.py; hidden: source positions that are off. */
  changed(interventions, hidden) {
    return new Transformer(this.config, this.weights, interventions, hidden);
  }

  /** Return what is changed in an attention, and who records it. */
  watch(part, layer, record) {
    const { without, average, temperature } = this.interventions;
    const heads = range(this.config.num_heads);
    const namesOf = (head) => [part, `${part}.${layer + 1}`, `${part}.${layer + 1}.head.${head + 1}`];
    const named = (names) => new Set(heads.filter((head) => namesOf(head).some((name) => names.includes(name))));
    return { change: { off: named(without), average: named(average), temperature }, record: record?.(part, layer) };
  }

  /** Return scaled embeddings of ids, and the vectors that are added to them at their positions; null: none. */
  embedded(ids, side, positions) {
    const { d_model: width, scale_embedding: isScaled } = this.config;
    const table = (side === "source" && this.weights["encoder_embedding.weight"]) || this.weights["embedding.weight"];
    const scale = isScaled ? Math.sqrt(width) : 1;
    const rows = ids.map((id) => table.data.slice(id * width, (id + 1) * width).map((value) => value * scale));
    return { rows, added: this.isSinusoidal ? positions.map((position) => sinusoidal(position, width)) : null };
  }

  input(ids, side, positions) {
    const { rows, added } = this.embedded(ids, side, positions);
    return added ? add(rows, added) : rows;
  }

  /** Read a source; return the keys and values that every layer of the decoder attends to. record: as in `attention`. */
  encode(src, record) {
    const { config, weights, hidden } = this;
    const positions = range(src.length);
    const rotation = this.isRotary ? positions : null;
    const isVisible = (_, column) => !hidden.has(column);
    let x = this.input(src, "source", positions);
    for (const layer of range(config.num_encoder_layers)) {
      const name = `encoder_layers.${layer}`;
      const attend = (y) => {
        const memory = keysValues(y, weights, `${name}.self_attention`, config, rotation);
        const look = { memoryOf: () => memory, isVisible, rotation, ...this.watch("encoder", layer, record) };
        return attention(y, weights, `${name}.self_attention`, config, look);
      };
      x = residual(x, attend, weights, `${name}.self_residual`, config);
      x = residual(x, (y) => feedForward(y, weights, `${name}.feed_forward`, config), weights, `${name}.feed_forward_residual`, config);
    }
    if (config.norm_position === "pre") x = normalised(x, weights, "encoder_norm", config.norm);
    return range(config.num_decoder_layers).map((layer) => keysValues(x, weights, `decoder_layers.${layer}.cross_attention`, config));
  }

  /**
   * Advance hypotheses of equal length by one token; return the log-probabilities of each one's next token, and its past.
   *
   * ids: each hypothesis's last token. pasts: each one's keys and values, by layer; empty at first.
   */
  step(ids, memory, pasts) {
    const length = pasts[0]?.[0]?.keys.length ?? 0;
    const grown = ids.map(() => []);
    const memoryOf = (layer, { keys, values }, row) => {
      const past = pasts[row]?.[layer] ?? { keys: [], values: [] };
      return (grown[row][layer] ??= { keys: [...past.keys, keys[row]], values: [...past.values, values[row]] });
    };
    const states = this.decode(ids, ids.map(() => length), memory, memoryOf, () => true);
    return { logProbs: this.logProbs(states), pasts: grown };
  }

  /** Read a whole target at once, as in training; return the log-probabilities after each of its tokens. */
  read(ids, memory, record) {
    const isVisible = (row, column) => !this.isCausal || column <= row;
    return this.logProbs(this.decode(ids, range(ids.length), memory, (_, keysAndValues) => keysAndValues, isVisible, record));
  }

  decode(ids, positions, memory, memoryOf, isVisible, record) {
    const { config, weights, hidden } = this;
    const rotation = this.isRotary ? positions : null;
    let x = this.input(ids, "target", positions);
    for (const layer of range(config.num_decoder_layers)) {
      const name = `decoder_layers.${layer}`;
      const attendToTarget = (y) => {
        const own = keysValues(y, weights, `${name}.self_attention`, config, rotation);
        const look = { memoryOf: (row) => memoryOf(layer, own, row), isVisible, rotation, ...this.watch("decoder", layer, record) };
        return attention(y, weights, `${name}.self_attention`, config, look);
      };
      const attendToSource = (y) => {
        const look = { memoryOf: () => memory[layer], isVisible: (_, column) => !hidden.has(column), ...this.watch("cross", layer, record) };
        return attention(y, weights, `${name}.cross_attention`, config, look);
      };
      x = residual(x, attendToTarget, weights, `${name}.self_residual`, config);
      x = residual(x, attendToSource, weights, `${name}.cross_residual`, config);
      x = residual(x, (y) => feedForward(y, weights, `${name}.feed_forward`, config), weights, `${name}.feed_forward_residual`, config);
    }
    return config.norm_position === "pre" ? normalised(x, weights, "decoder_norm", config.norm) : x;
  }

  /** Return the logarithms of the softmax of the logits (nats). */
  logProbs(x) {
    const { data, shape } = this.weights["embedding.weight"];
    return product(x, data, shape, this.weights.output_bias?.data).map((logits) => {
      const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
      const total = highest + Math.log(logits.reduce((sum, value) => sum + Math.exp(value - highest), 0));
      return logits.map((value) => value - total);
    });
  }
}
