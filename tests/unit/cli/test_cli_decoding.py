"""The translate command's options beside plain translation, and the commands `score` and `export`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from seq2seq.cli import app, translate_app
from seq2seq.errors import UserError
from seq2seq.extras import install_command
from seq2seq.translation import Text
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
        (("--coverage-penalty", "2"), {"coverage_penalty": 2.0}),
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
    calls, score = [], Translator.score
    monkeypatch.setattr(Translator, "score", lambda *given, **more: calls.append(given) or score(*given, **more))
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
    monkeypatch.setattr("seq2seq.translator.default_dtype", lambda device: torch.bfloat16)  # as on a GPU
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
    assert rounded != pytest.approx(exact, abs=1e-3)


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


def test_ctranslate2_computes_with_int8_weights_as_the_readme_says(run, monkeypatch):
    def load(folders, device, engine, quantization):
        raise UserError(f"{engine} with {quantization}")

    monkeypatch.setattr("seq2seq.cli.jobs.load", load)
    assert run("--engine", "ctranslate2", LINES[0])[2] == "error: ctranslate2 with int8\n"
    assert "`--engine ctranslate2` computes with int8 weights" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_an_interrupted_file_goes_on_as_if_nothing_had_happened(run, tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.translator.CHUNK_LINES", 3)
    source, whole, broken = tmp_path / "in.en", tmp_path / "whole.es", tmp_path / "broken.es"
    source.write_text("\n".join(f"The cat {number}." for number in range(20)))
    assert run("--input", source, "--output", whole, "--n-best", "2")[0] == 0
    monkeypatch.setattr("seq2seq.cli.jobs.show", breaking_at(11))
    assert run("--input", source, "--output", broken, "--n-best", "2")[0] == 130
    assert not broken.exists()
    monkeypatch.undo()
    monkeypatch.setattr("seq2seq.translator.CHUNK_LINES", 3)
    status, _, err = run("--input", source, "--output", broken, "--n-best", "2", "--beam", "2", "--resume")
    assert status == 1
    assert "broken.es.partial was made with beam=None, not 2: --resume it with the same" in err
    assert run("--input", source, "--output", broken, "--n-best", "2", "--resume")[0] == 0
    assert broken.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.es", "in.en", "whole.es"]
    status, _, err = run("--input", source, "--output", broken, "--resume")
    assert (status, err.count("\n")) == (1, 1)
    assert "nothing to resume" in err
    assert run("hola", "--resume")[0] == 2


def test_a_changed_input_or_glossary_is_not_resumed(run, tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.translator.CHUNK_LINES", 3)
    source, terms, broken = tmp_path / "in.en", tmp_path / "terms.tsv", tmp_path / "broken.es"
    texts = [f"The cat {number}." for number in range(20)]
    source.write_text("\n".join(texts))
    terms.write_text("# old\nsee\tve\n")
    options = ("--input", source, "--glossary", terms, "--output", broken)
    with monkeypatch.context() as patched:
        patched.setattr("seq2seq.cli.jobs.show", breaking_at(11))
        assert run(*options)[0] == 130
    begun = (tmp_path / "broken.es.partial").read_bytes()
    for file, name in ((source, "input"), (terms, "glossary")):
        before = file.read_text()
        file.write_text(before.replace("see", "drinks").replace("cat 15", "dog 15"))
        status, _, err = run(*options, "--resume")
        assert (status, err.count("\n")) == (1, 1)
        assert re.search(
            rf"broken\.es\.partial was made with {name}_digest=\w+, not \w+: .*leave out --resume to begin anew", err
        )
        assert (tmp_path / "broken.es.partial").read_bytes() == begun
        file.write_text(before)
    terms.write_text("see\tve\n")  # a comment changes no translation
    assert run(*options, "--resume")[0] == 0
    resumed = broken.read_bytes()
    assert run(*options)[0] == 0
    assert broken.read_bytes() == resumed


def test_what_cannot_be_read_or_written_again_is_not_resumed(run, tmp_path):
    source, pipe = tmp_path / "in.en", tmp_path / "pipe"
    source.write_text("The cat.\n")
    os.mkfifo(pipe)
    for options, named in (
        (("--input", pipe, "--output", tmp_path / "out.es"), pipe),
        (("--input", source, "--output", os.devnull), os.devnull),
    ):
        status, _, err = run(*options, "--resume")
        assert status == 1
        assert err == f"error: --resume needs regular files, and {named} is none: leave out --resume to begin anew\n"


def breaking_at(line):
    from seq2seq.cli.jobs import show

    def show_or_break(job, number, source, best):
        if number == line:
            raise KeyboardInterrupt
        return show(job, number, source, best)

    return show_or_break


@pytest.mark.system
def test_a_killed_translation_resumes_to_the_same_file(bundle_folder, tmp_path):
    source, whole, killed = tmp_path / "in.en", tmp_path / "whole.es", tmp_path / "killed.es"
    source.write_text("\n".join(f"The cat drank {number} times." for number in range(3000)))
    command = [
        sys.executable,
        "translate.py",
        "--model",
        bundle_folder,
        "--device",
        "cpu",
        "--input",
        source,
        "--beam",
        "1",
    ]
    subprocess.run([*command, "--output", whole], cwd=ROOT, check=True)
    process = subprocess.Popen([*command, "--output", killed], cwd=ROOT)
    progress = tmp_path / "killed.es.progress"
    while not (progress.is_file() and json.loads(progress.read_text())["inputs"]):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not killed.exists()
    subprocess.run([*command, "--output", killed, "--resume"], cwd=ROOT, check=True)
    assert killed.read_bytes() == whole.read_bytes()


def test_a_missing_package_is_named_with_its_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "seq2seq.exchange.ctranslate2", raising=False)
    status, _, err = run("hola", "--engine", "ctranslate2", application=translate_app)
    assert status == 1
    assert err == f"error: this needs the package ctranslate2: {install_command('ctranslate2')}\n"
