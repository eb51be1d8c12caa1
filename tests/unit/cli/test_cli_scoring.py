"""The commands `score` and `export`."""

import json
import re

import pytest
import torch

from seq2seq.cli import app
from seq2seq.translator import Translator

LINES = ["The cat drank the milk.", "", "Ella ve la leche.", "¿Quién quiere niños?"]


@pytest.fixture(scope="module")
def translator(bundle_folder):
    return Translator.load(bundle_folder, "cpu")


def test_given_translations_are_scored(run, bundle_folder, translator, tmp_path):
    source, target = tmp_path / "in.en", tmp_path / "out.es"
    source.write_text("\n".join(LINES))
    target.write_text("El gato\n\nElla\nniños\n")
    command = ("score", "--model", str(bundle_folder), "--device", "cpu")
    arguments = ("--input", source, "--translations", target)
    status, out, err = run(*arguments, command=command, application=app)
    assert (status, err) == (0, "")
    readings = translator.score(LINES, ["El gato", "", "Ella", "niños"], align=True)
    assert out.splitlines() == [f"{one.score:.4f}\t{one.normalised_score:.4f}" for one in readings]
    _, out, _ = run(*arguments, "--per-token", command=command, application=app)
    first = out.splitlines()[0].split("\t")[2:]
    assert [token.split(" ")[0] for token in first] == readings[0].tokens
    _, out, _ = run(*arguments, "--json", "--per-token", command=command, application=app)
    objects = [json.loads(line) for line in out.splitlines()]
    assert objects[0]["log_probs"] == pytest.approx(readings[0].log_probs)
    assert objects[0]["alignment"] == [list(pair) for pair in readings[0].alignment]
    target.write_text("El gato\n")
    status, _, err = run(*arguments, command=command, application=app)
    assert (status, err.count("\n")) == (1, 1)
    assert "the input is longer than the translations: 4 lines against 1" in err


def test_scores_are_of_float32_products_where_translation_is_in_bf16(run, bundle_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.engine.default_dtype", lambda device: torch.bfloat16)  # as on a GPU
    source, target = tmp_path / "in.en", tmp_path / "out.es"
    source.write_text("\n".join(LINES))
    target.write_text("El gato\n\nElla\nniños\n")
    command = ("score", "--model", str(bundle_folder), "--device", "cpu")
    out = run("--input", source, "--translations", target, "--json", command=command, application=app)[1]
    told = [json.loads(line)["score"] for line in out.splitlines()]
    exact, rounded = (
        [
            one.score
            for one in Translator.load(bundle_folder, "cpu", dtype).score(LINES, target.read_text().splitlines())
        ]
        for dtype in (torch.float32, None)
    )
    assert told == pytest.approx(exact, abs=1e-5)
    assert rounded != pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("side", ["input", "translations"])
def test_a_pair_too_long_to_be_read_whole_is_refused_by_its_line(run, bundle_folder, tmp_path, side):
    for name in ("input", "translations"):
        (tmp_path / name).write_text("El gato\n" + ("leche " * 5000 if name == side else "leche") + "\n")
    command = ("score", "--model", str(bundle_folder), "--device", "cpu")
    files = ("--input", tmp_path / "input", "--translations", tmp_path / "translations", "--output", tmp_path / "out")
    status, out, err = run(*files, command=command, application=app)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert re.search(rf"error: --{side}, line 2 has \d+,\d+ tokens, .* of at most 2,048 a side: split it", err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_an_option_that_an_export_does_not_have_is_refused(run, bundle_folder, tmp_path, kind):
    command = ("export", "huggingface", "--model", str(bundle_folder), "--output", str(tmp_path / "export"))
    status, _, err = run("--quantization", kind, command=command, application=app)
    assert (status, err.count("\n")) == (1, 1)
    assert f"--quantization {kind} would do nothing: leave it out, or use `seq2seq export ctranslate2" in err
    assert not (tmp_path / "export").exists()
