"""The bundled corpus: sentences drawn from all patterns, split so that test and validation show new combinations."""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from grammar.agreement import Tense, Text
from grammar.clauses import Clause
from grammar.draw import Draw
from grammar.pair import Pair, said
from grammar.patterns import PATTERNS
from grammar.patterns.common import describe
from grammar.phrases import Combination, as_object
from grammar.reading import load_lexicon

SEED = 20240501
SIZES = {"train": 24_000, "validation": 500, "test": 1_000}
HELD_OUT: dict[Combination, str] = {("ball", "blue"): "test", ("cat", "drink", "milk"): "test"}
SHARE = {"test": 5, "validation": 3}  # percent of all combinations
RESERVED = {"my head hurts"}  # sentences of everyday.test.tsv, which train must not show
SEEN = 8  # a word of test or validation occurs so often in train


@dataclass
class Splits:
    """Pairs by split, in the order drawn."""

    pairs: dict[str, list[Pair]] = field(default_factory=lambda: {split: [] for split in SIZES})
    spanish: dict[str, str] = field(default_factory=dict)  # English side -> Spanish side, both bare

    def add(self, pair: Pair) -> bool:
        """File a pair under its split; False if it is old, reserved or shows combinations of two held-out splits."""
        en, es = bare(pair.text.en), bare(pair.text.es)
        if en in self.spanish:
            assert self.spanish[en] == es, f"two translations of {pair.text.en!r}: {self.spanish[en]!r}, {es!r}"
            return False
        held_out = {split_of(combination) for combination in pair.combinations} - {"train"}
        if len(held_out) > 1 or en in RESERVED:
            return False
        self.spanish[en] = es
        self.pairs[held_out.pop() if held_out else "train"].append(pair)
        return True


def generate(seed: int = SEED, sizes: dict[str, int] | None = None) -> dict[str, list[Text]]:
    """Make the corpus: for each split its sentence pairs.

    Args:
        seed: start of the random numbers; the same seed gives the same corpus.
        sizes: pairs per split.
    """
    sizes = sizes or SIZES
    draw, splits = Draw(load_lexicon(), seed), Splits()
    for pair in examples(draw):
        splits.add(pair)
    functions, weights = zip(*PATTERNS, strict=True)
    while len(splits.pairs["train"]) < sizes["train"]:
        splits.add(draw.rng.choices(functions, weights)[0](draw))
    train = [pair.text for pair in splits.pairs["train"]]
    chosen = {"train": train}
    taken = {bare(text.es) for text in train}
    counts = Counter(word for text in train for word in (*words(text.en), *words(text.es)))
    for split in ("test", "validation"):
        texts = [pair.text for pair in splits.pairs[split] if bare(pair.text.es) not in taken]
        known = [text for text in texts if all(counts[word] >= SEEN for word in (*words(text.en), *words(text.es)))]
        assert len(known) >= sizes[split], (
            f"{split} has {len(known)} sentences, {sizes[split]} wanted: raise SHARE[{split!r}]"
        )
        chosen[split] = known[: sizes[split]]
        taken |= {bare(text.es) for text in chosen[split]}
    return chosen


def examples(draw: Draw) -> list[Pair]:
    """Build the two sentences that the documentation translates; their combinations are held out for the test."""
    words_of, build = draw.lexicon, draw.nominals.build
    ball, cat, milk = (words_of.nouns[word] for word in ("ball", "cat", "milk"))
    blue = describe(draw, build(ball), words_of.adjective("blue"))
    drink = next(verb for verb in words_of.verbs if verb.en == "drink")
    subject, thing = build(cat, adjective=words_of.adjective("black")), build(milk)
    drank = Clause(subject, drink, Tense.PAST, as_object(thing))
    blue = Clause(blue.subject, blue.verb, Tense.PRESENT, blue.after)
    return [
        said(draw.clauses.statement(blue), ("ball", "blue")),
        said(draw.clauses.statement(drank), ("cat", "drink", "milk"), phrases=(subject,)),
    ]


def split_of(combination: Combination) -> str:
    """Decide by a hash of the words which split a combination belongs to."""
    if combination in HELD_OUT:
        return HELD_OUT[combination]
    percent = int.from_bytes(hashlib.sha256("\t".join(combination).encode()).digest()[:4]) % 100
    for split, share in SHARE.items():
        if percent < share:
            return split
        percent -= share
    return "train"


def bare(sentence: str) -> str:
    """Take off what does not tell sentences apart: case and punctuation."""
    return " ".join(words(sentence))


def words(sentence: str) -> list[str]:
    """List a sentence's words, casefolded."""
    return re.findall(r"[\w'-]+", sentence.casefold())


def write(folder: Path, corpus: dict[str, list[Text]]) -> list[Path]:
    """Write grammar.SPLIT.tsv files (English, tab, Spanish) and say which."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, texts in corpus.items():
        path = folder / f"grammar.{split}.tsv"
        path.write_text("".join(f"{text.en}\t{text.es}\n" for text in texts), encoding="utf-8", newline="\n")
        paths.append(path)
    return paths
