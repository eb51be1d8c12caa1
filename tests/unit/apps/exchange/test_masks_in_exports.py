"""Exports read the symbols of masks as this program does, and say that they do not mask by themselves.

The benchmark of masks is tested with the same model.
"""

from pathlib import Path

import pytest
import torch
from echo import TEXTS

from benchmarks.masks import Plan, run
from seq2seq.apps.explain.model_page import describe, export_html
from seq2seq.search.types import Source
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import EOS, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from seq2seq.translate.translator import Translator

LINES = ["The cat sees ⟨1⟩.", "⟨2⟩: a dog⟨1⟩ drank", "¿⟨3⟩?"]
SEARCH = SearchConfig(beam=1, max_length_ratio=0.0, max_length_offset=8)


@pytest.fixture
def bundle(random_model, tmp_path: Path) -> Path:
    tokenizer = train_tokenizer([f"{a} {b}" for a in TEXTS for b in TEXTS], TokenizerConfig(vocab_size=303, masks=3))
    model = random_model(tokenizer.vocab_size)
    save_bundle(
        tmp_path / "model", Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(model.config, SEARCH)), "A card.\n"
    )
    return tmp_path / "model"


def ours(bundle: Path) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of the lines, and those of their translations, without a search for lost symbols."""
    translator = Translator.load(bundle, "cpu")
    ids = translator.tokenizer.source.encode(LINES)
    assert [sum(token in translator.tokenizer.source.mask_ids for token in row) for row in ids] == [1, 2, 1]
    found = {
        index: best.ids
        for batch in translator.engine.search([Source(row) for row in ids], SEARCH, 1)
        for index, (best,) in batch
    }
    return ids, [found[index] for index in range(len(LINES))]


def test_ctranslate2_translates_symbols_alike(bundle: Path, tmp_path: Path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2

    export_ctranslate2(bundle, tmp_path / "export")
    ids, translations = ours(bundle)
    tokens = load_bundle(bundle).tokenizer.source.tokens
    program = ctranslate2.Translator(str(tmp_path / "export"))
    results = program.translate_batch(list(map(tokens, ids)), beam_size=1, max_decoding_length=8)
    assert [result.hypotheses[0] for result in results] == list(map(tokens, translations))
    assert "ctranslate2 masks no strings, so addresses" in (tmp_path / "export" / "README.md").read_text()


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_hugging_face_translates_symbols_alike(bundle: Path, tmp_path: Path):
    transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
    from seq2seq.apps.exchange.huggingface import export_huggingface

    export_huggingface(bundle, tmp_path / "export")
    ids, translations = ours(bundle)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "export")
    for line, row, translation in zip(LINES, ids, translations, strict=True):
        batch = tokenizer(line, return_tensors="pt")
        assert batch["input_ids"][0].tolist() == [*row, EOS]
        generated = model.generate(**batch, num_beams=1, max_new_tokens=9, suppress_tokens=[0, 1, 2])[0]
        assert [token for token in generated.tolist()[1:] if token != EOS][:8] == translation
    assert "transformers masks no strings, so addresses" in (tmp_path / "export" / "README.md").read_text()


def test_a_page_never_splits_symbols_and_says_that_it_does_not_mask(bundle: Path, tmp_path: Path):
    assert describe(load_bundle(bundle).tokenizer.source)["symbols"] == ["⟨1⟩", "⟨2⟩", "⟨3⟩"]
    export_html(bundle, tmp_path / "page.html")
    assert "This page masks no strings, so addresses" in (tmp_path / "page.html").read_text()


def test_the_benchmark_finds_every_masked_string_exact(bundle: Path):
    values, tables = run(Plan(model=bundle, pairs=200, sentences=2), torch.device("cpu"))
    families = {name: masked for name, _, _, masked, *_ in values["families"]}
    assert {"placeholder", "file", "address", "emoji"} <= families.keys()
    assert set(families.values()) == {"100"}
    assert [table.title for table in tables] == ["Exact strings", f"200 pairs, {values['share']:.1%} with a mask"]
