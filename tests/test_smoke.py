"""Three smoke tests of real programs: train and translate, kill and resume, serve and translate.

All other tests of the default run call functions in their own process.
"""

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch

from benchmarks.server_process import ServerProcess
from seq2seq.training.finish_run import read_translations
from seq2seq.translate.translator import Translator
from tests.toy import FILES, TINY, write_corpus

REPOSITORY = Path(__file__).parents[1]
SHORT = (
    *FILES, *TINY, "training.max_tokens=256", "training.bleu_sentences=2", "training.warmup_steps=2", "search.beam=2",
    "search.max_length_ratio=1", "search.max_length_offset=2", "trainer.max_time=null", "trainer.precision=32-true",
    "trainer.max_steps=4", "trainer.validate_every=4", "trainer.checkpoint_every=2", "trainer.log_every=1",
)  # fmt: skip
SENTENCE = "The cat sees the milk."


def start(program: str, *arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command, pipe = [sys.executable, str(REPOSITORY / program), *arguments], subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which train.py has trained the run `straight`; the file `shown` has what it printed."""
    folder = write_corpus(tmp_path_factory.mktemp("smoke"))
    (folder / "shown").write_text(start("train.py", *SHORT, "name=straight", cwd=folder).communicate(timeout=600)[1])
    return folder


def test_train_ends_with_translations_and_commands_that_work(workdir: Path) -> None:
    lines, run = (workdir / "shown").read_text().split("\n")[:-1], Path("runs/straight")
    assert not set("".join(lines)) & set("\r\x1b")
    assert lines[0].endswith(" loading PyTorch")
    (tested,) = read_translations(workdir / run)
    shown = lines[lines.index("Test sentences, as the model translates them:") + 1 :]
    for source, translation in zip(shown[:6:2], shown[1:6:2], strict=True):
        text = tested.hypotheses[tested.sources.index(source.strip())]
        assert translation.partition("   (")[0].strip() == f"→ {text}".strip()
    assert (workdir / run / "alignment.png").exists() == (f"  {run}/alignment.png" in shown)
    _, program, *words = shlex.split(next(line for line in shown if "translate.py" in line))
    for arguments in (words, words[2:]):  # the latest run is the default
        output = finish(start(program, *arguments, cwd=workdir))
        assert output == Translator.load(workdir / run, "cpu").translate(words[2:])[0] + "\n"
    assert lines[-1].startswith(f"  python train.py resume={run} trainer.max_steps=8")


def test_a_killed_run_that_is_resumed_ends_with_the_weights_of_an_uninterrupted_one(workdir: Path) -> None:
    process = start("train.py", *SHORT, "name=killed", cwd=workdir)
    assert process.stderr is not None
    for line in process.stderr:
        if "update 3 " in line:
            process.kill()
            break
    process.communicate(timeout=60)
    assert not (workdir / "runs" / "killed" / "results.json").exists()
    finish(start("train.py", "resume=runs/killed", cwd=workdir))
    ends = [workdir / "runs" / name / "checkpoints" / "step=0000004.ckpt" for name in ("straight", "killed")]
    straight, resumed = (torch.load(path, weights_only=True)["state_dict"] for path in ends)
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in straight.items())


def test_a_served_model_translates(workdir: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    model = workdir / "runs" / "straight" / "model"
    with ServerProcess(model, "--device", "cpu", OMP_NUM_THREADS="1") as server:
        body = json.dumps({"q": SENTENCE, "source": "en", "target": "es"}).encode()
        request = urllib.request.Request(f"{server.url}/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            translation = json.load(answer)["translatedText"]
    assert translation == Translator.load(model, "cpu").translate([SENTENCE])[0]
