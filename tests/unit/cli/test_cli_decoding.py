"""The translate command's options beside plain translation."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.cli import app, translate_app
from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.extras import install_command
from seq2seq.interface import Text
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translator import Translator

ROOT = Path(__file__).parents[3]
LINES = ["The cat drank the milk.", "", "Ella ve la leche.", "¿Quién quiere niños?"]


@pytest.fixture(scope="module")
def translator(bundle_folder):
    return Translator.load(bundle_folder, "cpu")


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("--min-length", "9", "--max-length", "12"), {"min_length": 9, "max_length": 12}),
        (("--no-repeat-ngram", "1", "--beam", "2"), {"no_repeat_ngram": 1, "beam": 2}),
        (("--repetition-penalty", "3"), {"repetition_penalty": 3.0}),
        (("--groups", "3", "--diversity", "5"), {"groups": 3, "diversity": 5.0}),
        (("--sampling", "--temperature", "2", "--seed", "7"), {"sampling": True, "temperature": 2.0, "seed": 7}),
        (("--sampling", "--top-k", "3", "--top-p", "0.5"), {"sampling": True, "top_k": 3, "top_p": 0.5}),
        (("--mbr", "3"), {"mbr": 3}),
        (
            ("--max-length-ratio", "0.2", "--min-length-ratio", "0.1"),
            {"max_length_ratio": 0.2, "min_length_ratio": 0.1},
        ),
    ],
)
def test_options_are_the_settings_of_the_same_names(run, translator, arguments, settings):
    status, out, err = run(*arguments, stdin="\n".join(LINES).encode())
    assert (status, err) == (0, "")
    assert out.split("\n")[:-1] == translator.translate(LINES, **settings)


def test_what_a_model_switches_on_can_be_switched_off(run, bundle_folder, translator, tmp_path):
    bundle = tmp_path / "model"
    shutil.copytree(bundle_folder, bundle)
    values = json.loads((bundle / "config.json").read_text())
    for setting, wanted in (("early_stopping", {"groups": 3}), ("sampling", {"beam": 2})):
        changed = {**values, "search": {**values["search"], setting: True}}
        (bundle / "config.json").write_text(json.dumps(changed))
        options = [str(part) for name, value in wanted.items() for part in (f"--{name}", value)]
        command = ("--model", str(bundle), "--device", "cpu")
        switched_off = run(*options, f"--no-{setting.replace('_', '-')}", LINES[0], command=command)
        assert switched_off == (0, f"{translator.translate(LINES[:1], **wanted)[0]}\n", "")
        assert run(*options, LINES[0], command=command) != switched_off


def test_a_setting_of_zero_is_a_setting(run):
    status, out, err = run("hola", "--sampling", "--temperature", "0")
    assert (status, out) == (1, "")
    assert "search.temperature=0.0 must be greater than 0" in err


def test_wants_reach_every_line(run, translator, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("milk\tniños\n")
    arguments = ("--prefix", "El", "--phrase", "ve", "--ban", "leche", "--glossary", terms, "--max-length", "14")
    status, out, _ = run(*arguments, stdin="\n".join(LINES).encode())
    assert status == 0
    wanted = [Text(line, "El", ["ve", "niños"] if "milk" in line else ["ve"]) for line in LINES]
    assert out.split("\n")[:-1] == translator.translate(wanted, banned=["leche"], max_length=14)
    status, _, err = run("hola", "--glossary", tmp_path / "none.tsv")
    assert (status, err.count("\n")) == (1, 1)
    assert "none.tsv cannot be read" in err


def test_several_models_are_an_ensemble(run, bundle_folder, translator):
    status, out, _ = run("--model", bundle_folder, stdin="\n".join(LINES).encode())
    assert status == 0
    assert out.split("\n")[:-1] == translator.translate(LINES)


def test_json_tells_which_words_belong_together(run, translator, monkeypatch):
    calls, score = [], Engine.score
    monkeypatch.setattr(Engine, "score", lambda *given, **more: calls.append(given) or score(*given, **more))
    _, out, _ = run("--json", "--n-best", "2", stdin="\n".join(LINES).encode())
    objects = [json.loads(line) for line in out.splitlines()]
    for one in objects:
        for hypothesis in one["n_best"]:
            words = [word for _, word in hypothesis["alignment"]]
            assert words == list(range(len(hypothesis["translation"].split())))
            assert all(0 <= word < len(one["source"].split()) for word, _ in hypothesis["alignment"])
    assert objects[0]["alignment"] == objects[0]["n_best"][0]["alignment"]
    assert objects[1]["alignment"] == []
    assert len(calls) == 1  # for all lines together
    found = translator.translate_nbest(LINES, 2, align=True)
    assert [one["alignment"] for one in objects] == [[list(pair) for pair in best[0].alignment] for best in found]


def test_help_tells_what_an_alignment_is(run):
    _, out, _ = run("--help")
    assert "alignment ([source word, target word] from 0)" in " ".join(out.split())


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
    def load(folders, *, device, engine, quantization, compile):
        raise UserError(f"{engine} with {quantization}")

    monkeypatch.setattr("seq2seq.cli.shared.load", load)
    assert run("--engine", "ctranslate2", LINES[0])[2] == "error: ctranslate2 with int8\n"
    assert "`--engine ctranslate2` computes with int8 weights" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
@pytest.mark.parametrize("option", ["--beam=4", "--beam=1", "--sampling", "--ban=leche"])
def test_compiled_code_translates_alike(run, option):
    status, out, err = run("--compile", "on", option, *LINES)
    assert (status, err) == (0, "")
    assert out == run("--compile", "off", option, *LINES)[1]


def test_compiling_is_for_the_pytorch_engine(run):
    status, _, err = run("--compile", "on", "--engine", "ctranslate2", LINES[0])
    assert status == 1
    assert err == "error: --compile on is for the pytorch engine, and --engine is ctranslate2: leave one of them out\n"


def test_a_missing_package_is_named_with_its_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "seq2seq.exchange.ctranslate2_engine", raising=False)
    status, _, err = run("hola", "--engine", "ctranslate2", application=translate_app)
    assert status == 1
    assert err == f"error: this needs the package ctranslate2: {install_command('ctranslate2')}\n"


def test_a_search_option_out_of_range_is_refused_before_the_model_is_loaded(run, bundle_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "load", lambda *_, **__: pytest.fail("loaded"))
    source, out = tmp_path / "in.en", tmp_path / "out"
    source.write_text("hola\n" * 20)
    for name, *arguments in (
        ("translate", "hola"),
        ("distill", "--input", source, "--output", tmp_path / "out.tsv"),
        ("bulk-translate", "--input", source, "--output", out),
        ("attend", "hola", "--output", out),
        ("lab", "lengths", "--input", source, "--reference", source),
    ):
        command = (name, "--model", str(bundle_folder)) if name != "lab" else ()
        arguments = arguments if command else ("lab", *arguments, "--model", bundle_folder)
        status, _, err = run(*arguments, "--beam", "0", command=command, application=app)
        assert (status, err) == (1, "error: search.beam=0 must be at least 1\n")
        assert not out.exists()
    assert "beam=3 must be a multiple of search.groups=2" in run("hola", "--groups", "2")[2]


def test_json_of_a_model_that_cannot_align_has_no_alignment(run, tokenizer, tmp_path):
    config = ModelConfig(
        architecture="recurrent", attention="none", d_model=8, num_encoder_layers=1, num_decoder_layers=1
    )
    bundle = Bundle(
        build_model(config, tokenizer.vocab_size),
        Tokenizers.joint(tokenizer),
        BundleConfig(config, SearchConfig(beam=2)),
    )
    save_bundle(tmp_path / "model", bundle, "card")
    command = ("--model", str(tmp_path / "model"), "--device", "cpu")
    status, out, err = run("--json", "--max-length", "5", LINES[0], command=command)
    assert (status, err) == (0, "")
    assert json.loads(out).keys() == {"line", "source", "translation", "score", "normalised_score", "n_best"}
