"""Each check drops what it is for, is counted under its own name, and nothing else is touched."""

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from seq2seq.settings.data import DataConfig
from seq2seq.text.filters import REASONS, Cleaner, digest_pair, drop_table

LIMITS = DataConfig(max_characters=40, max_ratio=2.0)


def clean(pairs: list[tuple[str, str]], config: DataConfig = LIMITS) -> tuple[list[tuple[str, str]], Counter[str]]:
    counts: Counter[str] = Counter()
    return list(Cleaner(config).clean(pairs, counts)), counts


DROPPED = {
    "no source": ("", "hola", "empty"),
    "nothing to see": ("hello", " \u200b\n", "empty"),
    "one character too many": ("a" * 41, "b" * 40, "characters"),
    "too unlike in length": ("a" * 21, "b" * 10, "ratio"),
    "too unlike the other way": ("a" * 10, "b" * 21, "ratio"),
    "a copy": ("OK  ", "\u00a0OK", "identical"),
}
KEPT = {
    "as long as allowed": ("a" * 40, "b" * 40),
    "as unlike as allowed": ("a" * 22, "b" * 11),
    "short and unlike": ("No.", "De ninguna manera."),
    "same but for case": ("Madrid", "madrid"),
}


@pytest.mark.parametrize("case", DROPPED)
def test_a_bad_pair_is_dropped_under_its_reason(case: str):
    src, tgt, reason = DROPPED[case]
    kept, counts = clean([(src, tgt), ("fine", "bien")])
    assert kept == [("fine", "bien")]
    assert counts == {"read": 2, "kept": 1, reason: 1}


@pytest.mark.parametrize("case", KEPT)
def test_a_pair_within_the_limits_is_kept(case: str):
    assert clean([KEPT[case]])[0] == [KEPT[case]]


def test_kept_pairs_are_normalised():
    assert clean([(" a\tb ", "nin\u0303o")])[0] == [("a b", "niño")]


def test_a_pair_equals_another_whatever_its_spacing_but_not_if_the_border_between_the_sides_moves():
    (pair, same, other), _ = clean([("a b", "c"), ("a  b", "c\u00a0"), ("a", "b c")])
    assert digest_pair(*pair) == digest_pair(*same) != digest_pair(*other)


def test_checks_come_in_the_documented_order():
    _, counts = clean([("", "x" * 99), ("y" * 99, "y" * 99), ("z" * 30, "z"), ("c", "c")])
    found = [reason for reason in counts if reason in REASONS]
    assert found == [reason for reason in REASONS[1:6] if reason != "language"]
    assert found == ["empty", "characters", "ratio", "identical"]


def test_identical_sides_can_be_kept():
    assert clean([("c", "c")], DataConfig(drop_identical=False))[0] == [("c", "c")]


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60))))
def test_every_pair_read_is_either_kept_or_counted_under_one_reason(pairs: list[tuple[str, str]]):
    kept, counts = clean(pairs)
    assert counts["read"] == len(pairs)
    assert counts["kept"] == len(kept)
    assert counts["read"] == counts["kept"] + sum(counts[reason] for reason in REASONS)


def test_cleaning_is_lazy():
    def endless():
        while True:
            yield "a", "b"

    assert next(Cleaner(LIMITS).clean(endless(), Counter())) == ("a", "b")


def rendered(files: list[dict]) -> str:
    file = io.StringIO()
    Console(width=80, file=file).print(drop_table({"files": files}))
    return file.getvalue()


def test_the_table_shows_each_corpus_the_reasons_that_occurred_and_the_total():
    lines = rendered(
        [
            {"name": "a.tsv", "read": 1500, "kept": 1495, "empty": 2, "duplicate": 3},
            {"name": "b.tsv", "read": 500, "kept": 499, "empty": 1},
        ]
    ).splitlines()
    cells = [line.split() for line in lines]
    assert ["corpus", "read", "empty", "duplicate", "kept"] in cells
    assert ["a.tsv", "1,500", "2", "3", "1,495"] in cells
    assert ["b.tsv", "500", "1", "0", "499"] in cells
    assert ["total", "2,000", "3", "3", "1,994"] in cells


def test_the_table_of_one_corpus_has_no_total_and_names_held_out_pairs():
    text = rendered([{"name": "a.tsv", "read": 9, "kept": 7, "held out": 2}])
    assert "held out" in text
    assert "total" not in text


def test_numbers_are_not_cut_in_a_narrow_terminal():
    counts = dict.fromkeys(("empty", "ratio", "identical", "duplicate", "overlap", "tokens"), 54_321)
    text = rendered([{"name": "corpora/a_rather_long_name.tsv.xz", "read": 9_876_543, "kept": 7_000_001, **counts}])
    assert text.count("54,321") == 6
    assert "9,876,543" in text
    assert "7,000,001" in text
