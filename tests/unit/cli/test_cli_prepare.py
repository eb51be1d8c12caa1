"""Preparation ahead of training, as a user asks for it."""

import re
from pathlib import Path

import pytest

from seq2seq.data import pipeline
from seq2seq.data.prepare import prepare
from seq2seq.settings.compose import compose
from seq2seq.text.vocabulary import FILE
from tests.unit.conftest import one_line_error

pytestmark = pytest.mark.slow

WORDS = ["table", "river", "window", "summer", "friend", "letter", "bottle", "garden", "mountain", "street"]
SENTENCES = [f"The {WORDS[i % 10]} and number {i}." for i in range(160)]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.tsv").write_text("".join(f"{text}\tEs {text}\n" for text in [*SENTENCES, SENTENCES[3]]))
    (tmp_path / "test.tsv").write_text(f"A test.\tUna prueba.\n{SENTENCES[0]}\tOtra.\n")
    files = ("data.train=[train.tsv]", "data.validation=[test.tsv]", "data.test=[test.tsv]")
    return ["data=files", f"data.root={tmp_path}", *files, "tokenizer.vocab_size=300"]


def test_prepare_tells_what_came_of_it_and_training_finds_it(seq2seq, settings, monkeypatch):
    status, out, err = seq2seq("prepare", *settings)
    assert status == 0, err
    assert "cleaning train.tsv" in err
    assert "1 training pairs share a side with test (1 the source, 0 the target)" in err
    assert "duplicate" in out
    assert re.search(r"pairs: train 159, validation 2, test 2\nvocabulary: 300; size: \d+\.\d kB\n", out)
    folder = Path(out.splitlines()[-1].removeprefix("folder: "))
    assert (folder / "train.ids").is_file()
    monkeypatch.setattr(pipeline.Pipeline, "run", None)  # nothing is to be prepared any more
    config = compose([*settings, "model=small", "trainer.max_steps=3", "data.num_proc=2"])
    assert len(prepare(config.data, config.tokenizer).train) == 159
    assert seq2seq("prepare", *settings)[:2] == (0, out)
    shown = seq2seq("prepare", *settings, "training.modifiers.share=0", "--show", "2")[1].removeprefix(out).splitlines()
    texts = ["".join(re.findall(r"(\S+):\d+", line)).replace("▁", " ").strip() for line in shown]
    assert [text[:3] for text in texts] == ["The", "Es ", ""] * 2
    assert all(line.endswith(" </s>:3") for line in shown if line)


def test_text_for_fine_tuning_is_tokenised_by_the_bundle_s_tokenizer(seq2seq, settings: list[str], bundle_folder: Path):
    with_model = [*settings[:-1], f"init={bundle_folder}"]
    status, out, err = seq2seq("prepare", *with_model)
    assert status == 0, err
    folder = Path(out.splitlines()[-1].removeprefix("folder: "))
    assert (folder / "tokenizer.model").read_bytes() == (bundle_folder / FILE).read_bytes()
    assert "leave out tokenizer.vocab_size=9" in seq2seq("prepare", *with_model, "tokenizer.vocab_size=9")[2]


def test_a_wrong_setting_is_one_line(seq2seq, settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "nowhere.tsv does not exist" in one_line_error(seq2seq("prepare", *settings, "data.train=[nowhere.tsv]"))
    monkeypatch.setenv("SEQ2SEQ_HOME", str(tmp_path))
    assert "has no conf/config.yaml: set the environment's SEQ2SEQ_HOME" in seq2seq("prepare")[2]
