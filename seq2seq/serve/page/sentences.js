// Cuts what is typed into sentences, for what is shown of one at a time. Translates nothing.

/** The sentences of a text in a language. */
export function sentencesOf(text, language) {
  const lines = text.split("\n");
  const cut = (line) =>
    "Segmenter" in Intl ? [...new Intl.Segmenter(language, { granularity: "sentence" }).segment(line)].map((one) => one.segment) : [line];
  return lines.flatMap(cut).map((sentence) => sentence.trim()).filter((sentence) => /\p{L}|\p{N}/u.test(sentence));
}
