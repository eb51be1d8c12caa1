import itertools
import json
from pathlib import Path

import pytest
import torch

from seq2seq.settings.bundle import is_export
from seq2seq.text.tokenizer import BOS, EOS
from tests.refusing import refuses

pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")

import ctranslate2

from seq2seq.apps.exchange import cached
from seq2seq.apps.exchange.cached import cached_export
from seq2seq.apps.exchange.ctranslate2 import QUANTIZATIONS, export_ctranslate2
from seq2seq.model import attention
from seq2seq.translate.ctranslate2_engine import load_export

SOURCES = [[5, 29, 11, 200, 7, 31, 8], [40, 41], [9, 250, 17, 4]]
TARGETS = [[60, 12, 301, 4], [8, 8, 99, 14, 280], []]
STYLES = [
    *(
        {"norm": norm, "norm_position": position, "activation": activation, "positions": positions, "bias": bias}
        for norm, position, activation, positions, bias in itertools.product(
            ("layernorm", "rmsnorm"), ("post", "pre"), ("relu", "swiglu"), ("sinusoidal", "rotary"), (True, False)
        )
    ),
    {"activation": "swish", "output_bias": True},  # Marian's
    {"activation": "gelu", "scale_embedding": False},
]


def their_scores(folder, tokenizer):
    """CTranslate2's log-probabilities of each target's tokens and EOS."""
    subwords = ([tokenizer.tokens(row) for row in rows] for rows in (SOURCES, TARGETS))
    results = ctranslate2.Translator(str(folder), intra_threads=1).score_batch(*subwords)
    return [score for result in results for score in result.log_probs]


def our_scores(token_scores, model):
    return [score for pair in zip(SOURCES, TARGETS, strict=True) for score in token_scores(model, *pair)]


@pytest.mark.parametrize("style", STYLES)
def test_an_export_of_every_style_gives_every_token_the_same_probability(
    random_model, save_model, token_scores, tokenizer, tmp_path, style
):
    model = random_model(tokenizer.vocab_size, **style)
    export_ctranslate2(save_model(model), tmp_path / "export")
    theirs = their_scores(tmp_path / "export", tokenizer)
    assert theirs == pytest.approx(our_scores(token_scores, model), abs=1e-4)


@pytest.mark.parametrize(("quantization", "tolerance", "size"), [("float16", 0.02, 0.55), ("int8", 0.3, 0.45)])
def test_a_quantised_export_is_smaller_and_nearly_the_same(
    random_model, save_model, token_scores, tokenizer, tmp_path, quantization, tolerance, size
):
    model = random_model(tokenizer.vocab_size, positions="rotary", d_model=48, d_ff=96)  # no table of positions
    bundle = save_model(model)
    for name in ("float32", quantization):
        export_ctranslate2(bundle, tmp_path / name, name)
    theirs, ours = their_scores(tmp_path / quantization, tokenizer), our_scores(token_scores, model)
    differences = [abs(their - our) for their, our in zip(theirs, ours, strict=True)]
    if torch.backends.cpu.get_cpu_capability() == "AVX2" and quantization == "int8":
        tolerance *= 5  # products of 8 bits are summed in 16 there, which saturate with weights as even as random ones
    assert sum(differences) / len(differences) < tolerance
    assert max(differences) > 1e-5
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in (quantization, "float32")]
    assert sizes[0] < size * sizes[1]


def test_an_export_holds_all_that_translating_needs(bundle_folder, tokenizer, tmp_path):
    export_ctranslate2(bundle_folder, tmp_path / "export")
    expected = {"README.md", "bundle.json", "config.json", "model.bin", "shared_vocabulary.json", "tokenizer.model"}
    assert {path.name for path in (tmp_path / "export").iterdir()} == expected
    assert (tmp_path / "export" / "bundle.json").read_bytes() == (bundle_folder / "config.json").read_bytes()
    assert (tmp_path / "export" / "tokenizer.model").read_bytes() == tokenizer.model_bytes
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    assert [config["decoder_start_token"], config["eos_token"]] == tokenizer.tokens([BOS, EOS])
    assert is_export(tmp_path / "export")
    loaded = load_export(tmp_path / "export", "cpu")
    assert (loaded.search.beam, loaded.src_lang, loaded.tgt_lang) == (3, "en", "es")
    assert not is_export(bundle_folder)
    refuses(r"is no export for CTranslate2 \(bundle.json is missing\)", load_export, bundle_folder, "cpu")


def test_an_unknown_quantization_is_refused_and_leaves_nothing(bundle_folder, tmp_path):
    message = f"quantization=int4 is not known: choose one of {', '.join(QUANTIZATIONS)}"
    refuses(message, export_ctranslate2, bundle_folder, tmp_path / "export", "int4")
    assert not list(tmp_path.iterdir())


def test_a_cached_export_is_made_once_for_each_bundle_quantization_and_code(
    random_model, save_model, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    bundle = save_model(random_model(tokenizer.vocab_size))
    first = cached_export(bundle, "float32", None)
    written = (first / "model.bin").stat().st_mtime_ns
    assert cached_export(bundle, "float32", None) == first
    assert (first / "model.bin").stat().st_mtime_ns == written
    assert cached_export(bundle, "int8", None) != first
    (first / "model.bin").write_bytes(b"damaged")
    assert cached_export(bundle, "float32", None) == first
    assert (first / "model.bin").stat().st_size > 10_000
    digest, changed = cached.digest_files, Path(attention.__file__)
    with monkeypatch.context() as new_code:
        new_code.setattr(
            cached, "digest_files", lambda paths: ["new" if p == changed else digest([p])[0] for p in paths]
        )
        assert cached_export(bundle, "float32", None) != first
    assert cached_export(save_model(random_model(tokenizer.vocab_size, positions="rotary")), "float32", None) != first
