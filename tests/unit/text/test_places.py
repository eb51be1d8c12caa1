"""A corpus can be read on from any place, in every format, without reading what came before."""

import csv
import gzip
import json
import lzma
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from seq2seq.settings.data import DataConfig
from seq2seq.text import formats
from seq2seq.text.corpus import open_corpora, open_hub_split

PAIRS = [(f"source {i} ñ", f'objetivo "{i}", sí') for i in range(23)]
DATA = DataConfig()
TSV = "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS)
JSONL = "".join(json.dumps({"en": src, "es": tgt}, ensure_ascii=False) + "\n\n" for src, tgt in PAIRS)


def write_all(folder: Path) -> list[str]:
    """Write the pairs in every format; returns what names them."""
    (folder / "bom.tsv").write_bytes(b"\xef\xbb\xbf" + TSV.replace("\n", "\r\n").encode())
    (folder / "a.tsv.gz").write_bytes(gzip.compress(TSV.encode()))
    (folder / "b.tsv.xz").write_bytes(lzma.compress(TSV.encode()))
    (folder / "c.jsonl").write_text(JSONL, encoding="utf-8")
    with (folder / "d.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("es", "en"), *((tgt, src) for src, tgt in PAIRS)])
    for ending, side in (("en", 0), ("es", 1)):
        (folder / f"e.{ending}").write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    table = pa.table({"en": [src for src, _ in PAIRS], "es": [tgt for _, tgt in PAIRS]})
    parquet.write_table(table, folder / "f.parquet", row_group_size=9)
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{src}</seg></tuv><tuv xml:lang="es"><seg>{tgt}</seg></tuv></tu>'
        for src, tgt in PAIRS
    )
    (folder / "g.tmx").write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")
    return ["bom.tsv", "a.tsv.gz", "b.tsv.xz", "c.jsonl", "d.csv", "e.en+e.es", "f.parquet", "g.tmx"]


@pytest.mark.parametrize("number", range(8))
def test_every_format_is_read_on_from_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    monkeypatch.setattr(formats, "_ROWS", 4)
    spec = write_all(tmp_path)[number]
    (corpus,) = open_corpora(spec, str(tmp_path), DATA)
    read = list(corpus.read([]))
    assert [pair for pair, _ in read] == PAIRS
    assert all(type(part) is int for _, place in read for part in place)
    for taken in (1, 8, 9, 10, 22, 23):
        assert list(corpus.read(read[taken - 1][1])) == read[taken:]


def test_lines_are_not_read_again_to_get_to_a_place(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text(TSV, encoding="utf-8")
    (corpus,) = open_corpora("a.tsv", str(tmp_path), DATA)
    place = list(corpus.read([]))[4][1]
    path.write_bytes(b"\xff" * place[1] + path.read_bytes()[place[1] :])
    assert [pair for pair, _ in corpus.read(place)] == PAIRS[5:]


@pytest.fixture
def hub_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "hub-cache"))
    datasets.disable_progress_bars()
    folder = tmp_path / "set"
    (folder / "en-es").mkdir(parents=True)
    for shard, rows in enumerate((PAIRS[:10], PAIRS[10:])):
        table = pa.table({"translation": [{"en": src, "es": tgt} for src, tgt in rows]})
        parquet.write_table(table, folder / "en-es" / f"train-{shard:05d}-of-00002.parquet")
    card = "---\nconfigs:\n- config_name: en-es\n  data_files:\n  - {split: train, path: en-es/train-*}\n---\n# A set\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    return DataConfig(hub=f"{folder}:en-es")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_hub_set_is_read_on_from_a_row(hub_like: DataConfig, streaming: bool):
    corpus = open_hub_split("train", hub_like, streaming=streaming)
    read = list(corpus.read([]))
    assert [pair for pair, _ in read] == PAIRS
    for taken in (1, 9, 10, 23):
        assert list(corpus.read(read[taken - 1][1])) == read[taken:]


def test_streaming_a_hub_set_keeps_nothing_on_disk(hub_like: DataConfig, tmp_path: Path):
    list(open_hub_split("train", hub_like, streaming=True).pairs())
    assert not list((tmp_path / "hub-cache").rglob("*.arrow"))
