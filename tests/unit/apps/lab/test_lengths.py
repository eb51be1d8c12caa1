from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from seq2seq.apps.lab.report import FEWEST, bleu_by_length, make_buckets, table
from seq2seq.cli import app
from tests.refusing import refuses

SHORT, LONG = [f"A cat sees dog {i}." for i in range(30)], [f"{'the old cat ' * 4}sees {i}." for i in range(25)]


def test_sources_are_grouped_by_their_words() -> None:
    buckets = make_buckets([*SHORT, *LONG, "one two three four five six"])
    assert [(bucket.name, len(bucket.lines)) for bucket in buckets] == [("1–5", 30), ("11–15", 25)]
    assert buckets[1].lines == list(range(30, 55))
    assert [bucket.name for bucket in make_buckets(["word " * 50] * FEWEST)] == ["41+"]
    refuses("19 sentences are too few: no group of like length has 20", make_buckets, ["one two"] * 19)


def test_every_group_is_scored_by_itself() -> None:
    sources = [*SHORT, *LONG]
    buckets = make_buckets(sources)
    forgetful = [*SHORT, *(text.replace("sees", "forgets") for text in LONG)]
    short, long = bleu_by_length(buckets, forgetful, sources)
    assert (short.bleu, short.half_width) == (pytest.approx(100), pytest.approx(0))
    assert long.bleu == pytest.approx(BLEU().corpus_score(forgetful[30:], [LONG]).score)
    assert bleu_by_length(buckets, forgetful, sources)[1] == long
    assert table(buckets, {"a": [short, long]}).splitlines()[1] == "1–5\t30\t100.0 ± 0.0"


@pytest.mark.slow
def test_the_command_draws_and_prints(run, bundle_folder: Path, tmp_path: Path) -> None:
    for side in ("en", "es"):
        (tmp_path / f"test.{side}").write_text("\n".join(SHORT) + "\n")
    arguments = ("lab", "lengths", "--model", bundle_folder, "--model", bundle_folder.parent)
    files = ("--input", tmp_path / "test.en", "--reference", tmp_path / "test.es", "--output", tmp_path / "x.png")
    status, out, _ = run(*arguments, *files, "--device", "cpu", "--beam", "1", command=(), application=app)
    assert status == 0
    assert out.splitlines()[0].startswith("words\tsentences\t")
    assert (tmp_path / "x.png").stat().st_size > 5000
