"""The commands of README.md and docs/ run, in a small form: tests/documented_table.py has the additions."""

import io
import lzma
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from launcher import Launcher
from small_run import BASE

from seq2seq.cli import app, main, translate_app
from seq2seq.training.run_folder import point_latest
from tests.documented import REPOSITORY, Command, commands
from tests.documented_table import added_words, reason_not_to_run
from tests.toy import PAIRS, write_corpus, write_pairs

pytestmark = pytest.mark.system

RUN = [command for command in commands() if reason_not_to_run(command) is None]
TRAINING = [run for run in RUN if run.starts_with("python", "train.py") or run.starts_with("seq2seq", "train")]
OTHERS = [command for command in RUN if command not in TRAINING]
NEEDS = {"--engine": "ctranslate2", "huggingface": "transformers", "prepare": "pyarrow"}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Path:
    """A working folder with all files and runs that the documents name."""
    folder = write_corpus(tmp_path_factory.mktemp("documented"))
    write_toy(folder / "toy")
    write_bundled(folder / "bundled")
    sources, targets = ("".join(f"{pair[side]}\n" for pair in PAIRS[:3]) for side in (0, 1))
    (folder / "terms.tsv").write_text("milk\tleche\n", encoding="utf-8")
    (folder / "page.html").write_text("<p>The <b>cat</b> sees the milk.</p>\n")
    (folder / "in.en").write_text(sources, encoding="utf-8")
    (folder / "mono").mkdir()
    for name in ("ref", "ref2", "out", "old", "new", "rival", "ours", "modern", "mono", "mono/a"):
        (folder / f"{name}.es").write_text(targets, encoding="utf-8")
    steps = ("trainer.max_steps=5", "trainer.validate_every=5", "trainer.checkpoint_every=1", "trainer.keep_last=5")
    launcher.complete(*BASE, *steps, "name=NAME", cwd=folder)
    for name in ("a", "b", "base", "first", "general", "reverse", "second", "slowly", "tatoeba_cpu", "teacher"):
        shutil.copytree(folder / "runs" / "NAME", folder / "runs" / name)
    shutil.copytree(folder / "runs" / "NAME" / "model", folder / "data" / "model")
    return folder


def write_toy(folder: Path) -> None:
    """Write corpora under the names that commands give them; commands get data.root=toy."""
    for inner in ("tatoeba", "corpora", "tests"):
        (folder / inner).mkdir(parents=True)
    write_corpus(folder)
    for name in ("my", "mine", "domain", "news", "real", "synthetic", "distilled", "tatoeba/train"):
        write_pairs(folder / f"{name}.tsv", PAIRS[:60])
    write_pairs(folder / "general.tsv", PAIRS[20:80])
    for name in ("dev", "mine.dev", "mine.test", "v", "tatoeba/test"):
        write_pairs(folder / f"{name}.tsv", PAIRS[60:70])
    weights = yaml.safe_load((REPOSITORY / "conf" / "data" / "mixed_cpu.yaml").read_text(encoding="utf-8"))["weights"]
    news = {name for name in weights if name.startswith("news")}
    for name in {"some", "gimp_help", "gnome_user_docs", *weights} - {"tatoeba"} - news:
        with lzma.open(folder / "corpora" / f"{name}.tsv.xz", "wt", encoding="utf-8") as file:
            file.writelines(f"{src}\t{tgt}\n" for src, tgt in PAIRS[:60])
    tests = dict.fromkeys(("test", "tests/newstest2012", "tests/newstest2013", "tests/flores200-devtest"), PAIRS[70:])
    for name, pairs in (tests | {f"tests/{name}": PAIRS[:60] for name in news}).items():
        for side, language in enumerate(("en", "es")):
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))


def write_bundled(folder: Path) -> None:
    """Write a cut of the bundled corpus under its own names; commands get data.root=bundled."""
    folder.mkdir()
    for path in (REPOSITORY / "data" / "bundled").glob("*.tsv"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / path.name).write_text("".join(lines[: 300 if "train" in path.name else 10]), encoding="utf-8")


@pytest.mark.parametrize("command", TRAINING, ids=lambda command: command.text)
def test_a_documented_training_runs(command: Command, workdir: Path, launcher: Launcher) -> None:
    overrides = [word for word in command.words if "=" in word]
    options = ["--multirun"] if "--multirun" in command.words else []
    launcher.complete(*options, *overrides, *added_words(command), cwd=workdir)


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: command.text)
def test_a_documented_command_runs(command: Command, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for word, package in NEEDS.items():
        if word in command.words:
            pytest.importorskip(package, reason=f"{package} is not installed")
    for output in ("exported", "runs/mean"):
        shutil.rmtree(workdir / output, ignore_errors=True)
    point_latest(workdir / "runs" / "NAME")  # another training may have been the last
    monkeypatch.chdir(workdir)
    for name, data in (("stdin", redirected(command)), ("stdout", b"")):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    program, words = (app, command.words[1:]) if command.words[0] == "seq2seq" else (translate_app, command.words[2:])
    monkeypatch.setattr(sys, "argv", ["seq2seq", *words, *added_words(command)])
    with pytest.raises(SystemExit) as ended:
        main(program)
    assert not ended.value.code, ended.value.code


def redirected(command: Command) -> bytes:
    """Return what the command's < gives it to read, in the working folder."""
    tokens = shlex.split(command.text)
    return Path(tokens[tokens.index("<") + 1]).read_bytes() if "<" in tokens else b""
