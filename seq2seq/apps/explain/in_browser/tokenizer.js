// Text to subwords and back: the twin of seq2seq/text/tokenizer.py and of SentencePiece (Kudo & Richardson 2018).

export const PAD = 0;
export const UNK = 1;
export const BOS = 2;
export const EOS = 3;
const SPACE = "▁"; // begins every subword that begins a word
const UNKNOWN_PENALTY = 10; // below the lowest score, for a character without a subword
// as seq2seq/text/normalise.py: controls, soft hyphen, zero-width space, marks of direction and order
const INVISIBLE = /[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g; // eslint-disable-line no-control-regex
const WHITE_SPACE = /[\s\x1c-\x1f\x85]+/g; // eslint-disable-line no-control-regex

/** Return text in Unicode's form NFC, with single spaces and without invisible characters. */
export function normalise(text) {
  const visible = text.toWellFormed().replaceAll(SPACE, "_").replace(INVISIBLE, "");
  return visible.replace(WHITE_SPACE, " ").trim().normalize("NFC");
}

/** A vocabulary: pieces are its subwords by id, scores their log-probabilities or the order of merges, bytes the ids of bytes. */
export class Tokenizer {
  constructor({ pieces, scores, symbols, bytes, isBpe }) {
    Object.assign(this, { pieces, scores, symbols, isBpe });
    this.byteOf = new Map(bytes.map((id) => [id, parseInt(pieces[id].slice(3, -1), 16)])); // <0x41>
    this.idOfByte = new Map([...this.byteOf].map(([id, byte]) => [byte, id]));
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).filter(([, id]) => id > EOS && !this.byteOf.has(id)));
    this.longest = Math.max(...pieces.map((piece) => [...piece].length));
    const symbolsFirst = [...symbols].sort((a, b) => b.length - a.length).map((symbol) => symbol.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
    this.character = new RegExp([...symbolsFirst, "."].join("|"), "gsu");
    this.unknownScore = Math.min(...scores.slice(EOS + 1)) - UNKNOWN_PENALTY;
  }

  /** Return the ids of a text, without marks for its start and end; none for a text without words. */
  encode(text) {
    const normal = normalise(text);
    if (!normal) return [];
    const characters = `${SPACE}${normal.replaceAll(" ", SPACE)}`.match(this.character); // a symbol is never split
    const ids = (this.isBpe ? this.merge(characters) : this.cutLikeliest(characters)).flatMap((piece) => this.idsOf(piece));
    return ids.filter((id, i) => id !== UNK || ids[i - 1] !== UNK); // neighbouring unknown characters are one subword
  }

  /** Unigram (Kudo 2018): return the subwords whose sum of scores is the highest, by Viterbi's algorithm. */
  cutLikeliest(characters) {
    const best = [{ score: 0, start: 0 }]; // the best way to write so many characters
    for (let start = 0; start < characters.length; start++) {
      let piece = "";
      for (let end = start + 1; end <= characters.length && end - start <= this.longest; end++) {
        piece += characters[end - 1];
        const isKnown = this.ids.has(piece);
        if (!isKnown && end - start > 1) continue;
        const score = Math.fround(best[start].score + (isKnown ? this.scores[this.ids.get(piece)] : this.unknownScore));
        if (best[end] === undefined || score > best[end].score) best[end] = { score, start, isKnown };
      }
    }
    const pieces = [];
    for (let end = characters.length; end > 0; end = best[end].start) pieces.push(characters.slice(best[end].start, end).join(""));
    return pieces.reverse();
  }

  /** Byte-pair encoding (Sennrich et al. 2016): merge the neighbours whose subword has the highest score, again and again. */
  merge(characters) {
    const pieces = [...characters];
    for (;;) {
      let best = -1;
      let highest = -Infinity;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const id = this.ids.get(pieces[i] + pieces[i + 1]);
        if (id !== undefined && this.scores[id] > highest) [best, highest] = [i, this.scores[id]];
      }
      if (best < 0) return pieces;
      pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
    }
  }

  /** Return the id of a subword, or the ids of the bytes of a character that has none. */
  idsOf(piece) {
    const id = this.ids.get(piece);
    if (id !== undefined) return [id];
    const bytes = [...new TextEncoder().encode(piece)].map((byte) => this.idOfByte.get(byte));
    return bytes.includes(undefined) ? [UNK] : bytes;
  }

  /** Return the text of ids in one line, without marks. */
  decode(ids) {
    let text = "";
    let bytes = [];
    const write = () => {
      text += decodeBytes(bytes);
      bytes = [];
    };
    for (const id of ids.filter((id) => id > EOS)) {
      if (this.byteOf.has(id)) bytes.push(this.byteOf.get(id));
      else {
        write();
        text += this.pieces[id];
      }
    }
    write();
    return normalise(text.replaceAll(SPACE, " "));
  }

  /** Return the subwords of ids. */
  tokens(ids) {
    return ids.map((id) => this.pieces[id]);
  }

  /** Return the words of ids as {text, pieces}: pieces are positions; each position in marks is its own word. */
  words(ids, marks) {
    const groups = [];
    ids.forEach((id, position) => {
      const isNew = groups.length === 0 || groups.at(-1).isMark || marks.has(position) || this.pieces[id].startsWith(SPACE);
      if (isNew) groups.push({ isMark: marks.has(position), pieces: [position] });
      else groups.at(-1).pieces.push(position);
    });
    return groups.map(({ isMark, pieces }) => {
      const own = pieces.map((position) => ids[position]);
      return { text: (isMark ? "" : this.decode(own)) || this.tokens(own).join(""), pieces };
    });
  }
}

/** Return the text of bytes in UTF-8; each byte that is no part of a character becomes U+FFFD. */
function decodeBytes(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    let [character, length] = ["\ufffd", 1];
    for (let size = 1; size <= 4 && character === "\ufffd"; size++) {
      try {
        [character, length] = [decoder.decode(new Uint8Array(bytes.slice(at, at + size))), size];
      } catch {
        // no character yet
      }
    }
    text += character;
    at += length;
  }
  return text;
}
