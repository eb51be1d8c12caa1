// Compares this model with the one that it was made from, on a fixed example. The twin of seq2seq/model/decoders.py.

/** Return whether this model gives a token of the targets another log-probability than the example has. */
export function differs(model, { sources, targets, scores, tolerance }) {
  return sources.some((src, row) => {
    const [memory, ids] = [model.encode(src), targets[row]];
    const read = model.read(ids.slice(0, -1), memory);
    let pasts = [];
    return ids.slice(1).some((token, i) => {
      const step = model.step([ids[i]], memory, pasts);
      pasts = step.pasts;
      return ![step.logProbs[0], read[i]].every((logProbs) => Math.abs(logProbs[token] - scores[row][i]) <= tolerance);
    });
  });
}
