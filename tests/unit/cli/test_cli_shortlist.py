"""`seq2seq shortlist`, and `--shortlist` where it is used."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.cli import app
from seq2seq.model.transformer import Transformer
from seq2seq.search.shortlist import Shortlist
from seq2seq.settings.compose import compose
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.prepare import prepare
from seq2seq.training.run_folder import write_config
from seq2seq.translator import Translator
from tests.toy import FILES, PAIRS, TINY, write_corpus

TEXTS = [src for src, _ in PAIRS[:8]]


@pytest.fixture
def toy_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run on the toy corpus, as training would leave it, with an untrained model."""
    monkeypatch.chdir(write_corpus(tmp_path))
    config = compose([*FILES, *TINY])
    prepared, folder = prepare(config.data, config.tokenizer), tmp_path / "runs" / "NAME"
    settings = ModelConfig(d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Transformer(settings, prepared.tokenizer.target.vocab_size)
        for parameter in model.parameters():
            parameter.data.mul_(3)
    search = SearchConfig(beam=3, max_length_ratio=0.5, max_length_offset=4, batch_tokens=300)
    save_bundle(folder / "model", Bundle(model, prepared.tokenizer, BundleConfig(settings, search)), "untrained")
    write_config(config, folder)
    return folder


def learn(run: Any, folder: Path, *arguments: object, status: int = 0) -> tuple[Path, str]:
    path = folder / "shortlist"
    ended, out, err = run("--output", path, *arguments, command=("shortlist", "--model", str(folder)), application=app)
    assert (ended, out) == (status, "")
    return path, err


def test_a_shortlist_is_learned_from_the_runs_pairs_and_limits_translations(run: Any, toy_run: Path) -> None:
    path, err = learn(run, toy_run, "--best", "4", "--frequent", "10")
    assert re.fullmatch(
        r".*shortlist: \d+ of 300 subwords for every text, and \d for a source subword; from 60 pairs\n", err
    )
    allowed = Shortlist.load(path)
    plain, limited = Translator.load(toy_run, "cpu"), Translator.load(toy_run, "cpu", shortlist=path)
    sources = plain.tokenizer.target.encode(TEXTS)
    found = [best[0] for best in limited.translate_nbest(TEXTS, 1)]
    ids = {token for one in found for token in plain.tokenizer.target.ids(one.tokens)}
    assert ids <= set(allowed.union(sources).tolist())
    assert len(allowed.union(sources)) < 300
    assert [one.text for one in found] != plain.translate(TEXTS)
    command = ("translate", "--model", str(toy_run), "--device", "cpu")
    status, out, _ = run(*TEXTS, "--shortlist", path, command=command, application=app)
    assert (status, out.splitlines()) == (0, [one.text for one in found])


def test_processes_translate_with_a_shortlist(run: Any, toy_run: Path, tmp_path: Path) -> None:
    path, _ = learn(run, toy_run, "--best", "4", "--frequent", "10")
    (tmp_path / "in.en").write_text("".join(f"{text}\n" for text in TEXTS))
    made = []
    for number in (1, 2):
        out = tmp_path / f"out{number}.es"
        arguments = ("--input", tmp_path / "in.en", "--output", out, "--workers", number, "--shortlist", path)
        command = ("translate", "--model", str(toy_run), "--device", "cpu")
        assert run(*arguments, command=command, application=app)[0] == 0
        made.append(out.read_text())
    assert made[0] == made[1]


def test_another_shortlist_is_not_resumed(run: Any, toy_run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    path, _ = learn(run, toy_run)
    source, out = tmp_path / "in.en", tmp_path / "out.es"
    source.write_text("".join(f"{text}\n" for text in TEXTS))
    command = ("translate", "--model", str(toy_run), "--device", "cpu", "--input", str(source), "--output", str(out))

    def fail(*_: object) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("seq2seq.cli.shared.show", fail)
        assert run("--shortlist", path, command=command, application=app)[0] == 130
    for arguments in ((), ("--shortlist", learn(run, toy_run, "--best", "2")[0])):
        status, _, err = run("--resume", *arguments, command=command, application=app)
        assert status == 1
        assert re.search(r"was made with shortlist_digest=\w+, not (None|\w+): --resume it with the same", err)


def test_what_a_shortlist_cannot_be_learned_from_is_one_line(run: Any, toy_run: Path, tmp_path: Path) -> None:
    bundle = toy_run / "model"
    exported = bundle.rename(tmp_path / "exported")
    _, err = learn(run, exported, status=1)
    assert re.fullmatch(r"error: .*exported has no run beside it, .*: give --model runs/NAME\n", err)
    exported.rename(bundle)
    (tmp_path / "train.tsv").write_text("".join(f"{src} {src}\t{tgt}\n" for src, tgt in PAIRS[:50]))
    _, err = learn(run, toy_run, status=1)
    assert re.fullmatch(r"error: the texts of .*NAME have changed since its training: restore the files .*\n", err)


def test_what_is_no_shortlist_of_the_model_is_one_line(run: Any, toy_run: Path, bundle_folder: Path) -> None:
    path, _ = learn(run, toy_run)
    status, _, err = run("hola", "--shortlist", path)
    assert (status, err.count("\n")) == (1, 1)
    assert "the shortlist belongs to another model, whose tokenizer differs: make one" in err
    status, _, err = run("hola", "--shortlist", bundle_folder / "config.json")
    assert (status, err.count("\n")) == (1, 1)
    assert "config.json is damaged, or no shortlist: make it with `seq2seq shortlist`" in err
    status, _, err = run("hola", "--shortlist", path, "--engine", "ctranslate2")
    assert (status, err.count("\n")) == (1, 1)
    assert "--shortlist is for the pytorch engine, and --engine is ctranslate2: leave one of them out" in err


def test_ctranslate2_reads_the_vmap(run: Any, toy_run: Path, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    from seq2seq.exchange.ctranslate2 import export_ctranslate2

    export_ctranslate2(toy_run / "model", tmp_path / "export")
    path, _ = learn(run, toy_run, "--best", "4", "--frequent", "10", "--vmap", tmp_path / "export" / "vmap.txt")
    translator, theirs = (
        Translator.load(toy_run, "cpu", shortlist=path),
        ctranslate2.Translator(str(tmp_path / "export")),
    )
    allowed, limited = Shortlist.load(path), 0
    for text in TEXTS:
        (ids,) = translator.tokenizer.target.encode([text])
        (source,) = [translator.tokenizer.target.tokens(ids)]
        options = {"beam_size": 1, "max_decoding_length": 12}
        (whole,), (found,) = (theirs.translate_batch([source], use_vmap=use, **options) for use in (False, True))
        needed = set(allowed.union([ids]).tolist())
        assert set(translator.tokenizer.target.ids(found.hypotheses[0])) <= needed
        limited += not set(translator.tokenizer.target.ids(whole.hypotheses[0])) <= needed
    assert limited  # without it, they contain other subwords


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "none/s"), "--output none/s cannot be written: No such file or directory"),
        (("--output", "runs"), "--output runs cannot be written: Is a directory"),
        (("--output", "s", "--vmap", "none/v"), "--output none/v cannot be written: No such file or directory"),
        (("--output", "s", "--vmap", "./s"), "--output and --vmap are both s: name two files"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_learned(
    run: Any, toy_run: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("text is prepared before all is checked")

    monkeypatch.setattr("seq2seq.text.prepare.prepare", refuse)
    found = run(*words, command=("shortlist", "--model", str(toy_run)), application=app)
    assert found == (1, "", f"error: {message}\n")
    assert not Path("s").exists()
