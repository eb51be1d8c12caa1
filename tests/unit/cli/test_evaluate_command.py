"""`seq2seq evaluate` with several files: how they are named, and what is refused."""

import functools
import json
from pathlib import Path

import pytest
import sacrebleu

from seq2seq.settings.bundle import Calibration
from seq2seq.translate.bundle import load_bundle, save_bundle

LINES = {
    "a.es": ["El gato ve la leche.", "Una bola.", "¿Un perro grande?"],
    "b.es": ["El gato ve leche.", "Una bola azul.", "¿Un perro?"],
    "r1.es": ["El gato ve la leche.", "Una bola azul.", "¿Un perro?"],
    "r2.es": ["El gato mira la leche.", "Una pelota azul.", "¿Algún perro?"],
    "in.en": ["The cat sees the milk.", "A blue ball.", "A dog?"],
}
FEW = ("--samples", "20", "--trials", "20")


@pytest.fixture
def evaluate(seq2seq, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in LINES.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return functools.partial(seq2seq, "evaluate")


WORDS = [
    "--reference r1.es --reference r2.es --hypotheses=a.es b.es --hypotheses a.es",
    "--hypotheses a.es --hypotheses b.es a.es --reference=r1.es r2.es",
]


@pytest.mark.parametrize("words", WORDS)
def test_several_files_follow_their_option_or_repeat_it(evaluate, words):
    status, out, _ = evaluate(*words.split(), *FEW, "--json")
    comparison = json.loads(out)
    assert (status, comparison["systems"], comparison["num_references"]) == (0, ["a.es", "b.es", "a.es"], 2)
    scores = [system["value"] for system in comparison["metrics"]["bleu"]["systems"]]
    references = [LINES["r1.es"], LINES["r2.es"]]
    assert scores == [sacrebleu.corpus_bleu(LINES[name], references).score for name in comparison["systems"]]
    assert comparison["metrics"]["ter"]["systems"][2]["randomisation_p"] == 1


def test_one_file_with_several_references_keeps_its_table(evaluate):
    status, out, _ = evaluate("--hypotheses", "a.es", "--reference", "r1.es", "r2.es", "--json")
    assert status == 0
    scores = json.loads(out)
    assert set(scores) == {"bleu", "chrf", "ter", "num_sentences"}
    assert scores["bleu"]["signature"].startswith("nrefs:2|")


def test_metrics_are_chosen_and_misplaced_words_are_refused(evaluate):
    words = ("--hypotheses", "a.es", "--reference", "r1.es")
    scores = json.loads(evaluate(*words, "--metric", "ter", "bleu", "--json", *FEW)[1])
    assert list(scores["metrics"]) == ["bleu", "ter"]
    assert scores["metrics"]["bleu"]["systems"][0]["interval"] > 0
    for wrong in ("--metric meteor", "--json a.es", "--samples 5 6", "--trials -1", "--input in.en"):
        assert evaluate(*words, *wrong.split())[0] == 2


def test_a_line_that_is_too_long_for_ter_is_named_before_the_work(evaluate):
    Path("long.es").write_text("El gato.\n" + "palabra " * 501 + "\nUn perro.\n", encoding="utf-8")
    words = ("--hypotheses", "long.es", "--reference", "long.es")
    status, _, err = evaluate(*words)
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith("warning: long.es:2 has 501 words, and TER of such a line can take minutes or hours: ")
    assert evaluate(*words, "--metric", "bleu", "--samples", "5")[2] == ""


@pytest.mark.slow
def test_unusual_texts_are_counted_by_family(evaluate, tmp_path):
    bundle = Path(__file__).parents[2] / "golden" / "bundle"
    words = ("--robustness", "--model", str(bundle), "--input", "in.en", "--reference", "r1.es")
    status, out, _ = evaluate(*words, "--json", "--repair")
    families = json.loads(out)
    assert (status, len(families)) == (0, 9)  # no line is long enough
    assert families["CAPITALS"]["probes"] == families["placeholders"]["probes"] == 2
    assert families["placeholders"]["lost_parts"] == 0
    _, plain, _ = evaluate(*words, "--json", "--no-repair")
    assert json.loads(plain)["CAPITALS"]["chrf"] != families["CAPITALS"]["chrf"]
    assert evaluate(*words, "--metric", "bleu")[0] != 0


@pytest.mark.slow
def test_confidences_are_compared_with_the_references(evaluate, tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "bundle"
    words = ("--confidence", "--input", "in.en", "--reference", "r1.es", "--model")
    status, _, err = evaluate(*words, str(golden))
    assert (status, "is not calibrated, so it gives no confidence" in err) == (1, True)
    bundle = load_bundle(golden)
    bundle.config.calibration = Calibration(100.0, 0.0, 0.0, 0.0)
    save_bundle(tmp_path / "model", bundle, card="")
    status, out, _ = evaluate(*words, str(tmp_path / "model"), "--json")
    found = json.loads(out)
    assert (status, found["translations"]) == (0, 3)
    assert found["error"] == pytest.approx(1 - found["acceptable"])
    _, out, _ = evaluate(*words, str(tmp_path / "model"))
    assert "expected calibration" in " ".join(out.split())
    assert evaluate(*words, str(tmp_path / "model"), "--robustness")[0] == 2
