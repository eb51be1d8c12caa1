"""The commands `score` and `export`."""

import json
import re

import pytest
import torch

from seq2seq.translate.translator import Translator
from tests.unit.conftest import one_line_error

LINES = ["The cat drank the milk.", "", "Ella ve la leche.", "¿Quién quiere niños?"]
TARGETS = ["El gato", "", "Ella", "niños"]


@pytest.fixture
def score(seq2seq, bundle_folder, tmp_path):
    """Return a function that scores four translations, or those of other texts."""
    source, target = tmp_path / "in.en", tmp_path / "out.es"

    def call(*options, sources=LINES, targets=TARGETS):
        source.write_text("".join(f"{line}\n" for line in sources))
        target.write_text("".join(f"{line}\n" for line in targets))
        model = ("--model", bundle_folder, "--device", "cpu")
        return seq2seq("score", *model, "--input", source, "--translations", target, *options)

    return call


def test_given_translations_are_scored(score, translator):
    expected = translator.score(LINES, TARGETS, align=True)
    lines = "".join(f"{pair.score:.4f}\t{pair.normalised_score:.4f}\n" for pair in expected)
    assert score() == (0, lines, "")
    first = score("--per-token")[1].splitlines()[0].split("\t")[2:]
    assert [token.split(" ")[0] for token in first] == expected[0].tokens
    first = json.loads(score("--json", "--per-token")[1].splitlines()[0])
    assert first["log_probs"] == pytest.approx(expected[0].log_probs)
    assert first["alignment"] == [list(pair) for pair in expected[0].alignment]
    assert "the input is longer than the translations: 4 lines against 1" in one_line_error(score(targets=["El gato"]))


def test_scores_are_of_float32_products_where_translation_is_in_bf16(score, translator, bundle_folder, monkeypatch):
    monkeypatch.setattr("seq2seq.translate.engine.default_dtype", lambda device: torch.bfloat16)  # as on a GPU
    scores = [json.loads(line)["score"] for line in score("--json")[1].splitlines()]
    exact, rounded = (
        [pair.score for pair in Translator.load(bundle_folder, "cpu", dtype).score(LINES, TARGETS)]
        for dtype in (torch.float32, None)
    )
    assert scores == pytest.approx(exact, abs=1e-5)
    assert rounded != pytest.approx(exact, abs=1e-4)


def test_a_pair_that_is_too_long_is_refused_by_its_line(score, tmp_path):
    long, short = ["El gato", "leche " * 2100], ["El gato", "leche"]
    for side, sources, targets in (("input", long, short), ("translations", short, long)):
        err = one_line_error(score("--output", tmp_path / "out", sources=sources, targets=targets))
        assert re.search(
            rf"error: --{side}, line 2 has \d+,\d+ tokens, .* may have at most 2,048: split both sides", err
        )
    assert not (tmp_path / "out").exists()


def test_an_option_that_an_export_does_not_have_is_refused(seq2seq, bundle_folder, tmp_path):
    for form, has in (("huggingface", "float32"), ("bundle", "float32 or float16")):
        words = ("export", form, "--model", bundle_folder, "--output", tmp_path / "export")
        err = one_line_error(seq2seq(*words, "--quantization", "int8"))
        assert f"export {form} writes {has} weights, not int8: leave out --quantization" in err
        assert not (tmp_path / "export").exists()
    words = ("export", "html", "--model", bundle_folder, "--output", tmp_path / "model.html", "--quantization", "int8")
    status, _, err = seq2seq(*words)
    assert (status, err) == (1, "error: export html always writes weights of 8 bits: leave out --quantization\n")
