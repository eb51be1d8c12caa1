"""The words of a run's target text are read from its prepared text once, and from their own file after that."""

from dataclasses import asdict
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from seq2seq.data.prepare import prepare
from seq2seq.settings.config import Config
from seq2seq.training.final_scores import WORDS, target_words, words_of_run
from tests.toy import write_pairs


@pytest.fixture
def config(tmp_path: Path) -> Config:
    pairs = [(f"Number {i} is at x{i}@a.org today", f"El NÚMERO {i} está en x{i}@a.org, ¿o'no?") for i in range(300)]
    write_pairs(tmp_path / "train.tsv", pairs)
    config = Config()
    config.data.root, config.data.cache, config.data.train = str(tmp_path), str(tmp_path / "cache"), ["train.tsv"]
    config.data.held_out, config.tokenizer.masks = 10, 1
    return config


def test_words_are_written_beside_the_prepared_text_which_stays_valid(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump(asdict(config)), encoding="utf-8")
    assert words_of_run(run) is None  # nothing is prepared for it
    prepared = prepare(config.data, config.tokenizer).folder
    before = {path.name: path.read_bytes() for path in prepared.iterdir()}
    words = {"el", "número", "está", "en", "o'no"}
    assert set(words_of_run(run) or ()) == words
    assert (prepared / WORDS).read_text(encoding="utf-8").split() == sorted(words)
    (prepared / WORDS).write_text("otra\n", encoding="utf-8")
    assert target_words(prepared, "es") == {"otra"}
    assert target_words(prepared, "zh") is None
    (prepared / WORDS).unlink()
    assert prepare(config.data, config.tokenizer).folder == prepared
    assert {path.name: path.read_bytes() for path in prepared.iterdir()} == before
    (tmp_path / "train.tsv").unlink()
    assert words_of_run(run) is None


def test_a_cache_that_cannot_be_written_still_gives_its_words(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(config.data, config.tokenizer).folder

    monkeypatch.setattr("seq2seq.training.final_scores.write_text", Mock(side_effect=PermissionError))
    assert "número" in (target_words(prepared, "es") or ())
    assert not (prepared / WORDS).exists()
