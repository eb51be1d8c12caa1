"""Every format reads the same pairs; every defect is one line that names the place."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from seq2seq.data.corpus import names_corpus, open_corpora, read_pairs
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.storage.output import read_lines
from tests.refusing import refuses

PAIRS = [("Who is it?", "¿Quién es?"), ('She said "no", twice.', "Dijo «no», dos veces."), ("€5 😀", "5 € 😀")]


def read(spec: str, root: Path, **settings: object) -> list[tuple[str, str]]:
    return list(read_pairs(spec, str(root), DataConfig(**settings)))  # pyright: ignore[reportArgumentType]


def write_parallel(folder: Path, *names: str) -> None:
    for name, side in zip(names, zip(*PAIRS, strict=True), strict=True):
        (folder / name).write_text("".join(f"{text}\n" for text in side), encoding="utf-8")


def parquet_of(**columns: list) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()


EN, ES = ([pair[side] for pair in PAIRS] for side in (0, 1))
TSV = "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS)
CSV = io.StringIO()
csv.writer(CSV).writerows([("id", "es", "en"), *zip(range(3), ES, EN, strict=True)])
FILES = {
    "a.tsv": TSV.encode(),
    "a.csv": CSV.getvalue().encode(),
    "a.jsonl": "".join(json.dumps({"es": tgt, "en": src}) + "\n" for src, tgt in PAIRS).encode(),
    "b.jsonl": "\n".join(  # without the last line's end
        json.dumps({"id": 1, "translation": {"en": src, "es": tgt}}, ensure_ascii=False) for src, tgt in PAIRS
    ).encode(),
    "a.parquet": parquet_of(es=ES, en=EN),
    "b.parquet": parquet_of(translation=[{"en": src, "es": tgt} for src, tgt in PAIRS]),
}
REVERSED = {"src_lang": "es", "tgt_lang": "en"}
EXCHANGED = [(tgt, src) for src, tgt in PAIRS]


@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_the_same_pairs_in_both_directions(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(FILES[name])
    assert read(name, tmp_path) == read(name, tmp_path, languages=["en", "es"]) == PAIRS
    assert read(name, tmp_path, languages=["en", "es"], **REVERSED) == EXCHANGED
    if name != "a.tsv":  # whose columns have no names
        assert read(name, tmp_path, **REVERSED) == EXCHANGED


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith("parquet")])
def test_compression_windows_line_ends_and_a_byte_order_mark_make_no_difference(tmp_path: Path, name: str):
    text = FILES[name]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
    (tmp_path / f"{name}.xz").write_bytes(lzma.compress(text))
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    for ending in ("", ".gz", ".xz"):
        assert read(name + ending, tmp_path) == PAIRS


@pytest.mark.parametrize(("ending", "opener"), [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_parallel_files_are_read_side_by_side(tmp_path: Path, ending: str, opener: Callable):
    for language, side in (("en", 0), ("es", 1)):
        with opener(tmp_path / f"news+c++.{language}{ending}", "wt", encoding="utf-8", newline="\r\n") as file:
            file.write("\ufeff" + "\n".join(pair[side] for pair in PAIRS))
    spec = f"news+c++.en{ending}+news+c++.es{ending}"
    assert read(spec, tmp_path) == PAIRS
    assert [corpus.stem for corpus in open_corpora(spec, str(tmp_path), DataConfig())] == ["news+c++"]


PACKERS = (gzip.compress, lzma.compress, bz2.compress)
GZ, XZ, BZ = ([pack(f"{part}\t{part}\n".encode()) for part in "ab"] for pack in PACKERS)
STREAMS = {
    "gz": ("a.tsv.gz", GZ[0] + GZ[1] + b"\0" * 5, None),
    "xz": ("a.tsv.xz", XZ[0] + b"\0" * 8 + XZ[1] + b"\0" * 4, None),
    "gz damaged": ("a.tsv.gz", GZ[0] + b"\0" + GZ[1][1:], "Not a gzipped file"),
    "xz damaged": ("a.tsv.xz", XZ[0] + b"\0" + XZ[1][1:], "Input format not supported"),
    "gz cut": ("a.tsv.gz", GZ[0] + GZ[1][:-1], "ended before"),
    "xz cut": ("a.tsv.xz", XZ[0] + XZ[1][:-1], "it ends within a stream"),
    "xz cut early": ("a.tsv.xz", XZ[0] + XZ[1][:1], "it ends within a stream"),
    "gz and a page": ("a.tsv.gz", GZ[0] + GZ[1] + b"<html>", "Not a gzipped file"),
    "xz and a page": ("a.tsv.xz", XZ[0] + XZ[1] + b"<html>", "Input format not supported"),
    "bz2": ("a.tsv.bz2", BZ[0] + BZ[1], None),
    "bz2 damaged": ("a.tsv.bz2", BZ[0] + b"\0" + BZ[1][1:], "Invalid data stream"),
    "bz2 cut": ("a.tsv.bz2", BZ[0] + BZ[1][:-1], "it ends within a stream"),
    "bz2 and a page": ("a.tsv.bz2", BZ[0] + BZ[1] + b"<html>", "Invalid data stream"),
    "gz plain": ("a.tsv.gz", b"a\tb\n", "Not a gzipped file"),
    "xz plain": ("a.tsv.xz", b"a\tb\n", "Input format not supported"),
    "gz empty": ("a.tsv.gz", b"", "it has 0 bytes"),
    "xz empty": ("a.tsv.xz", b"", "it has 0 bytes"),
}


@pytest.mark.parametrize("case", STREAMS)
def test_all_streams_of_a_compressed_file_are_read_or_the_file_is_refused(tmp_path: Path, case: str):
    name, content, reason = STREAMS[case]
    (tmp_path / name).write_bytes(content)
    if reason is None:
        assert read(name, tmp_path) == [("a", "a"), ("b", "b")]
        return
    for run in (lambda: read(name, tmp_path), lambda: list(read_lines(tmp_path / name))):
        refuses(f"{name} is damaged or no {name.rpartition('.')[2]} data .*{reason}", run)


def test_patterns_expand_sorted_and_names_start_at_the_root(tmp_path: Path):
    (tmp_path / "corpora").mkdir()
    for name in ("b.tsv", "a.tsv", "c.txt", "[x].tsv"):
        (tmp_path / "corpora" / name).write_text(f"{name}\tx\n")
    corpora = open_corpora("corpora/*.tsv", str(tmp_path), DataConfig())
    assert [corpus.name for corpus in corpora] == ["corpora/[x].tsv", "corpora/a.tsv", "corpora/b.tsv"]
    assert read("corpora/[x].tsv", tmp_path) == [("[x].tsv", "x")]


def test_patterns_of_parallel_files_pair_up_by_their_names(tmp_path: Path):
    for name in ("1.en", "1.es", "2.en", "2.es"):
        (tmp_path / name).write_text(name + "\n")
    assert read("*.en+*.es", tmp_path) == [("1.en", "1.es"), ("2.en", "2.es")]
    (tmp_path / "3.en").write_text("3.en\n")
    refuses(r"\*.en\+\*.es matches 3 source files but 2 target files", read, "*.en+*.es", tmp_path)
    (tmp_path / "2.en").unlink()
    refuses(r"\*.en\+\*.es would pair 3.en with 2.es", read, "*.en+*.es", tmp_path)


def test_paths_without_a_root_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.tsv").write_text(TSV, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert list(read_pairs("a.tsv", None, DataConfig())) == PAIRS
    assert list(read_pairs(str(tmp_path / "a.tsv"), "elsewhere", DataConfig())) == PAIRS


def test_reading_is_lazy(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("a\tb\nbroken\n")
    pairs = read_pairs("a.tsv", str(tmp_path), DataConfig())
    assert next(pairs) == ("a", "b")
    refuses(r"a.tsv:2 ", lambda: next(pairs))


def test_columns_can_be_named_and_other_languages_select_others(tmp_path: Path):
    columns = {"english": ["a"], "non_english": ["b"], "en": ["c"], "es": ["d"]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    named = {"columns": ["english", "non_english"], "languages": ["en", "es"]}
    assert read("a.parquet", tmp_path, **named) == [("a", "b")]
    assert read("a.parquet", tmp_path, **named, **REVERSED) == [("b", "a")]
    assert read("a.parquet", tmp_path) == [("c", "d")]
    (tmp_path / "a.jsonl").write_text('{"translation": {"fr": "oui", "es": "sí", "en": "yes"}}\n')
    assert read("a.jsonl", tmp_path, src_lang="fr", tgt_lang="en") == [("oui", "yes")]


LIBERTIES = {
    "null is empty text": ("a.jsonl", '{"en": null, "es": "x"}\n\n{"en": "y", "es": "z"}\n', [("", "x"), ("y", "z")]),
    "a repeated pair": ("a.jsonl", '{"en": "a", "es": "b", "id": 1, "id": 1, "en": "a"}', [("a", "b")]),
    "a quoted line end is text": ("a.csv", 'en,es\n"a\nb",c\n', [("a\nb", "c")]),
    "CR in text": ("a.tsv", "a\rb\tc\r\r\nd\te\r", [("a\rb", "c\r"), ("d", "e")]),
    "blank lines and spaces in the header": ("a.csv", "\nen, es\n\nYes.,Sí.\n\n", [("Yes.", "Sí.")]),
    "semicolons": ("a.csv", 'en;es;n\n"Yes; no.";Sí, no.;1\n', [("Yes; no.", "Sí, no.")]),
}


@pytest.mark.parametrize("liberty", LIBERTIES)
def test_liberties_of_the_formats_are_taken(tmp_path: Path, liberty: str):
    name, content, pairs = LIBERTIES[liberty]
    (tmp_path / name).write_text(content)
    assert read(name, tmp_path) == pairs


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("1276\tGo on.\t2481\tSigue.", []),  # a download of Tatoeba
        ("Go on.\tSigue.\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 (a)", []),  # of manythings.org
        ("x\tGo on.\ty\tSigue.", ["2", "4"]),
        ("Sigue.\t0.9\tGo on.", ["3", "1"]),
    ],
)
def test_two_of_more_columns_of_a_tsv_are_found_or_named(tmp_path: Path, line: str, columns: list[str]):
    (tmp_path / "a.tsv").write_text(line + "\n")
    assert read("a.tsv", tmp_path, columns=columns) == [("Go on.", "Sigue.")]
    assert read("a.tsv", tmp_path, columns=columns, languages=["en", "es"], **REVERSED) == [("Sigue.", "Go on.")]


@pytest.mark.parametrize("column", ["0", "3"])
def test_a_column_that_a_tsv_lacks_is_an_error(tmp_path: Path, column: str):
    (tmp_path / "a.tsv").write_text("a\tb\n")
    refuses(r"a.tsv:1 has 2 tab-separated fields", read, "a.tsv", tmp_path, columns=["1", column])


TABLE = parquet_of(en=["a"], es=["b"])
DEFECTS = {  # the file's content, and what is said of the file or, if the content has lines, of a line of it
    "a.tsv": [
        (b"a\tb\nab\n", r":2 has 1 tab-separated fields, expected source<TAB>target"),
        (b"a\tb\tc\n", r":1 has 3 tab-separated fields, .*, or data.columns=\[1,2\] for the first two of more"),
        (b"1\ta\t2\tb\na\tb\n", r":2 has 2 tab-separated fields, expected 4 as in the first line"),
        (b"a\tb\n12\ta\t13\tb\n", r":2 has 4 tab-separated fields, expected source<TAB>target"),  # a lost line end
        ("a\tb".encode("utf-16"), r" is UTF-16: convert the file to UTF-8, for instance with iconv"),
        (b"a\tb\n\n", r":2 has 1 tab-separated fields, expected source"),
        (b"a\tb\na\tni\xf1o\n", r":2 is not UTF-8 \(byte 0xf1 at column 5\)"),
        (b"\x7fELF\0\0", r" is binary, not UTF-8 text"),
        (b"a\tb\n" * 9000 + b"\0\tb\n", r":9001 is binary, not UTF-8 text"),
        (b"", r"a.tsv is empty"),
        (b"a\tb\rc\td\r", r":1 has CR without LF, .*: convert the file, for instance with tr '\\r' '\\n'$"),
        (b"\xef\xbb\xbfa\tb\r\nc\td\re\tf", r":2 has CR without LF"),
        (b"a\tb\r" * 999_999, r":1 has CR without LF"),
    ],
    "a.csv": [
        (b"en,es\n" + b"a" * 131_073 + b",b\n", r":2 is not CSV: field larger than field limit"),
        ("en,es".encode("utf-16"), r" is UTF-16: convert the file"),
        (b"en,es\n", r"a.csv is empty"),
        (b"en,es\ra,b\rc,d\r", r":1 has CR without LF"),
        (b"english,es\na,b\n", r":1 has no column en; it has english, es: set data.columns"),
        (b'"en\nglish",es\na,b\n', r":2 has no column en; it has en glish, es: set"),
        (b"en,es,es\nYes.,S.,S\n", r":1 has 2 columns called es: rename all but one"),
        (b"en,es\na,b\na\n", r":3 has 1 fields but the header has 2"),
        (b"en,es\na,ni\xf1o\n", r":2 is not UTF-8"),
        (b'en,es\na,"b\n', r":2 is not CSV: unexpected end of data"),
    ],
    "a.jsonl": [
        (b'{"en": "a", "es": "b"}\n{"en"\n', r":2 is not JSON"),
        (b"[" * 100_000, r":1 is not JSON: "),
        (b"[1]\n", r":1 is no JSON object"),
        (
            b'{"en": "a", "es": "b", "en": "c"}\n',
            r":1 is not JSON: the key 'en' has two values, 'a' and 'c': remove one",
        ),
        (
            b'{"translation": {"en": "a", "es": "b", "es": null}}\n',
            r":1 is not JSON: the key 'es' has two values, 'b' and None",
        ),
        (b'{"en": "a", "fr": "b"}\n', r":1 has no column es; it has en, fr"),
        (b'{"translation": {"en": "a"}}\n', r":1 has no translation.es, found en"),
        (b'{"translation": "' + b"x" * 5000 + b'"}\n', r":1 has no translation.en, found 'x{39}: check data.columns"),
        (b'{"en": "a", "es": 5}\n', r":1 has int 5 in es, expected text"),
    ],
    "a.parquet": [
        (b"PAR1 not really", r" is damaged or no Parquet file"),
        (TABLE.replace(b"en", b"\x80n"), r" is damaged or no Parquet file"),
        (b"PAR1" + b"\0" * 40 + TABLE[-40:], r" "),
    ],
    "a.txt": [(b"a\tb\n", r" has an unknown ending: expected .tsv")],
    "a.parquet.gz": [(b"", r" has an unknown ending")],
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_one_line_that_names_the_file_and_the_line(tmp_path: Path, name: str):
    for content, message in DEFECTS[name]:
        (tmp_path / name).write_bytes(content)
        refuses(message if message.startswith("a.") else name + message, read, name, tmp_path)


def test_parallel_files_of_unequal_length_tell_both_counts(tmp_path: Path):
    (tmp_path / "a.en").write_text("1\n2\n3\n4\n5\n")
    (tmp_path / "a.es").write_text("1\n2\n")
    refuses(r"a.en has 5 lines but .*a.es has 2: they must be parallel", read, "a.en+a.es", tmp_path)
    with pytest.raises(UserError, match=r"a.es has 2 lines but .*a.en has 5: they must be parallel"):
        read("a.es+a.en", tmp_path, src_lang="es", tgt_lang="en")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("a.tsv", "/a.tsv does not exist: check the path and data.root"),
        ("a.en+a.es", "/a.es does not exist"),
        (f"{'x' * 300}.tsv", "x.tsv does not exist: check the path and data.root"),
        ("*.tsv", "*.tsv matches no file: check the pattern and data.root"),
        ("corpus", "corpus is a folder: name the files in it"),
        ("~nobody-here/x.tsv", "~nobody-here/x.tsv: the home of this user is not known here; give the whole path"),
        ("a.csv+b.tsv", "a + joins two files of parallel lines; list files of pairs as ["),
    ],
)
def test_a_spec_that_names_no_corpus_is_refused_with_advice(tmp_path: Path, spec: str, message: str):
    (tmp_path / "corpus" / "b.tsv").mkdir(parents=True)
    for name in ("a.en", "a.csv"):
        (tmp_path / name).write_text("x\n")
    refuses(re.escape(message), read, spec.replace("b.tsv", "a.csv"), tmp_path)


@pytest.mark.parametrize("spec", ["a.en+a.es", "a.es+a.en"])
def test_endings_that_are_languages_tell_the_source_of_parallel_files(tmp_path: Path, spec: str):
    write_parallel(tmp_path, "a.en", "a.es")
    assert read(spec, tmp_path) == PAIRS
    assert read(spec, tmp_path, **REVERSED) == EXCHANGED


def test_a_tsv_without_languages_is_source_and_target_as_written_for_the_default_languages_only(tmp_path: Path):
    (tmp_path / "a.tsv").write_text(TSV, encoding="utf-8")
    assert read("a.tsv", tmp_path) == PAIRS
    message = (
        "a.tsv does not tell which column is es: give the languages in the order of the columns, "
        "data.languages=[en,es] or [es,en] (in distill and backtranslate: --languages en,es)"
    )
    refuses(re.escape(message), read, "a.tsv", tmp_path, **REVERSED)
    assert read("a.tsv", tmp_path, languages=["es", "en"], **REVERSED) == PAIRS
    refuses(r"which column is en: .*data.languages=\[fr,en\] or \[en,fr\]", read, "a.tsv", tmp_path, tgt_lang="fr")


def test_parallel_files_whose_endings_are_no_languages_need_them_too(tmp_path: Path):
    write_parallel(tmp_path, "left.txt", "right.txt")
    spec = "left.txt+right.txt"
    assert read(spec, tmp_path) == PAIRS
    refuses(r"left.txt\+right.txt does not tell which file is es: .*of the files", read, spec, tmp_path, **REVERSED)
    assert read(spec, tmp_path, languages=["en", "es"], **REVERSED) == EXCHANGED
    assert read(spec, tmp_path, languages=["es", "en"], **REVERSED) == PAIRS


@pytest.mark.parametrize(
    ("name", "keys", "others"),
    [
        (
            "/home/ana/x.v1.tsv.gz",
            ["x", "x.v1", "x.v1.tsv.gz", "/home/*/x.*"],
            ["home", "ana", "x.v2", "ana/x.v1.tsv.gz"],
        ),
        ("../texts/x.tsv", ["x", "../texts/x.tsv"], ["texts"]),
        ("v1.2/a.tsv", ["v1.2", "a"], ["v1"]),
        ("news.2019.tsv.gz", ["news.2019", "news"], ["news.2020"]),
        ("c++/z.tsv", ["c++", "z"], ["z.csv"]),
    ],
)
def test_a_corpus_is_named_by_its_file_its_stems_or_its_folders_inside_the_root(name, keys, others):
    assert [key for key in [name, *keys, *others] if names_corpus(key, name)] == [name, *keys]


def test_a_file_with_a_plus_in_its_name_comes_before_parallel_files(tmp_path: Path):
    for name in ("a", "b.tsv", "a+b.tsv"):
        (tmp_path / name).write_text(f"{name}\tx\n")
    assert read("a+b.tsv", tmp_path) == [("a+b.tsv", "x")]


def test_the_name_of_the_root_is_no_pattern(tmp_path: Path):
    (tmp_path / "[x]").mkdir()
    (tmp_path / "[x]" / "a.tsv").write_text("Yes.\tSí.\n")
    assert read("*.tsv", tmp_path / "[x]") == [("Yes.", "Sí.")]
