// The parts of a layer: linear maps, normalisation, feed-forward. The twin of seq2seq/model/layers.py.
// A matrix of activations is an array of rows (Float32Array), one for each position; `weights` has tensors by name.

/** Return x Wᵀ + b for every row x: one map of the rows, computed weight by weight, so that all rows share a load. */
export function linear(rows, weights, name) {
  const { data, shape } = weights[`${name}.weight`];
  const bias = weights[`${name}.bias`]?.data;
  return product(rows, data, shape, bias);
}

/** Return the products of every row with every row of a matrix, plus a bias: four outputs at a time, over twice as fast. */
export function product(rows, matrix, [outputs, inputs], bias) {
  const results = rows.map(() => new Float32Array(outputs));
  for (let output = 0; output < outputs; output += 4) {
    const width = Math.min(4, outputs - output);
    const [first, second, third, fourth] = [0, 1, 2, 3].map((i) => (output + Math.min(i, width - 1)) * inputs);
    for (let row = 0; row < rows.length; row++) {
      const x = rows[row];
      let [a, b, c, d] = [0, 0, 0, 0];
      for (let i = 0; i < inputs; i++) {
        const value = x[i];
        a += value * matrix[first + i];
        b += value * matrix[second + i];
        c += value * matrix[third + i];
        d += value * matrix[fourth + i];
      }
      const sums = [a, b, c, d];
      for (let i = 0; i < width; i++) results[row][output + i] = sums[i] + (bias ? bias[output + i] : 0);
    }
  }
  return results;
}

export const sum = (values) => values.reduce((a, b) => a + b, 0);

export const add = (rows, others) => rows.map((row, i) => row.map((value, j) => value + others[i][j]));

/** LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019) of every row. */
export function normalised(rows, weights, name, kind) {
  const weight = weights[`${name}.weight`].data;
  const bias = weights[`${name}.bias`]?.data;
  return rows.map((row) => {
    const mean = kind === "layernorm" ? row.reduce((sum, x) => sum + x, 0) / row.length : 0;
    const variance = row.reduce((sum, x) => sum + (x - mean) ** 2, 0) / row.length;
    const factor = 1 / Math.sqrt(variance + (kind === "layernorm" ? 1e-5 : 1e-6));
    return row.map((x, i) => (x - mean) * factor * weight[i] + (bias ? bias[i] : 0));
  });
}

/** A sublayer with its residual connection: post-norm as published, or pre-norm (Xiong et al. 2020). */
export function residual(x, sublayer, weights, name, config) {
  const norm = (rows) => normalised(rows, weights, `${name}.norm`, config.norm);
  return config.norm_position === "pre" ? add(x, sublayer(norm(x))) : norm(add(x, sublayer(x)));
}

const swish = (x) => x / (1 + Math.exp(-x));
const ACTIVATIONS = { relu: (x) => Math.max(0, x), swish, gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2 };

/** Two linear maps with an activation between (Vaswani et al. 2017, eq. 2), or SwiGLU (Shazeer 2020, eq. 6). */
export function feedForward(x, weights, name, { activation }) {
  const up = linear(x, weights, `${name}.up`);
  if (activation !== "swiglu") return linear(up.map((row) => row.map(ACTIVATIONS[activation])), weights, `${name}.down`);
  const gate = linear(x, weights, `${name}.gate`);
  return linear(up.map((row, i) => row.map((value, j) => swish(gate[i][j]) * value)), weights, `${name}.down`);
}

/** The error function to 1.5e-7 (Abramowitz & Stegun 1964, 7.1.26). */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const factors = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  const sum = factors.reduce((total, factor) => (total + factor) * t, 0);
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}
