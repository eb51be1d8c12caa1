"""One tokenizer for both sides or one for each: learned, kept in a folder, described for the cache."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.checkpoints import write_vocabulary
from seq2seq.errors import UserError
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.tokenizer import BOS, PAD, UNK, Tokenizer
from seq2seq.text.vocabulary import (
    TokenizerPair,
    Tokenizers,
    describe_tokenizers,
    learn_tokenizers,
    load_tokenizers,
    read_files,
    tokenizer_files,
    write_files,
)

FILE = Path(__file__).parents[3] / "data/bundled/everyday.train.tsv"
PAIRS = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()[:300]]
ENGLISH, SPANISH = ([pair[side] for pair in PAIRS] for side in (0, 1))


def pairs() -> Iterable[tuple[str, str]]:
    return zip(ENGLISH, SPANISH, strict=True)


def learned(**changes: Any) -> Tokenizers:
    return learn_tokenizers(pairs, TokenizerConfig(**{"vocab_size": 400, "character_coverage": 1.0, **changes}), 320)


def test_one_tokenizer_learns_both_sides_and_two_one_each():
    joint, pair = learned(), learned(joint=False)
    assert isinstance(joint, Tokenizer)
    assert joint.source is joint.target is joint
    assert joint.is_shared
    assert joint.sizes == (400, None)
    assert isinstance(pair, TokenizerPair)
    assert not pair.is_shared
    assert pair.sizes == (400, 400)
    assert (pair.start, pair.unproducible) == (BOS, (PAD, UNK, BOS))
    of_source, of_target = (set(side.tokens(range(400))) for side in (pair.source, pair.target))
    assert "¿" not in of_source  # English has none, so the other bytes of the alphabet spell it
    assert "¿" in "".join(of_target)
    assert of_source != of_target


def test_a_size_that_was_not_chosen_gives_way_on_each_side():
    pair = learn_tokenizers(pairs, TokenizerConfig(joint=False), 32_000)
    sizes = pair.sizes
    assert all(size is not None and size < 1_500 for size in sizes)
    assert sizes[0] != sizes[1]
    with pytest.raises(UserError, match="larger than the training text can fill"):
        learned(vocab_size=32_000, joint=False)


@pytest.mark.parametrize("kind", ["joint", "pair", "marian"])
def test_a_folder_keeps_them(tmp_path: Path, kind: str):
    (tmp_path / "a").mkdir()
    if kind == "marian":
        write_vocabulary(tmp_path / "a")
    else:
        write_files(tmp_path / "a", learned(joint=kind == "joint"))
    found = load_tokenizers(tmp_path / "a")
    assert read_files(tmp_path / "a") == found.files
    assert sorted(tokenizer_files(tmp_path / "a")) == sorted(found.files)
    (tmp_path / "b").mkdir()
    write_files(tmp_path / "b", found)
    again = load_tokenizers(tmp_path / "b")
    other = pickle.loads(pickle.dumps(found))
    for one in (again, other):
        assert (one.digest, one.sizes, one.start, one.unproducible) == (
            found.digest, found.sizes, found.start, found.unproducible
        )  # fmt: skip
        assert one.source.encode(ENGLISH) == found.source.encode(ENGLISH)
        assert one.target.encode(SPANISH) == found.target.encode(SPANISH)


def test_the_digest_depends_on_which_side_is_which():
    pair = learned(joint=False)
    assert isinstance(pair.source, Tokenizer)
    assert isinstance(pair.target, Tokenizer)
    files = {"source.model": pair.target.model_bytes, "target.model": pair.source.model_bytes}
    assert TokenizerPair(pair.target, pair.source, files).digest != pair.digest


def test_a_finished_tokenizer_is_taken_instead_of_training_one(tmp_path: Path):
    tokenizer, file = learned(), tmp_path / "tokenizer.model"
    write_files(tmp_path, tokenizer)
    settings = TokenizerConfig(model=str(file))
    assert learn_tokenizers(list, settings, 0).digest == tokenizer.digest
    described = describe_tokenizers(settings)
    assert str(file) not in str(described)
    write_files(tmp_path, learned(vocab_size=390))
    assert describe_tokenizers(settings) != described
    with pytest.raises(UserError, match=r"has no tokenizer.user_symbols=\['<bt>'\]: leave them out"):
        learn_tokenizers(list, TokenizerConfig(model=str(file), user_symbols=["<bt>"]), 0)
    with pytest.raises(UserError, match=r"none.model cannot be read"):
        describe_tokenizers(TokenizerConfig(model=str(tmp_path / "none.model")))
    with pytest.raises(UserError, match=r"leave out tokenizer.joint"):
        TokenizerConfig(model=str(file), joint=False)


def test_one_tokenizer_is_described_as_before_there_could_be_two():
    assert "joint" not in describe_tokenizers(TokenizerConfig())
    assert describe_tokenizers(TokenizerConfig(joint=False))["joint"] is False


def test_a_folder_without_tokenizer_is_refused_by_name(tmp_path: Path):
    with pytest.raises(UserError, match=r"tokenizer.model cannot be read \(No such file"):
        load_tokenizers(tmp_path)
    write_files(tmp_path, learned(joint=False))
    (tmp_path / "target.model").unlink()
    with pytest.raises(UserError, match=r"target.model cannot be read \(No such file"):
        load_tokenizers(tmp_path)
