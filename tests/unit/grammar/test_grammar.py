import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from grammar.corpus import SEEN, SIZES, bare, words

BUNDLED = Path(__file__).parents[3] / "data" / "bundled"


@pytest.fixture(scope="module")
def committed() -> dict[str, list[tuple[str, ...]]]:
    texts = {split: (BUNDLED / f"grammar.{split}.tsv").read_text(encoding="utf-8") for split in SIZES}
    return {split: [tuple(line.split("\t")) for line in text.splitlines()] for split, text in texts.items()}


@pytest.mark.slow
def test_the_documented_command_gives_the_committed_bytes(tmp_path):
    command = [sys.executable, "data/grammar", "--output", str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "1"}, cwd=BUNDLED.parents[1])
    for name in (f"grammar.{split}.tsv" for split in SIZES):
        assert (tmp_path / name).read_bytes() == (BUNDLED / name).read_bytes()


def test_the_files_have_the_promised_sizes_and_one_translation_of_each_sentence(committed):
    assert {split: len(pairs) for split, pairs in committed.items()} == SIZES
    pairs = [pair for split in committed.values() for pair in split]
    assert len({(bare(en), bare(es)) for en, es in pairs}) == len({bare(en) for en, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("language", [0, 1])
def test_no_side_of_a_sentence_is_in_two_splits_or_in_the_everyday_test(committed, language):
    lines = (BUNDLED / "everyday.test.tsv").read_text(encoding="utf-8").splitlines()
    sides = [{bare(pair[language]) for pair in pairs} for pairs in committed.values()]
    sides.append({bare(line.split("\t")[language]) for line in lines})
    assert len(sides[-1]) > 400
    assert sum(map(len, sides)) == len(set().union(*sides))


def test_the_documented_examples_are_in_test_and_their_combinations_not_in_train(committed):
    examples = {
        "The ball is blue.": "La bola es azul.",
        "The black cat drank the milk.": "El gato negro bebió la leche.",
    }
    assert examples.items() <= set(committed["test"])
    train = "\n".join(en.casefold() for en, _ in committed["train"])
    assert not re.search(r"\bblue balls?\b|\bballs? (is|are|was|were|isn't|aren't|wasn't|weren't)( not)? blue", train)
    assert not re.search(r"\bcats?\b[^.?\n]* (drank|drinks?|drinking|drunk) [^.?\n]*\bmilk\b", train)


def test_every_word_of_validation_and_test_is_often_in_train(committed):
    counts = Counter(word for pair in committed["train"] for side in pair for word in words(side))
    for pairs in (committed["validation"], committed["test"]):
        assert min(counts[word] for pair in pairs for side in pair for word in words(side)) >= SEEN
