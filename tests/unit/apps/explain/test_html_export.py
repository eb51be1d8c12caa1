"""Export of a model as one HTML page: what is refused, and what the file holds."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece
import torch

from seq2seq.apps.explain.model_page import export_html, quantise
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, load_bundle, save_bundle

SENTENCES = [
    "The cat sees the milk.",
    "El gato ve la leche.",
    "A dog has a blue ball.",
    "Un perro tiene una bola azul.",
]


def test_a_row_of_zeros_stays_zero() -> None:
    numbers, scales = quantise(torch.tensor([[0.0, 0.0], [-2.0, 1.0]]))
    assert numbers.tolist() == [[0, 0], [-127, 64]]
    assert (scales > 0).all()


def test_what_a_page_cannot_compute_is_refused_in_one_line(bundle_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.html"

    def refused(folder: Path, message: str, file: Path = file) -> None:
        with pytest.raises(UserError, match=message):
            export_html(folder, file)
        assert not file.exists() or file.read_text() == "mine"

    bundle = load_bundle(bundle_folder)
    search = replace(bundle.config.search, no_repeat_ngram=3)
    save_bundle(tmp_path / "ngram", replace(bundle, config=replace(bundle.config, search=search)), card="")
    refused(tmp_path / "ngram", r"^search.no_repeat_ngram=3 is stored in the bundle, and pages know plain beam search")
    model = replace(bundle.config.model, relevance="unscaled")
    save_bundle(tmp_path / "lab", replace(bundle, config=replace(bundle.config, model=model)), card="")
    refused(tmp_path / "lab", r"^model.relevance=unscaled: a page computes no ablations")
    refused(bundle_folder, r"does not end in .html: give --output NAME.html", tmp_path / "model.txt")
    file.write_text("mine")
    refused(bundle_folder, r"model.html is there already: give --output a new file")


def test_a_vocabulary_with_rules_of_its_own_is_refused(bundle_folder: Path, tmp_path: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(  # as `spm_train` does by itself: Unicode's form NFKC
        sentence_iterator=iter(SENTENCES), model_writer=model, vocab_size=34, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
        minloglevel=2,
    )  # fmt: skip
    tokenizer = Tokenizer(model.getvalue())
    bundle = load_bundle(bundle_folder)
    torch.manual_seed(1)
    network = build_model(bundle.config.model, tokenizer.vocab_size)
    save_bundle(tmp_path / "nfkc", Bundle(network, Tokenizers.joint(tokenizer), bundle.config), card="")
    with pytest.raises(UserError, match="the vocabulary was made by another program, with rules of its own"):
        export_html(tmp_path / "nfkc", tmp_path / "model.html")
