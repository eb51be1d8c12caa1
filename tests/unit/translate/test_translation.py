"""What the Python interface takes, and what it says about anything else."""

import subprocess
import sys

import jaxtyping
import numpy as np
import pytest
import torch

import seq2seq
from seq2seq import Text, Translator
from seq2seq.translate.bundle import load_bundle
from tests.refusing import refuses

TEXTS = ["The cat drank the milk.", "Ella ve."]


@pytest.fixture
def unchecked():
    """Call functions as users do: without the checks of annotations that only these tests have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_the_package_has_the_classes_of_its_interface_and_loads_no_pytorch_for_them():
    assert {"Glossary", "Text", "Translator", "UserError"} <= set(seq2seq.__all__)
    code = "import sys, seq2seq; seq2seq.UserError, seq2seq.Glossary; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="module 'seq2seq' has no attribute 'translator_of_all'"):
        seq2seq.translator_of_all  # noqa: B018


@pytest.mark.slow
def test_texts_may_come_from_anything_to_iterate_over(translator):
    expected = translator.translate(TEXTS)
    assert translator.translate(text for text in TEXTS) == expected
    assert translator.translate(tuple(TEXTS)) == translator.translate(np.array(TEXTS)) == expected
    scored = translator.score((text for text in TEXTS), iter(expected))
    assert [pair.score for pair in scored] == [pair.score for pair in translator.score(TEXTS, expected)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda it: it.translate("Ella ve."), r"texts is one string \('Ella ve.'…\): give a list of them, \[text\]"),
        (lambda it: it.translate(TEXTS, beam="5"), "^search.beam=5 must be a number or auto$"),
        (lambda it: it.translate(TEXTS, banned="rojo"), r"^banned is one string \('rojo'…\): give a list of them, "),
        (lambda it: it.translate_nbest(TEXTS, 0), "n_best=0 must be at least 1"),
        (lambda it: it.load("anywhere", device=3), "device '3' is not known: use cpu, cuda, cuda:N or auto"),
        (lambda it: it.score("Ella ve.", ["She sees."]), "sources is one string"),
        (lambda it: it.score(["Ella ve."], []), "1 sources but 0 translations: give one for each"),
        (lambda it: Text("The ball is blue.", phrases="pelota"), "phrases is one string"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_has_the_wrong_type_or_name_is_refused(translator, call, message):
    refuses(message, call, translator)


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_other_libraries_and_any_iterable_are_taken(translator):
    (best, *_) = translator.translate_nbest(TEXTS, 1, beam=np.int64(2), length_penalty=np.float32(1), max_length=None)
    assert best[0].tokens == translator.translate_nbest(TEXTS, np.int64(1), beam=2)[0][0].tokens
    request = translator.request(n_best=np.int64(2), banned=(phrase for phrase in ["leche", "gato"]))
    assert type(request.n_best) is int  # so that it can become JSON
    assert request.banned == ("leche", "gato")


def test_a_translator_is_loaded_from_a_run_or_its_bundle(bundle_folder):
    run = bundle_folder.parent
    models = [Translator.load(run, torch.device("cpu")), Translator.load([str(run), bundle_folder], "cpu")]
    assert models[0].translate(TEXTS) == models[1].translate(TEXTS)


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("nowhere", r"^nowhere is no folder: give runs/NAME or runs/NAME/model$"),
        ("exported", r"^exported/config.json is not a model of this program: its architecture is no seq2seq-…$"),
        ([], r"^the list of models is empty: give runs/NAME or runs/NAME/model$"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_model_is_refused(folder, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "config.json").write_text('{"architectures": ["MarianMTModel"]}')
    refuses(message, Translator.load, folder)


def test_a_translator_tells_its_languages_size_and_device(bundle_folder, translator):
    size = sum(parameter.numel() for parameter in load_bundle(bundle_folder).model.parameters())
    assert translator.num_parameters == size
    assert repr(translator) == f"Translator(en→es, {size / 1000:.1f}k parameters, cpu)"
