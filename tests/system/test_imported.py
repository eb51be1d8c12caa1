"""An imported model is translated with, looked into, fine-tuned and handed back; so is one with two vocabularies."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import Launcher
from small_run import RUN

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from benchmarks.checkpoints import write_checkpoint
from seq2seq.cli import app, main
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.translator import Translator
from tests.toy import PAIRS, TINY

pytestmark = pytest.mark.system

SHORT = (*RUN, "trainer.max_steps=4", "trainer.validate_every=4", "trainer.checkpoint_every=2")
SMALL: dict[str, Any] = {
    "d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "encoder_layers": 1, "decoder_layers": 2,
}  # fmt: skip
TEXTS = [src for src, _ in PAIRS[:3]]


@pytest.fixture(autouse=True)
def _in_workdir(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workdir)
    (workdir / "in.en").write_text("".join(f"{text}\n" for text in TEXTS))
    (workdir / "hub").mkdir()


def seq2seq(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["seq2seq", *arguments])
    with pytest.raises(SystemExit) as ended:
        main(app)
    assert not ended.value.code, ended.value.code


def test_the_journey_of_an_imported_model(workdir: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch):
    write_checkpoint(workdir / "hub", "opus-mt", **SMALL)
    seq2seq(monkeypatch, "import", "huggingface", "hub", "--output", "opus")
    limits = ("--max-length", "8")
    seq2seq(monkeypatch, "translate", "--model", "opus", "--input", "in.en", "--output", "out.es", *limits)
    before = (workdir / "out.es").read_text().splitlines()
    assert len(before) == len(TEXTS)
    seq2seq(monkeypatch, "score", "--model", "opus", "--input", "in.en", "--translations", "out.es", "--json",
            "--output", "scores.jsonl")  # fmt: skip
    assert len((workdir / "scores.jsonl").read_text().splitlines()) == len(TEXTS)
    seq2seq(monkeypatch, "attend", TEXTS[0], "--model", "opus", "--target", "El gato.", "--output", "maps")
    pieces = json.loads((workdir / "maps/attention.json").read_text())["pieces"]
    assert pieces["target_in"][0] == "<pad>"
    assert pieces["target_out"][-1] == "</s>"
    launcher.complete(*SHORT, "name=tuned", "init=opus", "training.learning_rate=1e-2", cwd=workdir)
    first, tuned = load_bundle(workdir / "opus"), load_bundle(workdir / "runs/tuned/model")
    assert tuned.tokenizer.digest == first.tokenizer.digest
    assert first.model.output_bias is not None
    assert tuned.model.output_bias is not None
    assert torch.equal(tuned.model.output_bias, first.model.output_bias)
    assert not torch.equal(tuned.model.embedding.weight, first.model.embedding.weight)
    launcher.complete("resume=runs/tuned", "trainer.max_steps=6", cwd=workdir)
    seq2seq(monkeypatch, "export", "huggingface", "--model", "runs/tuned", "--output", "back")
    launcher.complete(*SHORT, "name=straight", "init=back", "trainer.max_steps=2", cwd=workdir)
    seq2seq(monkeypatch, "shortlist", "--model", "runs/tuned", "--output", "some.shortlist")
    seq2seq(monkeypatch, "translate", "--model", "runs/tuned", "--input", "in.en", "--output", "short.es",
            "--shortlist", "some.shortlist", *limits)  # fmt: skip


@pytest.mark.parametrize("architecture", ["transformer", "recurrent"])
def test_two_vocabularies_learn_translate_and_leave(workdir, launcher, monkeypatch, architecture):
    sizes = (*TINY, "model/style=vaswani") if architecture == "transformer" else ("model=lstm", "model.d_model=16")
    launcher.complete(*SHORT, *sizes, "tokenizer.vocab_size=auto", "tokenizer.joint=false", "name=two", cwd=workdir)
    values = json.loads((workdir / "runs/two/model/config.json").read_text())
    assert values["format_version"] == 3
    bundle = load_bundle(workdir / "runs/two/model")
    assert (values["vocab_size"], values["source_vocab_size"]) == bundle.tokenizer.sizes
    assert bundle.model.encoder_embedding is not None
    launcher.complete("resume=runs/two", "trainer.max_steps=6", cwd=workdir)
    if architecture == "recurrent":
        assert len(Translator.load(workdir / "runs/two", "cpu").translate(TEXTS, max_length=8)) == len(TEXTS)
        return
    ours = Translator.load(workdir / "runs/two", "cpu", torch.float32).translate(
        TEXTS, max_length=8, beam=1, repair=False
    )  # fmt: skip
    seq2seq(monkeypatch, "export", "huggingface", "--model", "runs/two", "--output", "there")
    seq2seq(monkeypatch, "import", "huggingface", "there", "--output", "back")
    back = Translator.load(workdir / "back", "cpu", torch.float32)
    assert back.tokenizer.source.imported is not None
    assert back.translate(TEXTS, max_length=8, beam=1) == ours
    pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    seq2seq(monkeypatch, "translate", "--model", "runs/two", "--input", "in.en", "--output", "fast.es", "--engine",
            "ctranslate2", "--quantization", "float32", "--beam", "1", "--max-length", "8", "--no-repair")  # fmt: skip
    assert (workdir / "fast.es").read_text().splitlines() == ours
