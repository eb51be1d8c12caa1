"""COMET in a process of its own; in these tests a module of its name stands in for it."""

import ast
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from seq2seq.errors import UserError
from seq2seq.evaluation import comet_worker
from seq2seq.evaluation.comet import MODEL, Comet, run_comet
from seq2seq.evaluation.significance import compare

SOURCES = ["The cat drinks.", "A dog runs.", "Ébano"]
REFERENCE = ["El gato bebe.", "Un perro corre.", "Ebony"]
SYSTEMS = [["El gato.", "Un perro corre.", "Ébano"], ["Gato bebe.", "Un perro.", "Ebony"]]


def scores_of(translations: list[str]) -> list[float]:
    """Return what the fake module gives."""
    texts = zip(SOURCES, translations, REFERENCE, strict=True)
    return [(ord(src[0]) + 2 * len(mt) + 3 * len(ref)) / 100 for src, mt, ref in texts]


def run(model: str, python: str = sys.executable) -> Comet:
    return run_comet(SOURCES, SYSTEMS, REFERENCE, model, python)


def test_each_segment_is_scored_by_source_translation_and_reference(fake_comet: Path) -> None:
    comet = run(str(fake_comet))
    assert comet.scores == {tuple(system): scores_of(system) for system in SYSTEMS}
    assert str(comet.get_signature()).startswith(f"nrefs:1|comet:9.9|model:{fake_comet}|version:")
    for model in (str(fake_comet.parents[1]), MODEL):  # the checkpoint's folder, and a name on the hub
        assert run(model).model == model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("none.ckpt", "--comet-model none.ckpt is no file: give a COMET checkpoint, or a name as Unbabel/wmt22"),
        ("Unbabel/nothing", r"load --comet-model Unbabel/nothing \(OSError: no network\): give the path of a check"),
        (".", r"COMET cannot load --comet-model \. \(Exception: no checkpoint at checkpoints/model\.ckpt\): "),
        ("fails", r"COMET failed to score \(RuntimeError: out of memory\): try fewer lines"),
        ("dies", r"python\S* ended with status -9 and no scores of COMET \(written by native code\): see that it "),
    ],
)
@pytest.mark.usefixtures("fake_comet")
def test_what_fails_is_one_line_with_a_remedy(model: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(model)


def test_what_is_no_python_is_refused() -> None:
    message = r"--comet-python none/python cannot be started \(No such file or directory\): give a Python"
    with pytest.raises(UserError, match=message):
        run(MODEL, "none/python")
    message = r"/bin/true ended with status 0 and no scores of COMET \(it said nothing\): see that it is a Python"
    with pytest.raises(UserError, match=message):
        run(MODEL, "/bin/true")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"scores": [["x"], [1]], "version": "9"}', "no scores of COMET"),
        ('{"scores": [[1, 2, NaN], [1, 2, 3]], "version": "9"}', "scores with --comet-model .* are not one number for"),
        ('{"scores": [[1, 2], [1, 2, 3]], "version": "9"}', "are not one number for each line: try another model"),
    ],
)
def test_an_answer_without_a_score_for_each_line_is_refused(tmp_path: Path, answer: str, message: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{answer}'\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=message):
        run(MODEL, str(python))


def test_a_python_without_comet_is_refused_with_the_commands_that_install_it(fake_comet: Path) -> None:
    (fake_comet.parents[2] / "comet.py").write_text("import not_installed")
    with pytest.raises(
        UserError, match=r"needs the package unbabel-comet, which .*not_installed.*-m venv comet-env && "
    ):
        run(MODEL)


def test_the_paired_tests_are_of_the_means_of_segments() -> None:
    """Both tests, written out in double precision, with sacreBLEU's draws."""
    draw, number = random.Random(3), 80
    scores = [[draw.gauss(mean, 0.1) for _ in range(number)] for mean in (0.8, 0.82)]
    texts = [(name, [f"{name}{line}" for line in range(number)]) for name in "ab"]
    comet = Comet({tuple(lines): values for (_, lines), values in zip(texts, scores, strict=True)}, "model", "9.9")
    metric = compare(texts, [texts[0][1]], [], 500, 500, lambda: comet).metrics["comet"]

    ours, theirs = 100 * np.array(scores)
    difference = abs(ours.mean() - theirs.mean())
    drawn = np.random.default_rng(12345).choice(number, size=(500, number), replace=True)
    resampled = abs(ours[drawn].mean(1) - theirs[drawn].mean(1))
    swapped = np.random.default_rng(12345).integers(2, size=(500, number), dtype=bool)
    shuffled = abs(np.where(swapped, ours - theirs, theirs - ours).mean(1))
    baseline, other = metric.systems
    assert [baseline.value, other.value] == pytest.approx([ours.mean(), theirs.mean()], abs=1e-12)
    counts = np.sum(resampled - resampled.mean() > difference), np.sum(shuffled >= difference - 1e-9)
    expected = [(count + 1) / 501 for count in counts]
    assert [other.bootstrap_p, other.randomisation_p] == expected
    assert 0.01 < min(expected) < 0.9  # neither the least nor the greatest
    assert {"bs:500", "ar:500", "seed:12345", "comet:9.9", "model:model"} <= set(metric.signature.split("|"))


def test_the_worker_is_python_3_8() -> None:
    source = Path(comet_worker.__file__).read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(source, feature_version=(3, 8)))
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert imported
    assert imported <= sys.stdlib_module_names
