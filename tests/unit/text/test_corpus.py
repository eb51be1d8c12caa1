"""Every format reads the same pairs; every defect is one line that names the place."""

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

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.corpus import names_corpus, open_corpora, read_pairs

PAIRS = [("Who is it?", "¿Quién es?"), ('She said "no", twice.', "Dijo «no», dos veces."), ("€5 😀", "5 € 😀")]


def read(spec: str, root: Path, **settings: object) -> list[tuple[str, str]]:
    return list(read_pairs(spec, str(root), DataConfig(**settings)))  # pyright: ignore[reportArgumentType]


def write_tsv(path: Path) -> None:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")


def write_csv(path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "es", "en"), *((i, tgt, src) for i, (src, tgt) in enumerate(PAIRS))])


def write_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps({"es": tgt, "en": src}) + "\n" for src, tgt in PAIRS), encoding="utf-8")


def write_nested_jsonl(path: Path) -> None:
    rows = ({"id": 1, "translation": {"en": src, "es": tgt}} for src, tgt in PAIRS)
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")


def write_parquet(path: Path) -> None:
    parquet.write_table(pa.table({"es": [tgt for _, tgt in PAIRS], "en": [src for src, _ in PAIRS]}), path)


def write_nested_parquet(path: Path) -> None:
    parquet.write_table(pa.table({"translation": [{"en": src, "es": tgt} for src, tgt in PAIRS]}), path)


WRITERS = {
    "a.tsv": write_tsv,
    "a.csv": write_csv,
    "a.jsonl": write_jsonl,
    "b.jsonl": write_nested_jsonl,
    "a.parquet": write_parquet,
    "b.parquet": write_nested_parquet,
}
TEXT_WRITERS = {name: writer for name, writer in WRITERS.items() if not name.endswith("parquet")}


@pytest.mark.parametrize(("name", "write"), WRITERS.items())
def test_every_format_reads_the_same_pairs(tmp_path: Path, name: str, write: Callable[[Path], None]):
    write(tmp_path / name)
    assert read(name, tmp_path) == PAIRS


@pytest.mark.parametrize(("name", "write"), TEXT_WRITERS.items())
@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_text_reads_the_same_pairs(
    tmp_path: Path, name: str, write: Callable[[Path], None], ending: str, compress: Callable[[bytes], bytes]
):
    write(tmp_path / name)
    (tmp_path / (name + ending)).write_bytes(compress((tmp_path / name).read_bytes()))
    assert read(name + ending, tmp_path) == PAIRS


@pytest.mark.parametrize(("name", "write"), TEXT_WRITERS.items())
def test_windows_line_ends_and_a_byte_order_mark_make_no_difference(
    tmp_path: Path, name: str, write: Callable[[Path], None]
):
    write(tmp_path / name)
    text = (tmp_path / name).read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text)
    assert read(name, tmp_path) == PAIRS


@pytest.mark.parametrize(("ending", "opener"), [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_parallel_files_are_read_side_by_side(tmp_path: Path, ending: str, opener: Callable):
    for language, side in (("en", 0), ("es", 1)):
        with opener(tmp_path / f"news+c++.{language}{ending}", "wt", encoding="utf-8", newline="\r\n") as file:
            file.write("\ufeff" + "\n".join(pair[side] for pair in PAIRS))
    spec = f"news+c++.en{ending}+news+c++.es{ending}"
    assert read(spec, tmp_path) == PAIRS
    assert [corpus.stem for corpus in open_corpora(spec, str(tmp_path), DataConfig())] == ["news+c++"]


def test_patterns_expand_sorted_and_names_start_at_the_root(tmp_path: Path):
    (tmp_path / "corpora").mkdir()
    for name in ("b.tsv", "a.tsv", "c.txt", "[x].tsv"):
        (tmp_path / "corpora" / name).write_text(f"{name}\tx\n")
    corpora = open_corpora("corpora/*.tsv", str(tmp_path), DataConfig())
    assert [corpus.name for corpus in corpora] == ["corpora/[x].tsv", "corpora/a.tsv", "corpora/b.tsv"]
    assert read("corpora/[x].tsv", tmp_path) == [("[x].tsv", "x")]


def test_patterns_of_parallel_files_pair_up(tmp_path: Path):
    for name in ("1.en", "1.es", "2.en", "2.es"):
        (tmp_path / name).write_text(name + "\n")
    assert read("*.en+*.es", tmp_path) == [("1.en", "1.es"), ("2.en", "2.es")]
    (tmp_path / "3.en").write_text("3.en\n")
    with pytest.raises(UserError, match=r"\*.en\+\*.es matches 3 source files but 2 target files"):
        read("*.en+*.es", tmp_path)


def test_parallel_patterns_whose_names_disagree_are_refused(tmp_path: Path):
    for name in ("a.en", "c.en", "a.es", "b.es"):
        (tmp_path / name).write_text(name + "\n")
    with pytest.raises(UserError, match=r"\*.en\+\*.es would pair c.en with b.es"):
        read("*.en+*.es", tmp_path)


def test_paths_without_a_root_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_tsv(tmp_path / "a.tsv")
    monkeypatch.chdir(tmp_path)
    assert list(read_pairs("a.tsv", None, DataConfig())) == PAIRS
    assert list(read_pairs(str(tmp_path / "a.tsv"), "elsewhere", DataConfig())) == PAIRS


def test_reading_is_lazy(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("a\tb\nbroken\n")
    pairs = read_pairs("a.tsv", str(tmp_path), DataConfig())
    assert next(pairs) == ("a", "b")
    with pytest.raises(UserError, match=r"a.tsv:2 "):
        next(pairs)


def test_columns_can_be_named(tmp_path: Path):
    parquet.write_table(
        pa.table({"english": ["a"], "non_english": ["b"], "en": ["c"], "es": ["d"]}), tmp_path / "a.parquet"
    )
    assert read("a.parquet", tmp_path, columns=["english", "non_english"]) == [("a", "b")]
    assert read("a.parquet", tmp_path) == [("c", "d")]


def test_other_languages_select_other_columns(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"translation": {"fr": "oui", "es": "sí", "en": "yes"}}\n')
    assert read("a.jsonl", tmp_path, src_lang="fr", tgt_lang="en") == [("oui", "yes")]


def test_a_null_is_read_as_empty_text(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"en": null, "es": "x"}\n\n{"en": "y", "es": "z"}\n')
    assert read("a.jsonl", tmp_path) == [("", "x"), ("y", "z")]


def test_a_quoted_line_end_in_csv_is_part_of_the_text(tmp_path: Path):
    (tmp_path / "a.csv").write_text('en,es\n"a\nb",c\n')
    assert read("a.csv", tmp_path) == [("a\nb", "c")]


def table_bytes() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"en": ["a"], "es": ["b"]}), file)
    return file.getvalue()


DEFECTS = {
    "one field": ("a.tsv", b"a\tb\nab\n", r"a.tsv:2 has 1 tab-separated fields, expected 2"),
    "three fields": ("a.tsv", b"a\tb\tc\n", r"a.tsv:1 has 3 tab-separated fields, expected 2.*, as `cut -f1,2` would"),
    "blank line": ("a.tsv", b"a\tb\n\n", r"a.tsv:2 has 1 tab-separated fields, expected 2"),
    "long field": (
        "a.csv",
        b"en,es\n" + b"a" * 131_073 + b",b\n",
        r"a.csv:2 is not CSV: field larger than field limit",
    ),
    "not UTF-8": ("a.tsv", b"a\tb\na\tni\xf1o\n", r"a.tsv:2 is not UTF-8 \(byte 0xf1 at column 5\)"),
    "NUL at the start": ("a.tsv", b"\x7fELF\0\0", r"a.tsv is binary, not UTF-8 text"),
    "NUL far on": ("a.tsv", b"a\tb\n" * 9000 + b"\0\tb\n", r"a.tsv:9001 is binary, not UTF-8 text"),
    "UTF-16": ("a.csv", "en,es".encode("utf-16"), r"a.csv is binary, not UTF-8 text"),
    "empty": ("a.tsv", b"", r"a.tsv is empty"),
    "only a header": ("a.csv", b"en,es\n", r"a.csv is empty"),
    "no gzip": ("a.tsv.gz", b"a\tb\n", r"a.tsv.gz is damaged or no gz data"),
    "cut gzip": ("a.tsv.gz", gzip.compress(b"a\tb\n" * 99)[:-9], r"a.tsv.gz is damaged or no gz data"),
    "no xz": ("a.tsv.xz", b"a\tb\n", r"a.tsv.xz is damaged or no xz data"),
    "cut xz": (
        "a.jsonl.xz",
        lzma.compress(b'{"en": "", "es": ""}\n' * 99)[:-9],
        r"a.jsonl.xz is damaged or no xz data",
    ),
    "no such column": (
        "a.csv",
        b"english,es\na,b\n",
        r"a.csv:1 has no column en; it has english, es: set data.columns",
    ),
    "name in two lines": ("a.csv", b'"en\nglish",es\na,b\n', r"a.csv:2 has no column en; it has en glish, es: set"),
    "short row": ("a.csv", b"en,es\na,b\na\n", r"a.csv:3 has 1 fields but the header has 2"),
    "open quote": ("a.csv", b'en,es\na,"b\n', r"a.csv:2 is not CSV"),
    "no JSON": ("a.jsonl", b'{"en": "a", "es": "b"}\n{"en"\n', r"a.jsonl:2 is not JSON"),
    "deep JSON": ("a.jsonl", b"[" * 100_000, r"a.jsonl:1 is not JSON: "),
    "no JSON object": ("a.jsonl", b"[1]\n", r"a.jsonl:1 is no JSON object"),
    "missing key": ("a.jsonl", b'{"en": "a", "fr": "b"}\n', r"a.jsonl:1 has no column es; it has en, fr"),
    "missing language": ("a.jsonl", b'{"translation": {"en": "a"}}\n', r"a.jsonl:1 has no translation.es, found en"),
    "number for text": ("a.jsonl", b'{"en": "a", "es": 5}\n', r"a.jsonl:1 has int 5 in es, expected text"),
    "no Parquet": ("a.parquet", b"PAR1 not really", r"a.parquet is damaged or no Parquet file"),
    "Parquet of no UTF-8": (
        "a.parquet",
        table_bytes().replace(b"en", b"\x80n"),
        r"a.parquet is damaged or no Parquet file",
    ),
    "Parquet cut off": ("a.parquet", b"PAR1" + b"\0" * 40 + table_bytes()[-40:], r"a.parquet "),
    "unknown ending": ("a.txt", b"a\tb\n", r"a.txt has an unknown ending: expected .tsv"),
    "compressed Parquet": ("a.parquet.gz", b"", r"a.parquet.gz has an unknown ending"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_one_line_that_names_the_place(tmp_path: Path, defect: str):
    name, content, message = DEFECTS[defect]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_parallel_files_of_unequal_length_tell_both_counts(tmp_path: Path):
    (tmp_path / "a.en").write_text("1\n2\n3\n4\n5\n")
    (tmp_path / "a.es").write_text("1\n2\n")
    with pytest.raises(UserError, match=r"a.en has 5 lines but .*a.es has 2: they must be parallel"):
        read("a.en+a.es", tmp_path)
    with pytest.raises(UserError, match=r"a.es has 2 lines but .*a.en has 5: they must be parallel"):
        read("a.es+a.en", tmp_path, src_lang="es", tgt_lang="en")


def test_a_missing_file_is_named_with_the_way_out(tmp_path: Path):
    with pytest.raises(UserError, match=rf"{tmp_path}/a.tsv does not exist: check the path and data.root"):
        read("a.tsv", tmp_path)
    (tmp_path / "a.en").write_text("x\n")
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/a.es does not exist")):
        read("a.en+a.es", tmp_path)


def test_a_pattern_without_a_match_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"\*.tsv matches no file: check the pattern and data.root"):
        read("*.tsv", tmp_path)


def test_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "corpus").mkdir()
    with pytest.raises(UserError, match=r"corpus is a folder: name the files in it"):
        read("corpus", tmp_path)


@pytest.mark.slow
def test_real_corpora_are_read_whole(shared_data: Path):
    assert len(read("tatoeba/train.tsv", shared_data)) == 107_990
    assert len(read("tests/newstest2012.en+tests/newstest2012.es", shared_data)) == 3_003
    assert len(read("corpora/ud_*.tsv.xz", shared_data)) == 999


REVERSED = {"src_lang": "es", "tgt_lang": "en"}


@pytest.mark.parametrize(("name", "write"), WRITERS.items())
def test_exchanged_languages_exchange_the_sides_of_every_format(
    tmp_path: Path, name: str, write: Callable[[Path], None]
):
    write(tmp_path / name)
    assert read(name, tmp_path, languages=["en", "es"], **REVERSED) == [(tgt, src) for src, tgt in PAIRS]
    assert read(name, tmp_path, languages=["en", "es"]) == PAIRS


def test_columns_given_by_name_are_exchanged_with_their_languages(tmp_path: Path):
    write_csv(tmp_path / "a.csv")
    settings = {"columns": ["en", "es"], "languages": ["en", "es"]}
    assert read("a.csv", tmp_path, **settings, **REVERSED) == [(tgt, src) for src, tgt in PAIRS]


@pytest.mark.parametrize("spec", ["a.en+a.es", "a.es+a.en"])
def test_endings_that_are_languages_tell_the_source_of_parallel_files(tmp_path: Path, spec: str):
    for number, language in enumerate(("en", "es")):
        (tmp_path / f"a.{language}").write_text("".join(f"{pair[number]}\n" for pair in PAIRS), encoding="utf-8")
    assert read(spec, tmp_path) == PAIRS
    assert read(spec, tmp_path, **REVERSED) == [(tgt, src) for src, tgt in PAIRS]


def test_a_tsv_without_languages_is_source_and_target_as_it_stands_for_the_default_languages_only(tmp_path: Path):
    write_tsv(tmp_path / "a.tsv")
    assert read("a.tsv", tmp_path) == PAIRS
    told = (
        "a.tsv does not tell which column is es: give the languages in the order of the columns, "
        "data.languages=[en,es] or [es,en] (in distill and backtranslate: --languages en,es)"
    )
    with pytest.raises(UserError, match=re.escape(told)):
        read("a.tsv", tmp_path, **REVERSED)
    assert read("a.tsv", tmp_path, languages=["es", "en"], **REVERSED) == PAIRS
    with pytest.raises(UserError, match=r"which column is en: .*data.languages=\[fr,en\] or \[en,fr\]"):
        read("a.tsv", tmp_path, tgt_lang="fr")


def test_parallel_files_whose_endings_are_no_languages_need_them_too(tmp_path: Path):
    for number, name in enumerate(("left.txt", "right.txt")):
        (tmp_path / name).write_text("".join(f"{pair[number]}\n" for pair in PAIRS), encoding="utf-8")
    spec = "left.txt+right.txt"
    assert read(spec, tmp_path) == PAIRS
    with pytest.raises(UserError, match=r"left.txt\+right.txt does not tell which file is es: .*of the files"):
        read(spec, tmp_path, **REVERSED)
    assert read(spec, tmp_path, languages=["en", "es"], **REVERSED) == [(tgt, src) for src, tgt in PAIRS]
    assert read(spec, tmp_path, languages=["es", "en"], **REVERSED) == PAIRS


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "a.tsv"])
def test_columns_named_by_language_tell_the_direction(tmp_path: Path, name: str):
    WRITERS[name](tmp_path / name)
    assert read(name, tmp_path, **REVERSED) == [(tgt, src) for src, tgt in PAIRS]


def test_languages_of_columns_must_be_those_of_the_model():
    with pytest.raises(UserError, match=r"data.languages=\['en', 'fr'\] must be data.src_lang=en and data.tgt_lang=es"):
        DataConfig(languages=["en", "fr"])


def test_a_corpus_is_named_by_its_stem_and_by_folders_with_a_plus():
    assert names_corpus("news.2019", "news.2019.tsv.gz")
    assert names_corpus("c++", "c++/z.tsv")
    assert not names_corpus("news.2020", "news.2019.tsv")


def test_a_file_with_a_plus_in_its_name_comes_before_parallel_files(tmp_path: Path):
    for name in ("a", "b.tsv", "a+b.tsv"):
        (tmp_path / name).write_text(f"{name}\tx\n")
    (corpus,) = open_corpora("a+b.tsv", str(tmp_path), DataConfig())
    assert list(corpus.pairs()) == [("a+b.tsv", "x")]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("~nobody-here/x.tsv", "~nobody-here/x.tsv: the home of this user is not known here; give the whole path"),
        (f"{'x' * 300}.tsv", "x.tsv does not exist: check the path and data.root"),
    ],
)
def test_a_path_that_cannot_be_is_refused_in_one_line(tmp_path: Path, spec: str, message: str):
    with pytest.raises(UserError, match=re.escape(message)):
        open_corpora(spec, str(tmp_path), DataConfig())


def test_a_corpus_that_vanishes_is_named(tmp_path: Path):
    (tmp_path / "x.tsv").write_text("a\tb\n")
    (corpus,) = open_corpora("x.tsv", str(tmp_path), DataConfig())
    (tmp_path / "x.tsv").unlink()
    with pytest.raises(UserError, match=r"x.tsv cannot be read: No such file"):
        _ = corpus.size


def test_a_csv_may_have_blank_lines_and_spaces_in_its_header(tmp_path: Path):
    (tmp_path / "x.csv").write_text("\nen, es\n\nYes.,Sí.\n\n")
    (corpus,) = open_corpora("x.csv", str(tmp_path), DataConfig())
    assert list(corpus.pairs()) == [("Yes.", "Sí.")]


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path):
    (tmp_path / "x.csv").write_text("en,es,es\nYes.,Sí.,Si.\n")
    (corpus,) = open_corpora("x.csv", str(tmp_path), DataConfig())
    with pytest.raises(UserError, match=r"x.csv:1 has 2 columns called es: rename all but one"):
        list(corpus.pairs())


def test_files_of_pairs_are_not_joined_by_a_plus(tmp_path: Path):
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text("Yes.\tSí.\n")
    with pytest.raises(UserError, match=r"a \+ joins two files of parallel lines; list files of pairs as \[.*a.tsv,"):
        open_corpora("a.tsv+b.tsv", str(tmp_path), DataConfig())


def test_the_name_of_the_root_is_no_pattern(tmp_path: Path):
    (tmp_path / "[x]").mkdir()
    (tmp_path / "[x]" / "a.tsv").write_text("Yes.\tSí.\n")
    assert [corpus.name for corpus in open_corpora("*.tsv", str(tmp_path / "[x]"), DataConfig())] == ["a.tsv"]


def test_a_message_quotes_no_whole_text(tmp_path: Path):
    (tmp_path / "x.jsonl").write_text(json.dumps({"translation": "x" * 5000}) + "\n")
    (corpus,) = open_corpora("x.jsonl", str(tmp_path), DataConfig())
    with pytest.raises(UserError, match=r"x.jsonl:1 has no translation.en, found 'x{39}: check data.columns"):
        list(corpus.pairs())
