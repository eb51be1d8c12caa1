"""`seq2seq shortlist`, and `--shortlist` where it is used."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from seq2seq.data.prepare import prepare
from seq2seq.search.shortlist import Shortlist
from seq2seq.settings.compose import compose
from seq2seq.training.run_folder import write_config
from seq2seq.translate.translator import Translator
from tests.thin import thin
from tests.toy import FILES, PAIRS, TINY, write_corpus
from tests.unit.conftest import one_line_error, write_untrained

pytestmark = pytest.mark.slow

TEXTS = [src for src, _ in PAIRS[:8]]


@pytest.fixture
def toy_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run on the toy corpus, as training would leave it, with an untrained model."""
    monkeypatch.chdir(write_corpus(tmp_path))
    config = compose([*FILES, *TINY])
    model = tmp_path / "runs" / "NAME" / "model"
    write_untrained(model, prepare(config.data, config.tokenizer).tokenizer, scale=3.0)
    write_config(config, model.parent)
    return model.parent


@pytest.fixture
def learn(seq2seq: Any, toy_run: Path) -> Callable[..., tuple[Path, str]]:
    """Return a function that learns a shortlist; it returns the file, and what is written to stderr."""

    def call(*options: object, folder: Path = toy_run, status: int = 0) -> tuple[Path, str]:
        path = folder / "shortlist"
        end, out, err = seq2seq("shortlist", "--model", folder, "--output", path, *options)
        assert (end, out) == (status, "")
        return path, err

    return call


@pytest.mark.parametrize("workers", thin([1, 2], [1]))
def test_a_shortlist_is_learned_from_the_runs_pairs_and_limits_translations(seq2seq, learn, toy_run, tmp_path, workers):
    path, err = learn("--best", "4", "--frequent", "10")
    pattern = r".*shortlist: \d+ of 300 subwords for every text, and \d for a source subword; from 60 pairs\n"
    assert re.fullmatch(pattern, err)
    allowed = Shortlist.load(path)
    plain, limited = Translator.load(toy_run, "cpu"), Translator.load(toy_run, "cpu", shortlist=path)
    possible = allowed.union(plain.tokenizer.target.encode(TEXTS)).tolist()
    translations = [best[0] for best in limited.translate_nbest(TEXTS, 1)]
    assert {token for best in translations for token in plain.tokenizer.target.ids(best.tokens)} <= set(possible)
    assert len(possible) < 300
    texts = [best.text for best in translations]
    assert texts != plain.translate(TEXTS)
    source, out = tmp_path / "in.en", tmp_path / "out.es"
    source.write_text("".join(f"{text}\n" for text in TEXTS))
    files = ("--input", source, "--output", out, "--shortlist", path, "--workers", workers)
    assert seq2seq("translate", "--model", toy_run, "--device", "cpu", *files)[0] == 0
    assert out.read_text().splitlines() == texts


def test_another_shortlist_is_not_resumed(seq2seq, learn, toy_run, tmp_path, monkeypatch):
    path, _ = learn()
    source, out = tmp_path / "in.en", tmp_path / "out.es"
    source.write_text("".join(f"{text}\n" for text in TEXTS))
    command = ("translate", "--model", toy_run, "--device", "cpu", "--input", source, "--output", out)

    with monkeypatch.context() as patched:
        patched.setattr("seq2seq.cli.shared.show", Mock(side_effect=KeyboardInterrupt))
        assert seq2seq(*command, "--shortlist", path)[0] == 130
    for options in ((), ("--shortlist", learn("--best", "2")[0])):
        status, _, err = seq2seq(*command, "--resume", *options)
        assert status == 1
        assert re.search(r"was made with shortlist_digest=\w+, not (None|\w+): --resume it with the same", err)


def test_what_a_shortlist_cannot_be_learned_from_is_one_line(learn: Any, toy_run: Path, tmp_path: Path) -> None:
    bundle = toy_run / "model"
    exported = bundle.rename(tmp_path / "exported")
    _, err = learn(folder=exported, status=1)
    assert re.fullmatch(r"error: .*exported has no run beside it, .*: give --model runs/NAME\n", err)
    exported.rename(bundle)
    (tmp_path / "train.tsv").write_text("".join(f"{src} {src}\t{tgt}\n" for src, tgt in PAIRS[:50]))
    _, err = learn(status=1)
    assert re.fullmatch(r"error: the texts of .*NAME have changed since its training: restore the files .*\n", err)


def test_what_is_no_shortlist_of_the_model_is_one_line(run: Any, learn: Any, bundle_folder: Path) -> None:
    path, _ = learn()
    for options, message in (
        ((path,), "the shortlist belongs to another model, whose tokenizer differs: make one"),
        ((bundle_folder / "config.json",), "config.json is damaged, or no shortlist: make it with `seq2seq shortlist`"),
        (
            (path, "--engine", "ctranslate2"),
            "--shortlist is for the pytorch engine, and --engine is ctranslate2: leave",
        ),
    ):
        assert message in one_line_error(run("hola", "--shortlist", *options))


def test_ctranslate2_reads_the_vmap(learn: Any, toy_run: Path, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2

    export_ctranslate2(toy_run / "model", tmp_path / "export")
    path, _ = learn("--best", "4", "--frequent", "10", "--vmap", tmp_path / "export" / "vmap.txt")
    translator, theirs = Translator.load(toy_run, "cpu"), ctranslate2.Translator(str(tmp_path / "export"))
    allowed, differing = Shortlist.load(path), 0
    for text in TEXTS:
        (ids,) = translator.tokenizer.target.encode([text])
        (source,) = [translator.tokenizer.target.tokens(ids)]
        options = {"beam_size": 1, "max_decoding_length": 12}
        (free,), (best,) = (theirs.translate_batch([source], use_vmap=use, **options) for use in (False, True))
        needed = set(allowed.union([ids]).tolist())
        assert set(translator.tokenizer.target.ids(best.hypotheses[0])) <= needed
        differing += not set(translator.tokenizer.target.ids(free.hypotheses[0])) <= needed
    assert differing  # without it, they contain other subwords


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_learned(seq2seq, toy_run, monkeypatch):
    monkeypatch.setattr("seq2seq.data.prepare.prepare", lambda *_: pytest.fail("text is prepared"))
    for words, message in (
        (("--output", "none/s"), f"{Path.cwd()}/none/s: No such file or directory"),
        (("--output", "runs"), "runs: Is a directory"),
        (("--output", "s", "--vmap", "none/v"), f"{Path.cwd()}/none/v: No such file or directory"),
        (("--output", "s", "--vmap", "./s"), "--output and --vmap are both s: name two files"),
    ):
        assert seq2seq("shortlist", "--model", toy_run, *words) == (1, "", f"error: {message}\n")
        assert not Path("s").exists()
