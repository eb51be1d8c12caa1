"""Hub sets are loaded by the hub's own client, here from local folders of the hub's layout."""

from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from preparing import SMALL, make_pairs
from pyarrow import parquet

from seq2seq.data.corpus import open_hub_split
from seq2seq.data.loading import make_mixture
from seq2seq.data.prepare import prepare
from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.data import DataConfig, TokenizerConfig
from tests.refusing import refuses

TRAIN = [("Who is it?", "¿Quién es?"), ("It is blue.", "Es azul.")]
DEV = [("Yes.", "Sí.")]


@pytest.fixture(autouse=True)
def _private_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "hub-cache"))
    datasets.disable_progress_bars()


def make_set(folder: Path, table: dict[str, dict[str, pa.Table]]) -> Path:
    card = ["---", "configs:"]
    for config, splits in table.items():
        (folder / config).mkdir(parents=True)
        card += [f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            parquet.write_table(rows, folder / config / f"{split}-00000-of-00001.parquet")
            card.append(f"  - {{split: {split}, path: {config}/{split}-*}}")
    (folder / "README.md").write_text("\n".join([*card, "---", "# A set"]), encoding="utf-8")
    return folder


def nested(pairs: list[tuple[str, str]]) -> pa.Table:
    return pa.table({"translation": [{"en": src, "es": tgt} for src, tgt in pairs]})


@pytest.fixture
def opus_like(tmp_path: Path) -> Path:
    french = nested([("Yes.", "Oui.")])
    return make_set(
        tmp_path / "set", {"en-es": {"train": nested(TRAIN), "dev": nested(DEV)}, "en-fr": {"train": french}}
    )


def test_a_split_of_a_configuration_is_read_from_its_files(opus_like: Path):
    data = DataConfig(hub=f"{opus_like}:en-es")
    assert list(open_hub_split("dev", data).pairs()) == DEV
    corpus = open_hub_split("train", data)
    assert list(corpus.pairs()) == TRAIN
    assert corpus.name == f"{opus_like}:en-es[train]"
    assert corpus.paths
    assert all(path.is_file() for path in corpus.paths)


def test_named_columns_are_read_and_a_missing_one_lists_those_there_are(tmp_path: Path):
    flat = pa.table({"english": [src for src, _ in DEV], "non_english": [tgt for _, tgt in DEV]})
    folder = make_set(tmp_path / "set", {"en-es": {"dev": flat}})
    data = DataConfig(hub=f"{folder}:en-es", columns=["english", "non_english"])
    assert list(open_hub_split("dev", data).pairs()) == DEV
    with pytest.raises(UserError, match=r"\[dev\] has no column en; it has english, non_english: set data.columns"):
        list(open_hub_split("dev", DataConfig(hub=f"{folder}:en-es")).pairs())


@pytest.mark.slow
def test_several_processes_clean_a_split(tmp_path: Path):
    folder = make_set(tmp_path / "set", {"en-es": {"train": nested(make_pairs(100, 1))}})
    data = DataConfig(hub=f"{folder}:en-es", held_out=10, num_proc=2, cache=str(tmp_path / "cache"))
    assert prepare(data, TokenizerConfig()).report["files"][0]["read"] == 100


@pytest.mark.parametrize(("config", "split"), [("en-de", "train"), ("en-es", "test")])
def test_an_unknown_configuration_or_split_is_one_line(opus_like: Path, config: str, split: str):
    with pytest.raises(UserError, match=rf"data.hub=.*:{config}\[{split}\] cannot be loaded \(ValueError") as caught:
        open_hub_split(split, DataConfig(hub=f"{opus_like}:{config}"))
    assert "\n" not in str(caught.value)


def test_no_connection_is_one_line_with_the_way_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = r"data.hub=nobody/nothing:en-es\[train\] cannot be loaded .*or give files with"
    refuses(message, open_hub_split, "train", DataConfig(hub="nobody/nothing:en-es"))


@pytest.mark.slow
def test_each_slice_of_a_split_is_prepared_by_itself(tmp_path: Path):
    """All slices are of one Arrow file."""
    hub = make_set(tmp_path / "set", {"default": {"train": nested(make_pairs(200, 1))}})

    def count(split: str) -> int:
        data = DataConfig(hub=f"{hub}:default", hub_splits={"train": split}, held_out=2, cache=str(tmp_path / "cache"))
        return prepare(data, TokenizerConfig(type="bpe", vocab_size=300)).report["files"][0]["read"]

    assert [count(split) for split in ("train", "train[:50%]", "train[50%:80%]", "train")] == [200, 100, 60, 200]


def test_public_text_is_mixed_from_files_as_the_hub_has_them(tmp_path: Path):
    """The names and the number of files are those of the hub, of which Europarl has two."""
    opus, news, europarl, *held_out = (nested(make_pairs(count, count)) for count in (300, 100, 200, 20, 30))
    make_set(
        tmp_path / "opus-100", {"en-es": dict(zip(("train", "validation", "test"), (opus, *held_out), strict=True))}
    )
    news = news.append_column("id", pa.array(map(str, range(100))))
    make_set(tmp_path / "news_commentary", {"en-es": {"train": news}, "en-fr": {"train": news}})
    make_set(tmp_path / "europarl", {"en-es": {"train": europarl}})
    parquet.write_table(nested(make_pairs(250, 4)), tmp_path / "europarl/en-es/train-00001-of-00002.parquet")
    config = compose(["data=public", f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}"])
    data = prepare(config.data, SMALL)
    sets = {name: len(pairs) for name, pairs in {**data.validation_sets, **data.tests}.items()}
    assert sets == {"validation": 20, "test": 30}
    mixture = make_mixture(config, data)
    assert mixture is not None
    assert mixture.sizes == [300, 100, 200, 250]
    assert mixture.shares.tolist() == [0.5, 0.3, 0.1, 0.1]  # OPUS-100, News-Commentary, Europarl's two files
