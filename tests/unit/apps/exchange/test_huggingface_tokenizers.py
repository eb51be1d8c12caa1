import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks.checkpoints import write_vocabulary
from seq2seq.apps.exchange.huggingface_files import (
    GENERATION,
    SETTINGS,
    TARGET_VOCAB,
    read_json,
    read_tokenizers,
    write_tokenizers,
)
from seq2seq.text.tokenizer import EOS, PAD, UNK
from seq2seq.text.vocabulary import Tokenizers
from tests.refusing import refuses

transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
TATOEBA = Path(__file__).parents[5] / "shared/data/tatoeba/test.tsv"
ODD = [
    "", " ", "The ball is blue.", "  two  spaces ", "tab\tand\u00a0no-break", "ﬁ ligature, ½, １２３", "日本語 😀",
    "a" * 300, "?!...", "O'Brien's \"quotes\" — dashes…", "\u200bzero\u200bwidth", "¿Qué? ¡Sí!", "\u0301accent first",
    ">>spa<< The ball is blue.", ">>xyz<<unknown code", ">>spa", "soft\u00adhyphen", "e\u0301 and é", "\x07bell",
]  # fmt: skip


@pytest.fixture(params=["joint", "separate"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_vocabulary(tmp_path, is_separate=request.param == "separate", codes=(">>spa<<", ">>por<<"))
    return tmp_path


def ours(folder: Path) -> Tokenizers:
    is_shared = not (folder / TARGET_VOCAB).exists()
    return read_tokenizers(folder, read_json(folder / GENERATION), is_shared=is_shared)


def theirs(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package that it does not use here
        return transformers.MarianTokenizer.from_pretrained(str(folder))


def require_same(folder: Path, sources: list[str], targets: list[str]) -> None:
    expected, tokenizers = theirs(folder), ours(folder)
    target = tokenizers.target
    for side, texts, ids_of_texts in (
        (tokenizers.source, sources, expected(sources).input_ids),
        (target, targets, expected(text_target=targets).input_ids),
    ):
        original_ids = side.original_ids
        assert [[original_ids[i] for i in [*row, EOS]] for row in side.encode(texts)] == ids_of_texts
    ids, original_ids = target.encode(targets), target.original_ids
    decoded = [expected.decode([original_ids[i] for i in row], skip_special_tokens=True) for row in ids]
    assert target.decode(ids) == [" ".join(text.split()) for text in decoded]


def test_odd_texts_are_split_and_joined_as_transformers_does(folder: Path):
    require_same(folder, ODD, ODD)


@pytest.mark.slow
@pytest.mark.skipif(not TATOEBA.exists(), reason="the texts of ../shared/data are not here")
def test_everyday_texts_are_split_and_joined_as_transformers_does(folder: Path):
    pairs = [line.split("\t") for line in TATOEBA.read_text(encoding="utf-8").splitlines()[:2000]]
    require_same(folder, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def test_our_first_ids_are_special_and_the_others_keep_their_order(folder: Path):
    for side, file in zip((ours(folder).source, ours(folder).target), ("vocab.json", None), strict=True):
        assert side.tokens([PAD, UNK, EOS]) == ["<pad>", "<unk>", "</s>"]
        order = side.original_ids
        assert sorted(order) == list(range(side.vocab_size))
        rest = [order[2], *order[4:]]
        assert rest == sorted(rest)
        assert side.ids(side.tokens(range(side.vocab_size))) == list(range(side.vocab_size))
        if file:
            known = json.loads((folder / file).read_text())
            assert side.tokens(range(side.vocab_size)) == [sorted(known, key=known.get)[i] for i in order]


DAMAGES = {  # what the message says: a file and its content; None: the file is missing
    "source.spm is missing: give a folder as transformers' save_pretrained leaves it": ("source.spm", None),
    "target.spm is damaged or no SentencePiece model": ("target.spm", "no model"),
    "vocab.json is missing": ("vocab.json", None),
    "vocab.json is damaged: it is no object": ("vocab.json", "[1]"),
    "does not number its 1 subwords from 0 on": ("vocab.json", '{"<pad>": "x"}'),
    "does not number its 4 subwords from 0 on": ("vocab.json", '{"<pad>": 0, "<unk>": 1, "</s>": 2, "a": 4}'),
    "lacks </s>": ("vocab.json", '{"<pad>": 0, "<unk>": 1, "a": 2, "b": 3}'),
    "vocab.json is damaged: all its subwords are special": ("vocab.json", '{"<pad>": 0, "<unk>": 1, "</s>": 2}'),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_vocabulary_is_refused_by_name(tmp_path: Path, message: str):
    write_vocabulary(tmp_path)
    name, content = DAMAGES[message]
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    refuses(message, ours, tmp_path)


def test_the_start_mark_that_is_exported_is_of_the_target_side(tmp_path: Path):
    write_vocabulary(tmp_path, is_separate=True)
    (mark, number) = list(read_json(tmp_path / TARGET_VOCAB).items())[7]
    generation = read_json(tmp_path / GENERATION) | {"decoder_start_token_id": number}
    (tmp_path / "out").mkdir()
    write_tokenizers(tmp_path / "out", read_tokenizers(tmp_path, generation, is_shared=False), "en", "es")
    assert read_json(tmp_path / "out" / SETTINGS)["bos_token"] == mark
