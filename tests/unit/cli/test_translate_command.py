import gzip
import json
import os
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from sacrebleu.dataset import DATASETS

from seq2seq.translate.translator import Translator
from tests.unit.conftest import one_line_error

PUBLISHED = Path(__file__).parents[3] / "data" / "model"
LINES = ["The cat drank the milk.", "", "Ella ve la leche.", "¿Quién quiere niños?"]


@pytest.fixture(scope="module")
def expected(bundle_folder):
    return Translator.load(bundle_folder, "cpu").translate(LINES)


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.en"
    file.write_bytes("\r\n".join(LINES).encode())
    return file


def test_every_argument_is_a_sentence_and_gives_a_line(run, expected):
    assert run(LINES[0], LINES[2]) == (0, f"{expected[0]}\n{expected[2]}\n", "")


def test_text_in_the_language_of_the_model_is_one_warning(run, tmp_path):
    spanish, english = "El perro de mi hermana está en la casa.", "The dog of my sister was at the door."
    texts = {"in.txt": f"{spanish}\n", "in.md": f"# Casa\n\n{spanish}\n\n{spanish}\n", "in.en": english}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    document = ("--input", tmp_path / "in.md", "--output", tmp_path / "out.md")
    message = f"the texts look like es, but the model translates en→es: check the text, .* \\(the first is '{spanish}'"
    for words in ((spanish,), ("--input", tmp_path / "in.txt"), (), document):
        status, _, err = run(*words, stdin=b"" if words else spanish.encode())
        assert status == 0
        assert len(re.findall(message, err)) == 1
    words = ("--input", tmp_path / "in.en", "--reference", tmp_path / "in.en")
    assert "the references look like en (the first is 'The dog" in run(*words)[2]
    assert run(english)[2] == ""


@pytest.fixture
def runs(tmp_path, monkeypatch, bundle_folder):
    """A working directory with runs/older and runs/newest, which runs/latest links to."""
    for name in ("older", "newest"):
        shutil.copytree(bundle_folder, tmp_path / "runs" / name / "model")
    (tmp_path / "runs" / "latest").symlink_to("newest")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("runs")
def test_a_model_that_nobody_named_is_named_on_stderr(run, seq2seq, expected, source, tmp_path):
    line = "model: runs/newest/model\n"
    assert run(LINES[0], command=()) == (0, f"{expected[0]}\n", line)
    status, out, err = run(stdin="\n".join(LINES).encode(), command=())
    assert (status, out.split("\n"), err) == (0, [*expected, ""], line)
    (tmp_path / "out.es").write_text("\n".join(expected), encoding="utf-8")
    for words in (
        ("score", "--input", source, "--translations", "out.es"),
        ("export", "huggingface", "--output", "exported", "--quantization", "float32"),
        ("backtranslate", "--input", source, "--output", "back.tsv", "--max-length", "2"),
    ):
        assert seq2seq(*words)[2].startswith(line)
    assert run(LINES[0], "--model", "runs/older", command=())[2] == ""
    scores = run("--input", source, "--reference", "out.es", "--json", command=())[2]  # and nothing beside them
    assert json.loads(scores)["num_sentences"] == 4


def test_a_fresh_clone_translates_before_any_training(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = run("The black cat drank the milk.", command=())
    assert (status, out) == (0, "El gato negro bebió la leche.\n")
    assert err == f"model: {PUBLISHED} (comes with the project; `python train.py` trains another)\n"


def test_the_model_of_a_clone_is_small_and_its_card_names_texts_licences_and_recipe():
    assert sum(path.stat().st_size for path in PUBLISHED.iterdir()) < 18 * 2**20
    card = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    assert all(word in card for word in ("CC BY 2.0 FR", "experiment=mixed_cpu", "float16"))
    weights = yaml.safe_load((PUBLISHED.parents[1] / "conf/data/mixed_cpu.yaml").read_text(encoding="utf-8"))["weights"]
    assert {name for name in weights if name.lower() not in card.lower()} == set()


def test_standard_input_gives_a_line_for_every_line(run, expected):
    status, out, err = run(stdin=("\n".join(LINES) + "\n").encode())
    assert (status, out.split("\n"), err) == (0, [*expected, ""], "")
    assert run(stdin=b"") == (0, "", "")


def test_a_file_with_crlf_gives_the_same_as_one_without(run, source, expected, tmp_path):
    out_file = tmp_path / "out.es"
    assert run("--input", source, "--output", out_file) == (0, "", "")
    assert out_file.read_bytes().decode() == "".join(f"{line}\n" for line in expected)


def test_a_sentence_may_start_with_a_dash_after_two_dashes(run):
    status, out, _ = run("--", "-No.", "--beam")
    assert (status, out.count("\n")) == (0, 2)


def test_nbest_lines_carry_number_translation_and_score(run, bundle_folder):
    status, out, _ = run("--n-best", "3", *LINES)
    rows = [line.split(" ||| ") for line in out.splitlines()]
    assert status == 0
    assert [int(row[0]) for row in rows] == [1, 1, 1, 2, 3, 3, 3, 4, 4, 4]
    best = Translator.load(bundle_folder, "cpu").translate_nbest(LINES, 3)
    assert [row[1] for row in rows] == [one.text for entry in best for one in entry]
    assert [float(row[2]) for row in rows] == [round(one.normalised_score, 4) for entry in best for one in entry]


def test_json_gives_an_object_for_every_line(run, expected, translator):
    status, out, _ = run("--json", "--n-best", "2", stdin="\n".join(LINES).encode())
    objects = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [entry["source"] for entry in objects] == LINES
    assert [entry["translation"] for entry in objects] == expected
    assert [entry["line"] for entry in objects] == [1, 2, 3, 4]
    assert [len(entry["n_best"]) for entry in objects] == [2, 1, 2, 2]
    best = translator.translate_nbest(LINES, 2, align=True)
    alignments = [[[list(pair) for pair in one.alignment] for one in n_best] for n_best in best]
    assert [[hypothesis["alignment"] for hypothesis in entry["n_best"]] for entry in objects] == alignments
    assert [entry["alignment"] for entry in objects] == [first for first, *_ in alignments]
    assert objects[0]["n_best"][0]["score"] == objects[0]["score"] < objects[0]["normalised_score"] < 0


@pytest.mark.slow
def test_references_give_scores_with_signatures_on_stderr(run, source, expected, tmp_path):
    reference = tmp_path / "ref.es"
    reference.write_text("".join(f"{line}\n" for line in expected), encoding="utf-8")
    status, out, err = run("--input", source, "--reference", reference)
    assert (status, out.splitlines()) == (0, expected)
    assert all(name in err for name in ("BLEU", "chrF++", "TER"))
    _, _, err = run("--input", source, "--reference", reference, "--json")
    assert json.loads(err)["chrf"]["value"] == pytest.approx(100)
    assert "nw:2" in json.loads(err)["chrf"]["signature"]


@pytest.mark.parametrize("number", [3, 5])
def test_a_reference_of_another_length_is_refused_before_translating(run, source, tmp_path, number, monkeypatch):
    monkeypatch.setattr(Translator, "load", lambda *_: pytest.fail("translated"))
    reference, relation = tmp_path / "ref.es", "shorter" if number == 3 else "longer"
    reference.write_text("hola\n" * number)
    for stdin, options in ((b"", ("--input", source)), ("\n".join(LINES).encode(), ())):
        status, out, err = run(*options, "--reference", reference, stdin=stdin)
        assert (status, out) == (1, "")
        assert err.startswith(f"error: the reference is {relation} than the input: {number} lines against 4; ")


@pytest.fixture
def testset(tmp_path, monkeypatch):
    """sacreBLEU's wmt13 as two lines in its own folder."""
    folder = tmp_path / "wmt13"
    folder.mkdir()
    for field in DATASETS["wmt13"].fieldnames("en-es"):
        (folder / f"wmt13.en-es.{field}").write_text("The cat.\nUna bola azul.\n")
    monkeypatch.setattr(DATASETS["wmt13"], "_outdir", str(folder))


def test_a_public_test_set_is_translated_and_scored(run, testset):
    status, out, err = run("--testset", "wmt13", "--json")
    assert status == 0
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["The cat.", "Una bola azul."]
    assert json.loads(err)["num_sentences"] == 2


@pytest.mark.slow
def test_a_users_mistake_is_one_line(run, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = tmp_path / "bad.en"
    bad.write_bytes(b"one\n\xe1\n")
    assert "bad.en:2 is not UTF-8 (byte 0xe1 at column 1)" in one_line_error(run("--input", bad))
    error = one_line_error(run("--output", tmp_path / "out", stdin=b"one\n\xff\n"))
    assert "stdin:2 is not UTF-8 (byte 0xff at column 1)" in error
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []
    assert "missing.en cannot be read: No such file" in one_line_error(run("--input", tmp_path / "missing.en"))
    assert "no/out.es: No such file" in one_line_error(run("--input", source, "--output", "no/out.es"))
    with monkeypatch.context() as patch:
        patch.setattr("seq2seq.storage.output.clone", lambda: None)  # an installed wheel
        assert "there is no model under" in one_line_error(run("hola", command=()))
    assert "no folder: give runs/NAME" in one_line_error(run("hola", command=("--model", "nothing")))
    assert "sentence 1 is not UTF-8" in one_line_error(run("ni\udcf1o"))


@pytest.mark.slow
def test_a_file_of_a_format_that_is_not_read_is_refused_by_name(run, source, expected, tmp_path):
    subtitles = tmp_path / "in.ass"
    shutil.copy(source, subtitles)
    error = one_line_error(run("--input", subtitles))
    assert "in.ass: .ass files are not translated, only lines and .srt .vtt .po" in error
    assert run("--input", subtitles, "--format", "lines") == run("--input", source)
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    error = one_line_error(run("--input", pipe, "--output", tmp_path / "out.md"))
    assert "pipe.md is no regular file: a document is read as a whole" in error


def test_debug_shows_the_traceback_unless_it_is_a_sentence(run):
    with pytest.raises(ValueError, match="n_best=9 needs a beam"):
        run("--debug", "--n-best", "9", "hola")
    assert "n_best=9" in one_line_error(run("--n-best", "9", "--", "--debug"))


@pytest.mark.parametrize(
    "words", ["hola --input x", "--testset wmt13 --input x", "--testset wmt13 --reference x", "--no"]
)
def test_options_that_exclude_each_other_or_do_not_exist_are_usage_errors(run, words):
    status, out, err = run(*words.split())
    assert (status, out) == (2, "")
    assert err.startswith("Usage: ")


def test_a_terminal_as_input_gets_help_instead_of_waiting(run):
    status, out, err = run(terminal=("stdin",))
    assert (status, out) == (2, "")
    assert "nothing to translate: give a sentence, --input FILE" in err


@pytest.mark.slow
def test_a_bar_on_stderr_shows_progress_when_that_is_a_terminal(run, source, tmp_path):
    assert "translating" in run("--input", source, terminal=("stderr",))[2]
    assert "translating" in run("--output", tmp_path / "out", stdin=b"hola\n", terminal=("stdout", "stderr"))[2]
    assert run("hola", terminal=("stderr",))[2] == ""
    assert run(stdin=b"hola\n", terminal=("stdout", "stderr"))[2] == ""  # it would cut through the translations


def test_an_interruption_is_one_line(run, monkeypatch):
    monkeypatch.setattr(Translator, "load", Mock(side_effect=KeyboardInterrupt))
    assert run("hola") == (130, "", "error: interrupted\n")


def test_evaluate_scores_a_finished_translation(seq2seq, tmp_path, testset):
    file = tmp_path / "out.es"
    file.write_text("The cat.\nUna bola azul.\n")
    status, out, _ = seq2seq("evaluate", "--hypotheses", file, "--testset", "wmt13", "--json")
    assert (status, json.loads(out)["bleu"]["value"]) == (0, pytest.approx(100))
    assert seq2seq("evaluate", "--hypotheses", file)[0] == 2


@pytest.mark.slow
def test_an_output_that_is_an_input_is_refused(run, seq2seq, source, tmp_path):
    other = source
    source, link = tmp_path / "in.en.gz", tmp_path / "link"
    source.write_bytes(gzip.compress(b"The cat.\n"))
    link.symlink_to(source)
    words = ("--input", source, "--output")
    for output in (source, link):
        assert "would replace the input" in run(*words, output)[2]
        assert "would replace the input" in run("--input", other, "--glossary", source, "--output", output)[2]
        scored = ("score", "--input", other, "--translations", source, "--output", output)
        assert "would replace the input" in seq2seq(*scored)[2]
    assert gzip.decompress(source.read_bytes()) == b"The cat.\n"
