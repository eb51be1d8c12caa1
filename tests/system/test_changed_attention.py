"""A script that trains with attention of its own gets the BLEU of this attention, from validation to the test sets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.toy import FILES, TINY, write_corpus

pytestmark = pytest.mark.system

SCRIPT = """
import math, sys
from seq2seq.cli.train import main
from seq2seq.model import attention

def relu_weights(queries, keys, mask=None):
    relevance = ((queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)).relu() + 1e-6
    relevance = relevance if mask is None else relevance * mask
    return relevance / relevance.sum(-1, keepdim=True).clamp_min(1e-9)

attention.attention_weights = relu_weights
if sys.argv[1] == "train":
    main(sys.argv[2:])
else:
    from seq2seq.translate.translator import Translator
    print(*Translator.load("runs/relu", "cpu", compiles="off").translate(sys.stdin.read().splitlines()), sep="\\n")
"""
SETTINGS = (
    "training=short", *FILES, "model=tiny", *TINY, "model.d_model=32", "model.dropout=0.0", "training.max_tokens=512",
    "trainer.max_time=null", "trainer.max_steps=300", "trainer.validate_every=100", "trainer.precision=32-true",
    "name=relu",
)  # fmt: skip


def test_the_reported_translations_are_those_of_the_changed_attention(tmp_path: Path) -> None:
    write_corpus(tmp_path)

    def run(*arguments: str, texts: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SCRIPT, *arguments]
        return subprocess.run(command, cwd=tmp_path, input=texts, capture_output=True, text=True, check=True)

    trained = run("train", *SETTINGS)
    assert len(re.findall("decoding.c computes something else", trained.stdout + trained.stderr)) == 1
    sources = [line.split("\t")[0] for line in (tmp_path / "test.tsv").read_text().splitlines()]
    file = tmp_path / "runs" / "relu" / "translations" / "test.txt"
    assert run("translate", texts="\n".join(sources)).stdout.splitlines() == file.read_text().splitlines()
