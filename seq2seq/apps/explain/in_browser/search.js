// Beam search over a step function. The twin of seq2seq/search/beam.py: ids, scores and the order of equals are the same.

import { BOS, EOS, PAD, UNK } from "./tokenizer.js";

/** Return the indices of the `count` highest values, the highest first. */
function highest(values, count) {
  const best = [];
  for (let i = 0; i < values.length; i++) {
    if (best.length === count && values[i] <= values[best.at(-1)]) continue;
    let rank = best.length;
    while (rank > 0 && values[best[rank - 1]] < values[i]) rank--;
    best.splice(rank, 0, i);
    best.length = Math.min(best.length, count);
  }
  return best;
}

/**
 * Return the ids of the best finished hypotheses of a source, best first, which is by score / length^α.
 *
 * A live hypothesis is dropped when even its longest continuation could not enter the n best. onStep is called with all
 * candidates of a step: { score, token, parent (rank in the beam), isLive }.
 */
export function beamSearch(model, src, { beam, alpha, maxLength, nBest, banned, onStep }) {
  const memory = model.encode(src);
  const count = beam > 1 ? 2 * beam : 1;
  let live = [{ ids: [], score: 0, past: undefined }];
  let ended = [];
  for (let length = 1; live.length > 0; length++) {
    const lastTokens = live.map(({ ids }) => ids.at(-1) ?? BOS);
    const { logProbs, pasts } = model.step(lastTokens, memory, live.map(({ past }) => past));
    const candidates = logProbs
      .flatMap((row, parent) => {
        for (const token of [PAD, UNK, BOS, ...banned]) row[token] = -Infinity;
        const tokens = length > maxLength ? [EOS] : highest(row, count);
        return tokens.map((token) => ({ score: live[parent].score + row[token], token, parent }));
      })
      .filter(({ score }) => score > -Infinity)
      .sort((a, b) => b.score - a.score)
      .slice(0, count);
    const grown = ({ score, token, parent }) => ({ ids: [...live[parent].ids, token], score, past: pasts[parent] });
    const ends = candidates.slice(0, beam).filter(({ token }) => token === EOS);
    ended = [...ended, ...ends.map((one) => ({ ...grown(one), value: one.score / length ** alpha }))];
    ended = ended.sort((a, b) => b.value - a.value).slice(0, beam);
    const scoreToBeat = ended.length >= nBest ? ended[nBest - 1].value * (maxLength + 1) ** alpha : -Infinity;
    const kept = candidates.filter(({ token }) => token !== EOS).slice(0, beam).filter(({ score }) => score > scoreToBeat);
    onStep?.(candidates.map((one) => ({ ...one, isLive: kept.includes(one) })));
    live = kept.map(grown);
  }
  return ended.slice(0, nBest).map(({ ids }) => ids.slice(0, -1));
}
