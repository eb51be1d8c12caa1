"""`seq2seq analyse`, as a user calls it."""

import json
import shutil
from pathlib import Path

import pytest
import sacrebleu

from seq2seq.cli import app
from seq2seq.errors import UserError
from tests.toy import write_pairs

GOLDEN = Path(__file__).parents[2] / "golden" / "bundle"
LINES = {
    "in.en": ["The cat sees the milk.", "A dog with 12 cats.", "The ball is not blue."],
    "out.es": ["El gato ve la leche.", "Un perro perro.", "La bola es azul."],
    "ref.es": ["El gato ve la leche.", "Un perro con 12 gatos.", "La bola no es azul."],
    "short.es": ["El gato ve la leche."],
    "empty": [],
}
FILES = ("--hypotheses", "out.es", "--reference", "ref.es", "--input", "in.en")


@pytest.fixture
def analyse(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in LINES.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return lambda *words: run(*words, command=("analyse", "--output", "deep/out"), application=app)


def faults(found: dict) -> dict[str, list[int]]:
    return {one["name"]: [line["number"] for line in one["worst"]] for one in found["faults"] if one["worst"]}


def test_three_files_give_a_table_a_page_and_numbers(analyse):
    status, out, err = analyse(*FILES)
    assert (status, err) == (0, "")
    bleu = sacrebleu.corpus_bleu(LINES["out.es"], [LINES["ref.es"]]).score
    assert f"3 sentences: BLEU {bleu:.1f}" in out
    found = json.loads(Path("deep/out/analysis.json").read_text(encoding="utf-8"))
    assert found["bleu"] == bleu
    assert faults(found) == {"repetition": [2], "missing_number": [2], "negation": [3]}
    assert set(found["groups"]) == {"length"}
    page = Path("deep/out/analysis.html").read_text(encoding="utf-8")
    assert "Un perro con 12 gatos." in page
    assert "left out: scores by rarity" in page


def test_json_is_what_the_folder_has(analyse):
    status, out, _ = analyse(*FILES, "--json", "--worst", 1)
    found = json.loads(out)
    assert status == 0
    assert len(found["worst"]) == 1
    assert found == json.loads(Path("deep/out/analysis.json").read_text(encoding="utf-8"))


def test_training_text_gives_scores_by_rarity(analyse):
    write_pairs(Path("train.tsv"), [("The cat sees the milk.", "x"), ("a dog is blue", "y"), ("the ball", "z")])
    status, out, _ = analyse(*FILES, "--training", "train.tsv", "--json")
    assert status == 0
    groups = json.loads(out)["groups"]["rarity"]
    assert [(one["name"], one["num_sentences"]) for one in groups] == [("unseen", 2), ("1–5", 1)]


def test_several_files_are_several_test_sets(analyse):
    words = ("--hypotheses", "out.es", "ref.es", "--reference", "ref.es", "ref.es", "--input", "in.en", "in.en")
    status, out, _ = analyse(*words, "--json")
    assert status == 0
    groups = json.loads(out)["groups"]["file"]
    assert [(one["name"], one["num_sentences"]) for one in groups] == [("out.es", 3), ("ref.es", 3)]
    assert groups[1]["bleu"] == pytest.approx(100)


def test_a_model_gives_attention_and_the_text_of_its_run(analyse):
    write_pairs(Path("train.tsv"), [("The cat sees the milk.", "x")])
    shutil.copytree(GOLDEN, "runs/a/model")
    Path("runs/a/config.yaml").write_text("name: a\ndata:\n  train: [train.tsv]\n", encoding="utf-8")
    status, out, err = analyse(*FILES, "--model", "runs/a", "--device", "cpu", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert "inattention" in [one["name"] for one in found["faults"]]
    assert [one["name"] for one in found["groups"]["rarity"]] == ["unseen", "1–5"]
    assert found["left_out"] == []
    Path("train.tsv").unlink()
    status, _, err = analyse(*FILES, "--model", "runs/a", "--device", "cpu")
    assert status == 1
    assert err.startswith("error: the training text of runs/a: ")
    assert err.endswith("; or give --training FILE\n")


@pytest.fixture
def finished(tmp_path):
    """A complete run, as far as its translations go."""
    run = tmp_path / "runs/a"
    shutil.copytree(GOLDEN, run / "model")
    write_pairs(tmp_path / "train.tsv", [("The cat sees the milk.", "x")])
    (run / "config.yaml").write_text("name: a\ndata:\n  train: [train.tsv]\n", encoding="utf-8")
    (run / "translations").mkdir()
    for kind, name in (("", "out.es"), (".source", "in.en"), (".reference", "ref.es")):
        text = "".join(f"{line}\n" for line in LINES[name])
        (run / f"translations/test{kind}.txt").write_text(text, encoding="utf-8")
    return run


def test_a_run_is_analysed_by_the_translations_that_it_keeps(run, analyse, finished):
    status, out, err = analyse("--model", "runs/a", "--device", "cpu", "--json")
    assert (status, err) == (0, "page: deep/out/analysis.html\n")
    found = json.loads(out)
    given = json.loads(analyse(*FILES, "--model", "runs/a", "--device", "cpu", "--json")[1])
    for one in (found, given):
        for line in (*one["worst"], *(line for fault in one["faults"] for line in fault["worst"])):
            line["file"] = ""  # the test set's name, the file's
    assert found == given
    status, _, err = run("--model", "runs/a", "--device", "cpu", command=("analyse",), application=app)
    assert (status, err) == (0, "page: runs/a/analysis/analysis.html\n")
    assert json.loads((finished / "analysis/analysis.json").read_text(encoding="utf-8"))["num_sentences"] == 3


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("test.txt", "runs/a/translations/test.txt has 1 lines, test.source.txt 3: one is damaged"),
        ("test.source.txt", "runs/a keeps no test translations with sources: it is unfinished, old, or had no test "),
    ],
)
def test_a_run_without_all_its_translations_is_refused(analyse, finished, file, message):
    path = finished / "translations" / file
    if file == "test.txt":
        path.write_text("El gato.\n", encoding="utf-8")
    else:
        path.unlink()
    status, out, err = analyse("--model", "runs/a", "--device", "cpu")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {message}")
    assert not Path("deep").exists()


def test_nothing_to_analyse_is_one_line(run, analyse):
    start = "error: nothing to analyse: give --hypotheses, --reference and --input, or the --model of a run\n"
    assert analyse() == (1, "", start)
    status, _, err = run(*FILES, command=("analyse",), application=app)
    assert (status, err) == (1, "error: give --output: the folder of the analysis\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--hypotheses", "short.es", "--reference", "ref.es", "--input", "in.en"),
            "the files have different numbers of lines: in.en 3, short.es 1, ref.es 3; line i of each must be of the "
            "same text",
        ),
        (
            ("--hypotheses", "out.es", "ref.es", "--reference", "ref.es", "--input", "in.en"),
            "2 --hypotheses, 1 --reference and 1 --input files: give one of each for every test set",
        ),
        (
            ("--hypotheses", "empty", "--reference", "empty", "--input", "empty"),
            "there is nothing to score: 0 translations and 0 reference lines",
        ),
        (
            ("--hypotheses", "out.es", "empty", "--reference", "ref.es", "empty", "--input", "in.en", "empty"),
            "there is nothing to score: 0 translations and 0 reference lines",
        ),
        (("--hypotheses", "none.es", "--reference", "ref.es", "--input", "in.en"), "none.es cannot be read: "),
        (
            (*FILES, "--training", "in.en", "--languages", "en,fr"),
            "--languages en,fr has to name en and es, in the order of the columns: give en,es or es,en",
        ),
        ((*FILES, "--training", "empty"), "--training empty is empty: there is no text in it"),
        ((*FILES, "--model", "nothing"), "--model nothing is no folder: give runs/NAME or runs/NAME/model"),
    ],
)
def test_bad_input_is_one_line(analyse, words, message):
    status, out, err = analyse(*words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {message}")
    assert not Path("deep").exists()


@pytest.fixture
def no_reading(monkeypatch):
    """A model that must not begin to read."""

    def refuse(*_):
        raise AssertionError("the model reads before all is checked")

    monkeypatch.setattr("seq2seq.explain.analysis.find_focus", refuse)
    return ("--model", str(GOLDEN), "--device", "cpu")


@pytest.mark.parametrize("words", [("--training", "empty"), ("--training", "none.tsv")])
def test_the_training_text_is_read_before_the_model_works(analyse, no_reading, words):
    status, out, err = analyse(*FILES, *no_reading, *words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert words[1] in err
    assert not Path("deep").exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("deep/out", "--output deep/out is a file: name a folder"),
        ("deep", "--output deep/out cannot be made: Not a directory"),
    ],
)
def test_a_file_in_the_place_of_the_folder_is_refused_before_the_model_works(analyse, no_reading, place, message):
    Path(place).parent.mkdir(exist_ok=True)
    Path(place).write_text("")
    status, out, err = analyse(*FILES, *no_reading)
    assert (status, out, err) == (1, "", f"error: {message}\n")


def test_what_cannot_be_written_is_refused_before_the_model_works(analyse, no_reading):
    Path("deep/out/analysis.html").mkdir(parents=True)
    status, out, err = analyse(*FILES, *no_reading)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.endswith("deep/out/analysis.html cannot be written: Is a directory\n")


def test_an_error_leaves_the_files_of_before(analyse, monkeypatch):
    assert analyse(*FILES)[0] == 0
    before = {path.name: path.read_bytes() for path in Path("deep/out").iterdir()}

    def fail(*_):
        raise UserError("it failed")

    monkeypatch.setattr("seq2seq.explain.analysis.write_analysis_page", fail)
    assert analyse(*FILES, "--worst", 1)[2] == "error: it failed\n"
    assert {path.name: path.read_bytes() for path in Path("deep/out").iterdir()} == before
