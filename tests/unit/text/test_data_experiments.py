"""The experiments about data do to the bundled corpus what the papers they name say."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from seq2seq.settings.compose import from_hydra, register_schema
from seq2seq.settings.config import Config
from seq2seq.text import loading
from seq2seq.text.batching import Batch
from seq2seq.text.dataset import PreparedData
from seq2seq.text.loading import training_feed, validation_loaders
from seq2seq.text.prepare import prepare
from seq2seq.text.tokenizer import SPECIAL_IDS

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
Pair = tuple[str, str]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A part of the bundled corpus under its own names: 1,000 and 60 pairs."""
    monkeypatch.setattr(loading, "read_ahead", lambda sources, start: sources[0](start))
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    sizes = {"grammar.train": 1000, "everyday.train": 60, "grammar.validation": 40}
    for name, size in {**sizes, "grammar.test": 10, "everyday.test": 10}.items():
        text = (REPOSITORY / "data" / "bundled" / f"{name}.tsv").read_text(encoding="utf-8")
        (tmp_path / f"{name}.tsv").write_text("".join(text.splitlines(keepends=True)[:size]), encoding="utf-8")
    return tmp_path


def load(corpus: Path, experiment: str, *overrides: str) -> tuple[Config, PreparedData]:
    register_schema()
    small = [f"data.root={corpus}", "tokenizer.vocab_size=400", "training.max_tokens=600", "data.remove_overlap=false"]
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base=None):
        config = from_hydra(compose("config", overrides=[f"experiment={experiment}", *small, *overrides]))
    return config, prepare(config.data, config.tokenizer)


def draw(config: Config, data: PreparedData, pairs: int) -> list[Pair]:
    """The texts of the first training pairs, at least so many."""
    feed, texts = iter(training_feed(config, data, rank=0, world_size=1, pin=False)), []
    while len(texts) < pairs:
        texts += decode(data, next(feed))
    return texts


def decode(data: PreparedData, batch: Batch) -> list[Pair]:
    src, tgt = (
        data.tokenizer.target.decode([[i for i in row if i not in SPECIAL_IDS] for row in side.tolist()])
        for side in (batch.src, batch.tgt_out)
    )
    return list(zip(src, tgt, strict=True))


def read(path: Path) -> set[Pair]:
    return {(src, tgt) for src, _, tgt in (line.partition("\t") for line in path.read_text().splitlines())}


def test_mixture_draws_with_temperature_5_as_arivazhagan_et_al_say(corpus: Path):
    config, data = load(corpus, "mixture")
    sizes = [file["kept"] for file in data.report["files"]]
    assert config.data.temperature == 5
    everyday = read(corpus / "everyday.train.tsv")
    drawn = draw(config, data, 1000)
    share = sum(pair in everyday for pair in drawn) / len(drawn)
    powers = [size ** (1 / 5) for size in sizes]
    assert share == pytest.approx(powers[1] / sum(powers), abs=0.03)
    assert share > 5 * sizes[1] / sum(sizes)


def test_modifiers_change_a_quarter_of_the_training_pairs_and_no_validation_pair(corpus: Path):
    config, data = load(corpus, "modifiers")
    clean = read(corpus / "grammar.train.tsv") | read(corpus / "everyday.train.tsv")
    drawn = draw(config, data, 1000)
    assert sum(pair not in clean for pair in drawn) / len(drawn) == pytest.approx(0.24, abs=0.04)
    (loader,) = validation_loaders(config, data, rank=0, world_size=1)
    validation = [pair for batch in loader for pair in decode(data, batch)]
    assert set(validation) == read(corpus / "grammar.validation.tsv")
