"""`seq2seq evaluate` with several files: how they are named, and what is refused."""

import functools
import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import sacrebleu

from seq2seq.errors import UserError
from seq2seq.settings.bundle import Calibration
from seq2seq.translate.bundle import load_bundle, save_bundle
from tests.toy import write_pairs
from tests.unit.conftest import GOLDEN, one_line_error

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
    words = ("--robustness", "--model", GOLDEN, "--input", "in.en", "--reference", "r1.es")
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
    words = ("--confidence", "--input", "in.en", "--reference", "r1.es", "--model")
    status, _, err = evaluate(*words, GOLDEN)
    assert (status, "is not calibrated, so it gives no confidence" in err) == (1, True)
    bundle = load_bundle(GOLDEN)
    bundle.config.calibration = Calibration(100.0, 0.0, 0.0, 0.0)
    save_bundle(tmp_path / "model", bundle, card="")
    status, out, _ = evaluate(*words, str(tmp_path / "model"), "--json")
    found = json.loads(out)
    assert (status, found["translations"]) == (0, 3)
    assert found["error"] == pytest.approx(1 - found["acceptable"])
    _, out, _ = evaluate(*words, str(tmp_path / "model"))
    assert "expected calibration" in " ".join(out.split())
    assert evaluate(*words, str(tmp_path / "model"), "--robustness")[0] == 2


TEXTS = {
    "in.en": ["The cat sees the milk.", "A dog with 12 cats.", "The ball is not blue."],
    "out.es": ["El gato ve la leche.", "Un perro perro.", "La bola es azul."],
    "ref.es": ["El gato ve la leche.", "Un perro con 12 gatos.", "La bola no es azul."],
    "short.es": ["El gato ve la leche."],
    "empty": [],
}
MODEL = ("--model", "runs/a", "--device", "cpu")
GIVEN = "--reference ref.es --input in.en --hypotheses"
FILES = ("--hypotheses", "out.es", "--reference", "ref.es", "--input", "in.en")


@pytest.fixture
def analyse(seq2seq, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in TEXTS.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return functools.partial(seq2seq, "analyse", "--output", "deep/out")


def test_three_files_give_a_table_a_page_and_numbers(analyse):
    status, out, err = analyse(*FILES)
    assert (status, err) == (0, "")
    bleu = sacrebleu.corpus_bleu(TEXTS["out.es"], [TEXTS["ref.es"]]).score
    assert f"3 sentences: BLEU {bleu:.1f}" in out
    analysis = json.loads(Path("deep/out/analysis.json").read_text(encoding="utf-8"))
    assert analysis["bleu"] == bleu
    faults = {
        fault["name"]: [line["number"] for line in fault["worst"]] for fault in analysis["faults"] if fault["worst"]
    }
    assert faults == {"repetition": [2], "missing_number": [2], "negation": [3]}
    assert set(analysis["groups"]) == {"length"}
    page = Path("deep/out/analysis.html").read_text(encoding="utf-8")
    assert "Un perro con 12 gatos." in page
    assert "left out: scores by rarity" in page


def test_several_files_are_several_test_sets_and_training_text_gives_scores_by_rarity(analyse):
    write_pairs(Path("train.tsv"), [("The cat sees the milk.", "x"), ("a dog is blue", "y"), ("the ball", "z")])
    words = ("--hypotheses", "out.es", "ref.es", "--reference", "ref.es", "ref.es", "--input", "in.en", "in.en")
    status, out, _ = analyse(*words, "--training", "train.tsv", "--json")
    assert status == 0
    groups = json.loads(out)["groups"]
    assert [(group["name"], group["num_sentences"]) for group in groups["file"]] == [("out.es", 3), ("ref.es", 3)]
    assert groups["file"][1]["bleu"] == pytest.approx(100)
    assert [(group["name"], group["num_sentences"]) for group in groups["rarity"]] == [("unseen", 4), ("1–5", 2)]


@pytest.fixture
def finished(tmp_path):
    """Write a complete run, as far as its translations go."""
    folder = tmp_path / "runs/a"
    shutil.copytree(GOLDEN, folder / "model")
    write_pairs(tmp_path / "train.tsv", [("The cat sees the milk.", "x")])
    (folder / "config.yaml").write_text("name: a\ndata:\n  train: [train.tsv]\n", encoding="utf-8")
    (folder / "translations").mkdir()
    for kind, name in (("", "out.es"), (".source", "in.en"), (".reference", "ref.es")):
        text = "".join(f"{line}\n" for line in TEXTS[name])
        (folder / f"translations/test{kind}.txt").write_text(text, encoding="utf-8")
    return folder


def test_a_model_gives_attention_and_the_text_of_its_run(analyse, finished):
    status, out, err = analyse(*FILES, *MODEL, "--json")
    assert (status, err) == (0, "")
    analysis = json.loads(out)
    assert "inattention" in [fault["name"] for fault in analysis["faults"]]
    assert [group["name"] for group in analysis["groups"]["rarity"]] == ["unseen", "1–5"]
    why = "left out: invented words: the prepared text of the model's run is not here"
    assert analysis["left_out"] == [why]  # the run's prepared text was removed
    Path("train.tsv").unlink()
    status, _, err = analyse(*FILES, *MODEL)
    assert status == 1
    assert err.startswith("error: the training text of runs/a: ")
    assert err.endswith("; or give --training FILE\n")


@pytest.mark.slow
def test_a_run_is_analysed_by_the_translations_that_it_keeps(seq2seq, analyse, finished):
    results = []
    for words in ((), FILES):
        status, out, err = analyse(*words, *MODEL, "--json")
        assert (status, err) == (0, "" if words else "page: deep/out/analysis.html\n")
        results.append(json.loads(re.sub(r'"file": "[^"]*"', '"file": ""', out)))  # the test set's name, or the file's
    assert results[0] == results[1]
    assert seq2seq("analyse", *MODEL)[2] == "page: runs/a/analysis/analysis.html\n"
    assert (finished / "analysis/analysis.json").is_file()


def test_a_run_without_all_its_translations_is_refused(analyse, finished):
    (finished / "translations/test.txt").write_text("El gato.\n", encoding="utf-8")
    message = "error: runs/a/translations/test.txt has 1 lines, test.source.txt 3: one is damaged"
    assert analyse(*MODEL)[2].startswith(message)
    (finished / "translations/test.source.txt").unlink()
    assert analyse(*MODEL)[2].startswith("error: runs/a keeps no test translations with sources: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "nothing to analyse: give --hypotheses, --reference and --input, or the --model of a run"),
        (f"{GIVEN} short.es", "the files have different numbers of lines: in.en 3, short.es 1, ref.es 3; "),
        (f"{GIVEN} out.es ref.es", "2 --hypotheses, 1 --reference and 1 --input files: give one of each "),
        (f"{GIVEN} out.es --training in.en --languages en,fr", "--languages en,fr has to name en and es, in the "),
    ],
)
def test_bad_input_is_one_line(seq2seq, analyse, words, message):
    assert seq2seq("analyse", *FILES) == (1, "", "error: give --output: the folder of the analysis\n")
    assert one_line_error(analyse(*words.split())).startswith(f"error: {message}")
    assert not Path("deep").exists()


@pytest.mark.parametrize(
    ("words", "obstacle", "message"),
    [
        (("--training", "empty"), None, "--training empty is empty: there is no text in it"),
        ((), "deep/out", "deep/out: File exists"),
        ((), "deep", "deep/out: Not a directory"),
        ((), "deep/out/analysis.html/", "deep/out/analysis.html: Is a directory"),
    ],
)
def test_mistakes_are_found_before_the_model_works(analyse, monkeypatch, words, obstacle, message):
    monkeypatch.setattr("seq2seq.apps.explain.analysis.find_focus", lambda *_: pytest.fail("the model works"))
    if obstacle:
        Path(obstacle).parent.mkdir(parents=True, exist_ok=True)
        Path(obstacle).mkdir() if obstacle.endswith("/") else Path(obstacle).touch()
    assert message in one_line_error(analyse(*FILES, "--model", GOLDEN, "--device", "cpu", *words))


def test_an_error_leaves_the_files_of_before(analyse, monkeypatch):
    assert analyse(*FILES)[0] == 0
    before = {path.name: path.read_bytes() for path in Path("deep/out").iterdir()}
    failing = Mock(side_effect=UserError("it failed"))
    monkeypatch.setattr("seq2seq.apps.explain.analysis.write_analysis_page", failing)
    assert analyse(*FILES, "--worst", 1)[2] == "error: it failed\n"
    assert {path.name: path.read_bytes() for path in Path("deep/out").iterdir()} == before
