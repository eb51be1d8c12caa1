// The model in a Web Worker: unpacks its file, then answers what the page would ask a server.

import { differs } from "./agreement.js";
import { Translator } from "./explanation.js";
import { Tokenizer } from "./tokenizer.js";
import { Transformer } from "./transformer.js";

/** Read a packed model (seq2seq/apps/explain/model_page.py): the length of a JSON header, the header, the tensors. */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const weights = {};
  for (const { name, shape, start, scales } of header.tensors) {
    const size = shape.reduce((a, b) => a * b, 1);
    const at = 4 + length + start;
    if (scales === null) {
      weights[name] = { shape, data: new Float32Array(buffer.slice(at, at + 4 * size)) };
      continue;
    }
    const [bytes, factors] = [new Int8Array(buffer, at, size), new Float32Array(buffer.slice(4 + length + scales, 4 + length + scales + 4 * shape[0]))];
    const data = new Float32Array(size);
    for (let i = 0; i < size; i++) data[i] = bytes[i] * factors[Math.floor(i / shape[1])];
    weights[name] = { shape, data };
  }
  const [source, target] = [header.source, header.target ?? header.source].map((vocabulary) => new Tokenizer(vocabulary));
  const { config, search, longest, example } = header;
  return new Translator({ model: new Transformer(config, weights), source, target, search, longest, example });
}

/** Return the bytes of gzip in base64. */
async function inflate(text) {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < packed.length; i++) packed[i] = binary.charCodeAt(i); // Uint8Array.from needs ten times the memory
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

const ABBREVIATION = /(?:^|[\s("])(?:\p{Lu}|\d+|Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|No|vs|etc|e\.g|i\.e)\.\s*$/u;

/** Cut a line into sentences, with the space behind them; a sentence that is too long is cut at clauses or words. */
function cut(line, language, translator) {
  const sentences = [];
  for (const { segment } of new Intl.Segmenter(language, { granularity: "sentence" }).segment(line)) {
    const goesOn = sentences.length > 0 && (ABBREVIATION.test(sentences.at(-1)) || /^["'(]*\p{Ll}/u.test(segment));
    if (goesOn) sentences.push(sentences.pop() + segment);
    else sentences.push(segment);
  }
  return sentences.flatMap((sentence) => shorten(sentence, translator));
}

function shorten(text, translator) {
  if (translator.source.encode(text).length <= translator.longest) return [text];
  const [clauses, words] = [/(?<=[,;:]\s)/u, /(?<=\s)/u].map((end) => text.split(end));
  const parts = clauses.length > 1 ? clauses : words.length > 1 ? words : [...text];
  const middle = Math.ceil(parts.length / 2);
  return [parts.slice(0, middle), parts.slice(middle)].flatMap((half) => shorten(half.join(""), translator));
}

const ANSWERS = {
  check({ model, example }) {
    return { differs: example !== null && differs(model, example) };
  },
  translate(translator, { q: text, source, alternatives }) {
    const [language] = source.split(/[-_]/);
    const parts = text.split(/(\n)/).flatMap((line) => (line === "\n" ? [line] : cut(line, language, translator)));
    const ranked = parts.map((part) => (part.trim() ? translator.translate(part, 1 + alternatives) : null));
    const join = (rank) => parts.map((part, i) => (ranked[i] ? part.replace(part.trim(), () => (ranked[i][rank] ?? ranked[i].at(-1)).text) : part)).join("");
    const texts = [...new Set(Array.from({ length: 1 + alternatives }, (_, rank) => join(rank)))];
    return { translatedText: texts[0], alternatives: texts.slice(1), sentences: parts.map((part) => part.trim()).filter(Boolean) };
  },
  explain(translator, values) {
    const { explanation, ...data } = translator.explain(values);
    return { ...explanation, ...data };
  },
};

let loaded = null;
globalThis.onmessage = async ({ data: { id, path, values, model } }) => {
  try {
    if (model) loaded = inflate(model).then(unpack);
    const translator = await loaded;
    globalThis.postMessage({ id, answer: path ? ANSWERS[path](translator, values) : {} });
  } catch (error) {
    globalThis.postMessage({ id, error: error.message });
  }
};
