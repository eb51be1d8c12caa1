"""A package of Argos Translate has what version 1.11 reads: its metadata, one tokenizer and a CTranslate2 model."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.refusing import refuses

pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")

import ctranslate2
import sentencepiece

from seq2seq.apps.exchange.cached import cached_export
from seq2seq.apps.exchange.ctranslate2 import export_argos
from seq2seq.translate.ctranslate2_engine import load_export

BUNDLE = Path(__file__).parents[3] / "golden" / "bundle"
TEXTS = ["The cat sees the milk.", "The cow brings an apple.", "The bird wants a ball.", "A dog?"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("argos") / "new" / "en_es.argosmodel"
    export_argos(BUNDLE, file)
    return file


def test_it_installs_as_one_folder_with_its_metadata(package: Path, tmp_path: Path):
    assert zipfile.is_zipfile(package)
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "translate-en_es-1_0"
    assert json.loads((folder / "metadata.json").read_text()) == {
        "package_version": "1.0",
        "argos_version": "1.0",
        "type": "translate",
        "from_code": "en",
        "from_name": "English",
        "to_code": "es",
        "to_name": "Spanish",
    }
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    model = {"model/config.json", "model/model.bin", "model/shared_vocabulary.json"}
    assert names == {"metadata.json", "README.md", "sentencepiece.model", *model}
    assert "install_from_path('en_es.argosmodel')" in (folder / "README.md").read_text()


def test_its_translations_are_those_of_the_engine(package: Path, tmp_path: Path):
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "model"), "cpu")
    encoded = [tokenizer.encode(text, out_type=str) for text in TEXTS]
    found = translator.translate_batch(encoded, beam_size=4, length_penalty=0.2, replace_unknowns=True)
    theirs = [tokenizer.decode_pieces(one.hypotheses[0]).replace("▁", " ").strip() for one in found]
    ours = load_export(cached_export(BUNDLE, "float32", str(tmp_path / "cache")), "cpu")
    assert theirs == ours.translate(TEXTS, beam=4, length_penalty=0.2)


def test_what_a_package_cannot_hold_is_refused_and_leaves_no_file(package: Path, tmp_path: Path):
    refuses("model.zip does not end in .argosmodel: give --output", export_argos, BUNDLE, tmp_path / "model.zip")
    refuses("is there already", export_argos, BUNDLE, package)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        export_argos(BUNDLE, tmp_path / "file" / "a.argosmodel")
    (two := tmp_path / "two").mkdir()
    for name in ("source.model", "target.model"):
        (two / name).touch()
    refuses("has a tokenizer for each language", export_argos, two, tmp_path / "two.argosmodel")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "two"}
