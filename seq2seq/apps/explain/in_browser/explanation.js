// Everything that a page shows of one sentence, as JSON values: the twin of seq2seq/apps/explain/page.py. What only
// programs read (the format's version, the alignment) is left out.

import { contrast } from "./contrast.js";
import { sum } from "./layers.js";
import { beamSearch } from "./search.js";
import { BOS, EOS, normalise } from "./tokenizer.js";

const PARTS = ["encoder", "decoder", "cross"];
const MAX_SUBWORDS = 100; // per side, with the end mark; a larger map is unreadable
const SHOWN_CHANNELS = 8; // of vectors as wide as the model

/** Return JSON values with rounded numbers. */
function rounded(value, decimals) {
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return Array.from(value, (one) => rounded(one, decimals));
  if (Number.isFinite(value)) return Math.round(value * 10 ** decimals) / 10 ** decimals;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, rounded(one, decimals)]));
}

/** A model, its vocabularies and its settings of the search: what a bundle holds. */
export class Translator {
  constructor(parts) {
    Object.assign(this, parts); // { model, source, target, search, longest, example }
  }

  /** Return up to nBest translations of one sentence: { ids, text }, the best first. */
  translate(text, nBest = 1, model = this.model, onStep = undefined) {
    const ids = this.source.encode(text);
    if (ids.length === 0) return [{ ids: [], text: "" }];
    const { beam, length_penalty: alpha, max_length_ratio: ratio, max_length_offset: offset } = this.search;
    const maxLength = Math.trunc(Number((ids.length * ratio + offset).toFixed(6)));
    const banned = this.target.symbols.map((symbol) => this.target.ids.get(symbol));
    const settings = { beam, alpha, maxLength, nBest: Math.min(nBest, beam), banned, onStep };
    return beamSearch(model, [...ids, EOS], settings).map((best) => ({ ids: best, text: this.target.decode(best) }));
  }

  /** Return the explanation of a sentence and its translation (null: the model's own), as `/explain` of the server does. */
  explain({ source, target = null, layer = 0, head = 0, word = 0, other = null, ...changes }) {
    const { without = [], average = [], temperature = 1 } = changes;
    const interventions = { without, average, temperature };
    const isChanged = without.length + average.length > 0 || temperature !== 1;
    const src = this.encodeShort(this.source, source, "sentence");
    const model = isChanged ? this.model.changed(interventions, this.hiddenPositions(src, without)) : this.model;
    const { best, ...beams } = this.beams(model, source);
    const shown = this.look(model, source, src, target, best);
    const explanation = { ...shown.explanation };
    if (isChanged) {
      const usual = this.look(this.model, source, src, target).explanation;
      explanation.interventions = interventions;
      explanation.unchanged = { target: usual.target, log_prob: rounded(sum(usual.log_probs), 4) };
    }
    const { config } = this.model;
    const sizes = { encoder: config.num_encoder_layers, decoder: config.num_decoder_layers, cross: config.num_decoder_layers };
    const walks = PARTS.filter((part) => layer < sizes[part]).map((part) => this.walk(model, shown, part, layer, head));
    const data = { explanation, walks, beams };
    if (other !== null) data.contrast = rounded(contrast({ ...this, model }, { src, tgt: shown.ids.target, words: explanation.words }, word, other), 4);
    return data;
  }

  encodeShort(tokenizer, text, name) {
    const ids = tokenizer.encode(text);
    if (ids.length === 0) throw new Error(`the ${name} is empty: give one with words`);
    return this.requireShort(ids, name);
  }

  requireShort(ids, name) {
    const limit = MAX_SUBWORDS - 1;
    if (ids.length > limit) throw new Error(`the ${name} has ${ids.length} subwords, and attention is shown for at most ${limit}: shorten it`);
    return [...ids, EOS];
  }

  hiddenPositions(src, without) {
    const words = this.source.words(src, new Set([src.length - 1]));
    return words.flatMap(({ pieces }, i) => (without.includes(`source.${i + 1}`) ? pieces : []));
  }

  /** Read a sentence and its translation (target null: the best one); return the explanation and all that was recorded. */
  look(model, source, src, target, best = null) {
    const own = target === null ? (best ?? this.translate(source, 1, model)[0]) : null;
    const tgt = own ? this.requireShort(own.ids, "model's translation") : this.encodeShort(this.target, target, "target");
    const [tgtIn, last] = [[BOS, ...tgt.slice(0, -1)], tgt.length - 1];
    const calls = { encoder: [], decoder: [], cross: [] };
    const record = (part, layer) => (call) => (calls[part][layer] = call);
    const memory = model.encode(src, record);
    const logProbs = model.read(tgtIn, memory, record).map((row, i) => row[tgt[i]]);
    const words = {
      source: this.source.words(src, new Set([src.length - 1])),
      read: this.target.words(tgtIn, new Set([0])),
      target: this.target.words(tgt, new Set([last])),
    };
    const axes = { encoder: ["source", "source"], decoder: ["read", "read"], cross: ["target", "source"] };
    const byHead = (part) => calls[part].map(({ shares }) => shares[0].map((_, head) => shares.map((row) => row[head])));
    const attention = Object.fromEntries(PARTS.map((part) => [part, byHead(part)]));
    const each = (work) => Object.fromEntries(PARTS.map((part) => [part, attention[part].map((layer) => layer.map((weights) => work(weights, part)))]));
    const byWord = each((weights, part) => overWords(weights, ...axes[part].map((axis) => words[axis])));
    const explanation = {
      source: normalise(source),
      target: own ? own.text : normalise(target),
      translated: own !== null,
      architecture: "transformer",
      pieces: { source: this.source.tokens(src), target_in: this.target.tokens(tgtIn), target_out: this.target.tokens(tgt) },
      words: { source: words.source, target: words.target },
      ...rounded({ attention, by_word: byWord, heads: each(statistics), log_probs: logProbs }, 4),
    };
    return { explanation, calls, ids: { source: src, read: tgtIn, target: tgt } };
  }

  /** Return the steps of one head, as seq2seq/apps/explain/steps.py. */
  walk(model, { calls, ids }, part, layer, head) {
    const call = calls[part][layer];
    const [side, ofRows] = part === "encoder" ? ["source", ids.source] : ["target", ids.read];
    const columns = part === "decoder" ? this.target.tokens(ids.read) : this.source.tokens(ids.source);
    const channels = model.config.d_model / model.config.num_heads;
    const ofHead = (rows) => rows.map((row) => row.slice(head * channels, (head + 1) * channels));
    const [queries, keys] = [ofHead(call.queries), ofHead(call.memory.keys)];
    const scores = queries.map((query) => keys.map((key) => sum(Array.from(query, (value, i) => value * key[i]))));
    const mask = scores.map((row, i) => row.map((_, j) => call.isVisible(i, j)));
    const { rows: embedding, added } = model.embedded(ofRows, side, ofRows.map((_, i) => i));
    const wide = (rows) => rows && rows.map((row) => row.slice(0, SHOWN_CHANNELS));
    const walk = {
      part, layer, head, columns, queries, keys, scores, mask, channels, d_model: model.config.d_model,
      rows: this[side].tokens(ofRows),
      embedding: wide(embedding), position: wide(added), input: wide(call.x), joined: wide(call.joined), output: wide(call.output),
      values: ofHead(call.memory.values),
      scaled: scores.map((row, i) => row.map((score, j) => (mask[i][j] ? score / Math.sqrt(channels) : null))),
      weights: call.shares.map((row) => row[head]),
      mixture: ofHead(call.joined),
    };
    return rounded(walk, 6);
  }

  /** Return every step of the search, as seq2seq/apps/explain/steps.py, and the best translation. */
  beams(model, source) {
    const { beam, length_penalty: alpha } = this.search;
    const hypotheses = new Map([[null, { ids: [], score: 0 }]]);
    const [steps, finished] = [[], []];
    let ranks = [null];
    const onStep = (candidates) => {
      const first = hypotheses.size;
      const described = candidates.map(({ score, token, parent, isLive }, rank) => {
        const before = hypotheses.get(ranks[parent]);
        const ids = [...before.ids, token];
        const [id, text] = [first + rank, this.target.decode(ids)];
        hypotheses.set(id, { ids, score });
        const isFinished = token === EOS && rank < beam;
        if (isFinished) finished.push({ id, text, normalised_score: score / ids.length ** alpha });
        const fate = isFinished ? "finished" : isLive ? "kept" : "dropped";
        return { id, parent: ranks[parent], piece: this.target.pieces[token], text, log_prob: score - before.score, score, fate };
      });
      steps.push({ candidates: described });
      ranks = candidates.map(({ isLive }, rank) => (isLive ? first + rank : null)).filter((id) => id !== null);
    };
    const [best] = this.translate(source, 1, model, onStep);
    const result = finished.sort((a, b) => b.normalised_score - a.normalised_score);
    return { beam, length_penalty: alpha, ...rounded({ steps, result }, 6), best };
  }
}

/** Return weights over words: summed over each word's keys, averaged over each word's queries. */
function overWords(weights, rows, columns) {
  return rows.map((row) => columns.map((column) => sum(row.pieces.map((i) => sum(column.pieces.map((j) => weights[i][j])))) / row.pieces.length));
}

/** Return a head's entropy, distance and share on the diagonal, as `HeadStatistics` of seq2seq/apps/explain/explanation.py. */
function statistics(weights) {
  const slope = (weights[0].length - 1) / Math.max(1, weights.length - 1);
  const mean = (ofRow) => sum(weights.map(ofRow)) / weights.length;
  return {
    entropy: mean((row) => -sum(row.map((weight) => (weight > 0 ? weight * Math.log(weight) : 0)))),
    distance: mean((row, i) => sum(row.map((weight, j) => weight * Math.abs(j - i * slope)))),
    diagonal: mean((row, i) => row[Math.floor(i * slope + 0.5)]),
  };
}
