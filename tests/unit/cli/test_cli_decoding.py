"""The translate command's options beside plain translation."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from saved_runs import write_recurrent_bundle

from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import install_command
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.unit.conftest import one_line_error

ROOT = Path(__file__).parents[3]
LINES = ["The cat drank the milk.", "", "Ella ve la leche.", "¿Quién quiere niños?"]


OPTIONS = [
    ("--min-length 9 --max-length 12", {"min_length": 9, "max_length": 12}),
    ("--no-repeat-ngram 1 --beam 2", {"no_repeat_ngram": 1, "beam": 2}),
    ("--sampling --temperature 2 --seed 7", {"sampling": True, "temperature": 2.0, "seed": 7}),
    ("--sampling --top-k 3 --top-p 0.5", {"sampling": True, "top_k": 3, "top_p": 0.5}),
    ("--mbr 3", {"mbr": 3}),
    ("--max-length-ratio 0.2 --min-length-ratio 0.1", {"max_length_ratio": 0.2, "min_length_ratio": 0.1}),
    ("--beam 5 --length-penalty 0.2 --batch-tokens 50", {"beam": 5, "length_penalty": 0.2, "batch_tokens": 50}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "settings"), OPTIONS)
def test_options_are_the_settings_of_the_same_names(run, bundle_folder, translator, options, settings):
    status, out, err = run(*options.split(), "--model", bundle_folder, stdin="\n".join(LINES).encode())  # an ensemble
    assert (status, err) == (0, "")
    assert out.split("\n")[:-1] == translator.translate(LINES, **settings)


@pytest.mark.slow
def test_what_a_model_switches_on_can_be_switched_off(run, bundle_folder, translator, tmp_path):
    bundle = tmp_path / "model"
    shutil.copytree(bundle_folder, bundle)
    values = json.loads((bundle / "config.json").read_text())
    both = {"early_stopping": True, "sampling": True}  # refused together
    (bundle / "config.json").write_text(json.dumps({**values, "search": {**values["search"], **both}}))
    for setting in both:
        command = ("--model", str(bundle), "--device", "cpu")
        switched_off = run(f"--no-{setting.replace('_', '-')}", LINES[0], command=command)
        assert switched_off == (0, f"{translator.translate(LINES[:1], **{**both, setting: False})[0]}\n", "")
        assert run(LINES[0], command=command) != switched_off


def test_a_setting_of_zero_is_a_setting(run):
    status, out, err = run("hola", "--sampling", "--temperature", "0")
    assert (status, out) == (1, "")
    assert "search.temperature=0.0 must be at least 1e-06" in err


def test_phrases_reach_every_line(run, translator, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("milk\tniños\n")
    arguments = ("--prefix", "El", "--phrase", "ve", "--ban", "leche", "--glossary", terms, "--max-length", "14")
    status, out, _ = run(*arguments, stdin="\n".join(LINES).encode())
    assert status == 0
    texts = [Text(line, "El", ["ve", "niños"] if "milk" in line else ["ve"]) for line in LINES]
    assert out.split("\n")[:-1] == translator.translate(texts, banned=["leche"], max_length=14)
    assert "none.tsv cannot be read" in one_line_error(run("hola", "--glossary", tmp_path / "none.tsv"))


def test_a_conversation_answers_line_by_line(run, translator):
    status, out, _ = run("--interactive", stdin="\n".join(LINES).encode())
    assert status == 0
    assert out.split("\n")[:-1] == translator.translate(LINES)
    assert run("--interactive", "hola")[0] == 2


def test_a_document_becomes_a_document(run, translator, tmp_path):
    page, result = tmp_path / "in.html", tmp_path / "out.html"
    page.write_text("<p class='x'>The cat drank the milk.</p>")
    status, out, err = run("--input", page, "--output", result)
    assert (status, out) == (0, "")
    assert "1 texts translated" in err
    assert result.read_text().startswith("<p class='x'>")
    assert run("--input", page)[0] == 2


def test_ctranslate2_computes_with_int8_weights_as_the_readme_says(run, monkeypatch):
    def load(_, choice):
        raise UserError(f"{choice.engine} with {choice.quantization}")

    monkeypatch.setattr("seq2seq.cli.shared.load", load)
    assert run("--engine", "ctranslate2", LINES[0])[2] == "error: ctranslate2 with int8\n"
    assert "`--engine ctranslate2` computes with int8 weights" in " ".join((ROOT / "README.md").read_text().split())


def test_ctranslate2_is_refused_with_compile_or_without_its_package(run, monkeypatch):
    status, _, err = run("--compile", "on", "--engine", "ctranslate2", LINES[0])
    assert status == 1
    assert err == "error: --compile on is for the pytorch engine, and --engine is ctranslate2: leave one of them out\n"
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "seq2seq.translate.ctranslate2_engine", raising=False)
    status, _, err = run("hola", "--engine", "ctranslate2")
    assert status == 1
    assert err == f"error: this needs the package ctranslate2: {install_command('ctranslate2')}\n"


@pytest.mark.parametrize("command", ["translate", "distill", "bulk-translate", "attend", "lab lengths"])
def test_a_search_option_out_of_range_is_refused_first(run, seq2seq, bundle_folder, tmp_path, monkeypatch, command):
    monkeypatch.setattr(Translator, "load", lambda *_, **__: pytest.fail("loaded"))
    source, out = tmp_path / "in.en", tmp_path / "out.tsv"
    source.write_text("hola\n" * 20)
    words = {
        "translate": ("hola",),
        "attend": ("hola", "--output", out),
        "lab lengths": ("--input", source, "--reference", source),
    }.get(command, ("--input", source, "--output", out))
    status, _, err = seq2seq(*command.split(), *words, "--model", bundle_folder, "--beam", "0")
    assert (status, err) == (1, "error: search.beam=0 must be at least 1\n")
    assert not out.exists()


def test_a_model_that_cannot_align_translates_documents_too_and_its_json_has_no_alignment(run, tokenizer, tmp_path):
    write_recurrent_bundle(tmp_path / "model", tokenizer, attention="none")
    command = ("--model", str(tmp_path / "model"), "--device", "cpu")
    status, out, err = run("--json", "--max-length", "5", LINES[0], command=command)
    assert (status, err) == (0, "")
    fields = {"line", "source", "translation", "score", "normalised_score", "confidence", "n_best"}
    assert json.loads(out).keys() == fields
    page, result = tmp_path / "in.html", tmp_path / "out.html"
    page.write_text("<p>The <b>cat</b> sees.</p>")
    assert run("--input", page, "--output", result, "--max-length", "5", command=command)[0] == 0
    assert re.findall("<[^>]*>", result.read_text()) == ["<p>", "<b>", "</b>", "</p>"]


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
    assert re.search(r"different numbers of lines: .*in.en 4, .*out.es 1;", one_line_error(score(targets=["El gato"])))


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
