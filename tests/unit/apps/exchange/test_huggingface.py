import json

import pytest
import torch

from seq2seq.text.tokenizer import EOS
from seq2seq.translate.translator import Translator

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from seq2seq.apps.exchange.huggingface import export_huggingface

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

TEXTS = ["The cat drank the milk.", "¿Quién sees niños, años?", "A dog 😀 has <s> a blue ball!", "milk"]


@pytest.fixture
def export(bundle_folder, tmp_path):
    export_huggingface(bundle_folder, tmp_path / "export")
    return tmp_path / "export"


def test_its_tokenizer_gives_the_same_ids_and_texts(export, tokenizer):
    theirs = AutoTokenizer.from_pretrained(export)
    ids = theirs(TEXTS)["input_ids"]
    assert ids[:2] + ids[3:] == [[*row, EOS] for row in tokenizer.encode(TEXTS[:2] + TEXTS[3:])]
    assert theirs.batch_decode(ids[:2], skip_special_tokens=True) == TEXTS[:2]


@torch.no_grad()
def test_greedy_generate_gives_our_translations(export, bundle_folder, tokenizer):
    texts = [TEXTS[0], TEXTS[1], TEXTS[3]]
    batch = AutoTokenizer.from_pretrained(export)(texts, return_tensors="pt", padding=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(export)
    rows = model.generate(**batch, num_beams=1, max_new_tokens=8).tolist()
    ours = Translator.load(bundle_folder, "cpu").translate_nbest(texts, 1, beam=1, max_length=7)
    assert [tokenizer.tokens(row[1 : row.index(EOS)]) for row in rows] == [best[0].tokens for best in ours]


def test_generate_searches_with_the_bundles_settings(export):
    settings = json.loads((export / "generation_config.json").read_text())
    assert (settings["num_beams"], settings["length_penalty"], settings["suppress_tokens"]) == (3, 1.0, [0, 1, 2])
