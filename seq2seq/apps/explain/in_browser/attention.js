// Multi-head attention: softmax(Q Kᵀ / √c) V in several heads. The twin of seq2seq/model/attention.py and positions.py.

import { linear } from "./layers.js";

/** Return the angle of a position at channels/2 frequencies (radians). */
function angles(position, channels) {
  return Array.from({ length: channels / 2 }, (_, i) => position * 10000 ** ((-2 * i) / channels));
}

/** Return the vector that is added to an embedding (Vaswani et al. 2017, §3.5): sin on even channels, cos on odd ones. */
export function sinusoidal(position, width) {
  return Float32Array.from(angles(position, width).flatMap((angle) => [Math.sin(angle), Math.cos(angle)]));
}

/** Rotate the channels of every head by the position's angles (Su et al. 2021, eq. 34): channel i goes with i + c/2. */
function rotate(row, position, heads) {
  const channels = row.length / heads;
  const result = new Float32Array(row.length);
  angles(position, channels).forEach((angle, i) => {
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    for (let left = i; left < row.length; left += channels) {
      const right = left + channels / 2;
      result[left] = row[left] * cos - row[right] * sin;
      result[right] = row[right] * cos + row[left] * sin;
    }
  });
  return result;
}

/** Return the keys and values of all rows; rotation: the positions of the rows, null: keys are not rotated. */
export function keysValues(x, weights, name, { num_heads: heads }, rotation = null) {
  const keys = linear(x, weights, `${name}.k_proj`);
  return {
    keys: rotation ? keys.map((row, i) => rotate(row, rotation[i], heads)) : keys,
    values: linear(x, weights, `${name}.v_proj`),
  };
}

/**
 * Mix values by the relevance of their keys to each position of x, join the heads and project.
 *
 * memoryOf(row) gives the keys and values that a row may see, and isVisible(row, column) which of these; rotation: as in
 * keysValues; change: what is changed in this attention (heads that are off or average, and the temperature); record is
 * called with all intermediate results.
 */
export function attention(x, weights, name, { num_heads: heads }, { memoryOf, isVisible, rotation = null, change, record }) {
  const channels = x[0].length / heads;
  let queries = linear(x, weights, `${name}.q_proj`);
  if (rotation) queries = queries.map((row, i) => rotate(row, rotation[i], heads));
  const factors = Array.from({ length: heads }, (_, head) => (change.average.has(head) ? 0 : 1 / change.temperature));
  queries = queries.map((row) => row.map((value, i) => value * factors[Math.floor(i / channels)]));
  const shares = queries.map((query, row) => {
    const { keys } = memoryOf(row);
    return factors.map((_, head) => softmax(keys.map((key, column) => {
      if (!isVisible(row, column)) return -Infinity;
      let sum = 0;
      for (let i = head * channels; i < (head + 1) * channels; i++) sum += query[i] * key[i];
      return sum / Math.sqrt(channels);
    })));
  });
  const joined = shares.map((ofHeads, row) => {
    const mixture = new Float32Array(heads * channels);
    const { values } = memoryOf(row);
    ofHeads.forEach((ofKeys, head) => ofKeys.forEach((share, column) => {
      if (share === 0) return;
      for (let i = head * channels; i < (head + 1) * channels; i++) mixture[i] += share * values[column][i];
    }));
    return mixture;
  });
  const isOn = (i) => !change.off.has(Math.floor(i / channels));
  const output = linear(joined.map((row) => row.map((value, i) => (isOn(i) ? value : 0))), weights, `${name}.out_proj`);
  record?.({ x, queries, shares, joined, output, memory: memoryOf(0), isVisible, isOn });
  return output;
}

/** Return positive shares that sum to 1; a row that may see nothing gets zeros. */
function softmax(scores) {
  const highest = Math.max(...scores);
  if (highest === -Infinity) return scores.map(() => 0);
  const exponentials = scores.map((score) => Math.exp(score - highest));
  const sum = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((value) => value / sum);
}
