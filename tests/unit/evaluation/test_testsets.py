from unittest.mock import Mock
from urllib.error import URLError

import pytest
from sacrebleu.dataset import DATASETS

from seq2seq.evaluation.metrics import load_testset
from tests.refusing import refuses


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """sacreBLEU's folder, with wmt13 as a download leaves it, and no network."""

    folder = tmp_path / "wmt13"
    folder.mkdir()
    for field in DATASETS["wmt13"].fieldnames("en-es"):
        text = {"src": "The ball is blue.\nYes.\n", "ref": "La bola es azul.\n Sí. \n"}.get(field, "x\nx\n")
        (folder / f"wmt13.en-es.{field}").write_text(text, encoding="utf-8")
    for name in ("wmt13", "wmt12"):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path / name))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(tmp_path / name / "raw"))
    monkeypatch.setattr("sacrebleu.dataset.base.download_file", Mock(side_effect=URLError("no network")))
    return folder


def test_a_set_in_sacrebleus_folder_is_read_without_network(data_folder):
    assert load_testset("wmt13") == (["The ball is blue.", "Yes."], ["La bola es azul.", "Sí."])


def test_a_set_that_cannot_be_downloaded_says_so(data_folder):
    refuses(r"test set wmt12 is not in .*wmt12 and could not be downloaded .*no network", load_testset, "wmt12")


def test_an_unknown_set_or_language_pair_is_refused_with_the_known_sets():
    for name, target, choice in (("wmt99", "es", r"choose one of .*wmt12, wmt13"), ("wmt13", "ja", ".*wmt20")):
        refuses(rf"no test set '{name}' for en-{target}: {choice}", load_testset, name, "en", target)
