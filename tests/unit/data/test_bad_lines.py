"""A malformed line of training text is refused by its number, or left out and counted; held-out sets refuse it."""

import gzip
import json
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from preparing import TRAIN, run, texts, write
from pyarrow import parquet

from seq2seq.data.cleaned import write_cleaned
from seq2seq.data.corpus import open_corpora, read_pairs
from seq2seq.data.formats import read_tmx
from seq2seq.data.processes import Processes
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.storage.lines import MAX_LINE, BadLine, Lines
from tests.refusing import refuses
from tests.thin import thin

ROWS = [f"{src}\t{tgt}".encode() for src, tgt in TRAIN]
JSON = [f'{{"en": "{src}", "es": "{tgt}"}}'.encode() for src, tgt in TRAIN]
CSV = [f"{src},{tgt}".encode() for src, tgt in TRAIN]
BAD = {  # of each reader; test_corpus.py has the other reasons
    "long": ("a.tsv", ROWS, b"a\t" + b"b" * MAX_LINE, "has more than 1,048,576 bytes"),
    "compressed": ("a.tsv.xz", ROWS, b"no tab", "has 1 tab-separated fields"),
    "CSV quote": ("a.csv", [b"en,es", *CSV], b'"a" b,c', "is not CSV"),
    "CSV Latin-1": ("a.csv", [b"en,es", *CSV], b"a,ni\xf1o", "is not UTF-8"),
    "JSON": ("a.jsonl", JSON, b'{"en": "a"', "is not JSON"),
}


@pytest.mark.parametrize("case", thin(BAD, ["compressed", "CSV Latin-1"]))
def test_a_bad_line_of_train_is_refused_or_counted(root: Path, case: str):
    name, lines, bad, reason = BAD[case]
    text = b"\n".join([*lines[:7], bad, *lines[7:], bad])
    (root / name).write_bytes(lzma.compress(text) if name.endswith(".xz") else text)
    refuses(rf"/{name}:8 {reason}.*; or set data.on_bad_line=skip$", run, root, train=[name])
    prepared = run(root, train=[name], on_bad_line="skip")
    (counts,) = prepared.report["files"]
    assert counts == {"name": name, "read": 302, "kept": 300, "malformed": 2}
    assert sorted(texts(prepared)) == sorted(TRAIN)


STRAY = {  # rows of a CSV; the numbers of the bad lines; the numbers of the lines of good rows
    "in the first field": (['"a,b', "c,d", '"e","f"'], [2], ["c", "e"]),
    "in the last field": (["a,b", 'c,"d', "e,f", 'g,"h, i"'], [3], ["a", "e", "g"]),
    "in the last row": (["a,b", 'c,"d'], [3], ["a"]),
    "before a thousand rows": (['a,"b', *["c,d"] * 999], [2], ["c"] * 999),
    "and another row's quote": (['"a,b', "c,d", 'e,f"'], [2], ["c", "e"]),
    "twice": (['a,"b', 'c,"d', "e,f"], [2, 3], ["e"]),
    "no stray quote": (['"a\nz\nz",b', '"c ""x"", y","d\n"', 'e "x",f'], [], ["a\nz\nz", 'c "x", y', 'e "x"']),
    "after a row of two lines": (['"a\nz",b', 'c,"d', "e"], [4, 5], ["a\nz"]),
    "a bad line closes the row": (['"a\n\xff",b', "c,d"], [2, 3], ["c"]),
}


@pytest.mark.parametrize("case", STRAY)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.xz"])
def test_a_stray_quote_of_a_csv_costs_one_row(tmp_path: Path, case: str, name: str):
    rows, bad, good = STRAY[case]
    text = "\n".join(["en,es", *rows]).encode("latin-1")
    (tmp_path / name).write_bytes(lzma.compress(text) if name.endswith(".xz") else text)
    (corpus,) = open_corpora(name, str(tmp_path), DataConfig())
    records = list(corpus.read())
    assert [record.number for record in records if isinstance(record, BadLine)] == bad
    assert [record[0] for record in records if not isinstance(record, BadLine)] == good


def test_bad_lines_of_parallel_files_are_counted_once_a_pair(root: Path):
    sides = [[pair[side].encode() for pair in TRAIN] for side in (0, 1)]
    for side, language in zip(sides, ("en", "es"), strict=True):
        (root / f"a.{language}").write_bytes(b"\n".join([*side, b"\xff", b"fine" if language == "en" else b"\xff"]))
    refuses(r"a.en:301 is not UTF-8", run, root, train=["a.en+a.es"])
    (counts,) = run(root, train=["a.en+a.es"], on_bad_line="skip").report["files"]
    assert (counts["read"], counts["kept"], counts["malformed"]) == (302, 300, 2)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_sets_refuse_bad_lines(root: Path, split: str):
    write(root / "bad.tsv", [*TRAIN[:3], ("a", "b\tc")])
    changes: dict[str, Any] = {split: ["bad.tsv"]}
    with pytest.raises(UserError, match=r"bad.tsv:4 has 3 tab-separated fields, .* for the first two of more$"):
        run(root, on_bad_line="skip", **changes)


def test_half_a_character_in_json_becomes_a_replacement_character(root: Path):
    """As in training text, where `normalise` does so; no report and no cache could be written with it."""
    (root / "a.jsonl").write_text(json.dumps({"en": "Half \ud83d here.", "es": "Mitad \ude00 aquí."}) + "\n")
    files: dict[str, Any] = {split: ["a.jsonl"] for split in ("validation", "test")}
    prepared = run(root, train=["train.tsv", "a.jsonl"], remove_overlap=False, **files)
    pair = ("Half \ufffd here.", "Mitad \ufffd aquí.")
    assert prepared.tests == {"a": [pair]}
    assert prepared.validation_pairs == [pair]
    assert prepared.report["files"][1]["kept"] == 1


def test_a_long_first_line_after_a_byte_order_mark_is_one_bad_line(tmp_path: Path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"a" * (MAX_LINE + 500) + b"\nshort\n")
    first, second = Lines(path)
    assert isinstance(first, BadLine)
    assert second == "short"


@pytest.mark.parametrize("name", ["a.parquet", "a.tsv.xz"])
def test_memory_for_long_texts_does_not_grow_with_their_number(tmp_path: Path, name: str):
    long = [("a b " * 25_000, "c")] * 300  # 30 MB
    if name == "a.parquet":
        parquet.write_table(pa.table({"en": [src for src, _ in long], "es": [tgt for _, tgt in long]}), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(lzma.compress("".join(f"{src}\t{tgt}\n" for src, tgt in long).encode(), preset=0))
    (corpus,) = open_corpora(name, str(tmp_path), DataConfig())
    with Processes(0) as workers:  # without the memory of what is imported
        write_cleaned(tmp_path / "nothing", [], DataConfig(), workers)
    tracemalloc.start()
    with Processes(0) as workers:
        (counts,) = write_cleaned(tmp_path / "cleaned", [corpus], DataConfig(), workers)
    assert counts["read"] == 300
    assert tracemalloc.get_traced_memory()[1] < 15e6
    tracemalloc.stop()


MEMORY = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"><note>no &amp; text</note></header><body>
<tu><note>n</note><tuv xml:lang="en-GB"><prop type="x">p</prop><seg>Who is &lt;it&gt;?</seg></tuv>
  <tuv xml:lang="es"><seg>¿Quién es?</seg></tuv></tu>
<tu><tuv xml:lang="es"><seg>Haz <bpt i="1">&lt;b&gt;<sub>x</sub></bpt><hi>clic</hi><ept i="1">y</ept>
   aquí</seg></tuv>
  <tuv lang="EN_us"><seg>Click<ph>z</ph> here</seg></tuv><tuv xml:lang="en"><seg>second</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only</seg></tuv><tuv xml:lang="fr"><seg>seulement</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg/></tuv><tuv xml:lang="es"><seg></seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>One<ph>&lt;br/&gt;</ph>two<ph/>.</seg></tuv>
  <tuv xml:lang="es"><seg>Uno <ph/>dos</seg></tuv></tu>
</body></tmx>"""
PAIRS = [("Who is <it>?", "¿Quién es?"), ("Click here", "Haz clic aquí"), ("", ""), ("One two.", "Uno dos")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_pairs_are_read_in_every_encoding_that_xml_tells(tmp_path: Path, encoding: str):
    path = tmp_path / "a.tmx"
    path.write_bytes(MEMORY.format(encoding=encoding.removesuffix("-sig")).encode(encoding))
    assert list(read_tmx(path, DataConfig())) == PAIRS
    assert list(read_tmx(path, DataConfig(src_lang="fr", tgt_lang="en-US"))) == [("seulement", "Only")]


def test_a_memory_is_a_corpus_like_any_other(tmp_path: Path):
    memory = MEMORY.format(encoding="utf-8").encode()
    for ending, content in (("", memory), (".gz", gzip.compress(memory)), (".xz", lzma.compress(memory))):
        (tmp_path / f"a.tmx{ending}").write_bytes(content)
        assert list(read_pairs(f"*.tmx{ending}", str(tmp_path), DataConfig())) == PAIRS
    with pytest.raises(UserError, match=r"is empty: it has no sentence pair"):
        list(read_pairs("a.tmx", str(tmp_path), DataConfig(src_lang="de")))


def big_memory(num_units: int) -> bytes:
    unit = '<tu><tuv xml:lang="en"><seg>Text &#233; {0}.</seg></tuv><tuv xml:lang="es"><seg>Frase {0}.</seg></tuv></tu>'
    return ("<tmx><body>" + "".join(unit.format(i) for i in range(num_units)) + "</body></tmx>").encode()


def test_a_memory_is_read_as_a_stream_even_in_one_line(tmp_path: Path):
    (tmp_path / "a.tmx").write_bytes(big_memory(3000).removesuffix(b"</body></tmx>") + b"<broken>>&</tmx>")
    pairs = read_tmx(tmp_path / "a.tmx", DataConfig())
    assert [next(pairs) for _ in range(2000)][-1] == ("Text é 1999.", "Frase 1999.")
    refuses("is damaged or no XML", lambda: list(pairs))


BOMB = b'<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><body/></tmx>'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tmx", b'<?xml version="1.0" encoding="x-y"?><tmx/>', r"a.tmx declares an encoding that cannot"),
        ("a.tmx", b'<?xml version="1.0" encoding="euc-jp"?><tmx/>', r"a.tmx declares an encoding"),
        ("a.tmx", BOMB, r"a.tmx:1 declares the entity a, which could make a small file huge"),
        ("a.tmx", b"<html></html>", r"a.tmx:1 begins with <html>, expected <tmx>"),
        ("a.tmx", b"plain", r"a.tmx:1 is damaged or no XML: syntax error"),
        ("a.tmx", b"<tmx>\n<body>\n<tu>", r"a.tmx:3 is damaged or no XML: no element found"),
        ("a.tmx.xz", lzma.compress(big_memory(99))[:-9], r"a.tmx.xz is damaged or no xz data"),
    ],
)
def test_a_defect_is_one_line_that_names_the_file(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    refuses(message, lambda: list(read_tmx(tmp_path / name, DataConfig())))
