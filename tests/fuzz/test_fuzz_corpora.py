"""No corpus, however broken, ends reading with anything but one line, or opens another file.

How to run it for an hour: see test_fuzz_documents.py.
"""

import gzip
import io
import lzma
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from seq2seq.data.corpus import Pair, open_corpora, read_pairs
from seq2seq.settings.data import DataConfig
from seq2seq.text.glossary import Glossary
from tests.fuzz import seeds
from tests.fuzz.mutating import LASTING, PLACE, SECRET, arbitrary, mutated, refusal_of, with_place

pytestmark = pytest.mark.slow

LINES = "One cat.\tUn gato.\nTwo cats\tDos gatos\n\t\nThree\tTres\n"
ENTITY = f'<!DOCTYPE tmx [<!ENTITY e SYSTEM "file://{PLACE}">]>'
ENCODING = '<?xml version="1.0" encoding="x-y"?>'
IN_TMX = ("<tu>", "</tu>", "<seg>", "</seg>", "<tuv>", "&e;", "<![CDATA[", ENTITY, ENCODING)
TEXTS = {
    ".tsv": (LINES, ("\t", "\n", "\r\n", "\r", "\ufeff", PLACE)),
    ".csv": ('en,es\n"One, two",Uno\n"a ""b""\nc",d\n', (",", '"', '""', "\n", "\r", "en,es\n", PLACE)),
    ".jsonl": (
        '{"en": "One", "es": "Uno"}\n{"translation": {"en": "a", "es": null}}\n\n',
        (*"{}:\n", "[" * 99, '"en"', '"en": "a", ', "null", "1e999", "NaN", '"\\ud800"', "9" * 5000, '{"en": [', PLACE),
    ),
    ".tmx": (seeds.TMX, IN_TMX),
}


def packed(name: str, data: bytes) -> bytes:
    return gzip.compress(data) if name.endswith(".gz") else lzma.compress(data) if name.endswith(".xz") else data


def read(spec: str) -> tuple[list[Pair], str | None]:
    """What a corpus gives before it ends or is refused, and why it is."""
    pairs: list[Pair] = []
    refusal = refusal_of(lambda: pairs.extend(read_pairs(spec, None, DataConfig())))
    assert "\n" not in (refusal or "")
    assert all(isinstance(src, str) and isinstance(tgt, str) for src, tgt in pairs)
    return pairs, refusal


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("name", sorted(TEXTS))
@LASTING
@given(data=st.data())
def test_a_corpus_is_read_or_refused_in_one_line(name, ending, data, folder, watched_files):
    seed, snippets = TEXTS[name]
    text = with_place(data.draw(mutated([seed], snippets) | arbitrary(snippets)), folder.parent / "secret.po")
    path = folder / f"corpus{name}{ending}"
    path.write_bytes(packed(ending, text.encode("utf-8", "surrogatepass")))
    with watched_files() as opened:
        pairs, refusal = read(str(path))
    assert [file for file in opened if file.endswith("secret.po")] == []
    assert SECRET not in f"{pairs} {refusal}"


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@LASTING
@given(share=st.floats(0, 0.999), byte=st.integers(0, 255))
def test_a_changed_byte_of_two_streams_loses_no_pair_in_silence(ending, share, byte, folder):
    data = bytearray(packed(ending, LINES.encode()) + packed(ending, LINES.encode()))
    data[int(share * len(data))] = byte
    path = folder / f"corpus.tsv{ending}"
    path.write_bytes(data)
    pairs, refusal = read(str(path))
    assert refusal or len(pairs) == 8


@LASTING
@given(row=st.integers(0, 9), column=st.integers(0, 6), quoted=st.booleans())
def test_a_stray_quote_of_a_csv_costs_at_most_its_row(row: int, column: int, quoted: bool, folder: Path) -> None:
    rows = [f'"{n} a","{n} b"' if quoted else f"{n} a,{n} b" for n in range(10)]
    rows[row] = rows[row][:column] + '"' + rows[row][column:]
    path = folder / "corpus.csv"
    path.write_text("\n".join(["en,es", *rows]))
    (corpus,) = open_corpora(str(path), None, DataConfig())
    records = list(corpus.read())
    assert len(records) == 10
    assert {(f"{n} a", f"{n} b") for n in range(10) if n != row} <= set(records)


@LASTING
@given(
    name=st.sampled_from([*TEXTS, ".parquet", ".tsv.gz", ".jsonl.xz", ".tmx.gz", ".en"]), data=st.binary(max_size=200)
)
def test_bytes_are_read_or_refused_in_one_line(name: str, data: bytes, folder: Path) -> None:
    for path in (folder / f"bytes{name}", folder / "bytes.es"):
        path.write_bytes(data)
    read(f"{folder}/bytes.en+{folder}/bytes.es" if name == ".en" else f"{folder}/bytes{name}")


VALUES = st.none() | st.text(max_size=4) | st.integers(-9, 9) | st.binary(max_size=3)


@LASTING
@given(
    columns=st.dictionaries(
        st.sampled_from(["en", "es", "translation", "a"]), st.lists(VALUES, min_size=2, max_size=2)
    ),
    edits=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=3),
)
def test_a_parquet_file_is_read_or_refused_in_one_line(columns, edits, folder):
    try:
        table = pa.table(columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types
        table = pa.table({name: [str(value) for value in values] for name, values in columns.items()})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    data = bytearray(buffer.getvalue())
    for share, byte in edits:
        data[int(share * len(data))] = byte
    path = folder / "corpus.parquet"
    path.write_bytes(bytes(data))
    read(str(path))


@given(lines=st.lists(arbitrary(("\t", "#", " ")), max_size=5), text=arbitrary(("\t",)))
def test_a_glossary_is_read_or_refused_in_one_line(lines: list[str], text: str) -> None:
    refusal = refusal_of(lambda: Glossary.parse(lines, "terms.tsv").translations(text))
    assert "\n" not in (refusal or "")
