"""Own parts: a module that the user names registers them, and nothing else imports it."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import BASE, fails_in_one_line, last_weights, logged, program

from examples.relative_bias import RelativeAttention
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.toy import FILES, TINY, write_corpus

pytestmark = pytest.mark.system

PARTS = """
import torch
from lightning import Callback
from seq2seq import register

@register("training.optimizer", "sgd")
def make_sgd(groups, config):
    return torch.optim.SGD(groups, lr=config.learning_rate)

@register("training.schedule", "halves")
def halve(step, progress):
    return 0.5 ** (step // 2)

@register("training.modifiers.own", "shout")
def shout(pair, draw):
    return pair[0] + "!", pair[1] + "!"

@register("trainer.callbacks", "notes")
class Notes(Callback):
    def __init__(self, config):
        self.name = config.name

    def on_train_end(self, trainer, module):
        with open("notes", "a") as file:
            print(self.name, trainer.global_step, file=file)
"""
OWN = (
    *BASE, "extensions=my_parts", "training.optimizer=sgd", "training.schedule=halves", "training.warmup_steps=0",
    "training.learning_rate=0.1", "trainer.callbacks=[notes]", "training.modifiers.share=0.5",
    "training.modifiers.own.shout=9", "data.block=40",
)  # fmt: skip


def test_an_optimizer_a_schedule_a_modifier_and_a_callback_of_ones_own(launcher: Launcher, workdir: Path) -> None:
    fails_in_one_line(launcher.train(*OWN, cwd=workdir), "nor a package has the module my_parts")
    (workdir / "my_parts.py").write_text(PARTS)
    for name, steps in (("whole", 7), ("parts", 4)):
        launcher.complete(*OWN, f"name={name}", f"trainer.max_steps={steps}", cwd=workdir)
    more = ("resume=runs/parts", "trainer.max_steps=7")
    fails_in_one_line(launcher.train(*more, cwd=workdir), r"not known: .* extensions=\[MODULE\]")
    launcher.complete(*more, "extensions=my_parts", cwd=workdir)
    kept = launcher.train(*OWN, "name=parts", "resume=auto", "trainer.max_steps=7", cwd=workdir)
    assert (kept.status, "complete" in kept.output) == (0, True), kept.output
    rates = [0.1 * 0.5 ** (step // 2) for step in range(7)]
    assert [float(rate) for _, _, rate in logged(workdir / "runs/whole", "learning_rate")] == pytest.approx(rates)
    assert (workdir / "notes").read_text().splitlines() == ["whole 7", "parts 4", "parts 7"]
    weights = [last_weights(workdir / "runs" / name)["state_dict"] for name in ("whole", "parts")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_a_network_of_ones_own_is_trained_and_translates_and_is_explained(launcher: Launcher, workdir: Path) -> None:
    network = ("extensions=examples.relative_bias", "model.architecture=relative_bias", "model.positions=none")
    launcher.complete(*BASE, *network, "name=own", "trainer.max_steps=3", cwd=workdir)

    def run(command: str, *options: str) -> subprocess.CompletedProcess[str]:
        start = "from seq2seq.cli import main; main()"
        return program(start, command, "--model", "runs/own", "A cat.", *options, cwd=workdir)

    assert re.fullmatch("error: .*relative_bias is not known: .* --extension MODULE\n", run("translate").stderr)
    named = ("--extension", "examples.relative_bias")
    assert run("translate", *named).returncode == 0
    assert run("attend", *named, "--output", "pictures").returncode == 0
    assert any((workdir / "pictures").iterdir())


def test_weights_of_ones_own_are_searched_step_by_step_and_shown() -> None:
    torch.manual_seed(1)
    config = ModelConfig(architecture="relative_bias", positions="none", d_model=16, num_heads=2, d_ff=32)
    model = build_model(config, 40).eval()
    own = [module for module in model.modules() if isinstance(module, RelativeAttention)]
    for module in own:
        torch.nn.init.normal_(module.bias)
    src, tgt = torch.randint(4, 40, (2, 9)), torch.randint(4, 40, (2, 5))
    src[1, 6:] = PAD
    state, steps = model.encode(src), []
    for token in tgt.unbind(1):
        logits, state = model.decode(token[:, None], state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), model.logits(model(src, tgt)))
    weights = model.traced(src, tgt).encoder[0]
    assert not weights[1, :, :, 6:].any()
    torch.nn.init.zeros_(own[0].bias)
    assert not torch.allclose(weights, model.traced(src, tgt).encoder[0], atol=0.01)


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

    trained = program(SCRIPT, "train", *SETTINGS, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert len(re.findall("decoding.c computes something else", trained.stdout + trained.stderr)) == 1
    sources = [line.split("\t")[0] for line in (tmp_path / "test.tsv").read_text().splitlines()]
    file = tmp_path / "runs" / "relu" / "translations" / "test.txt"
    translated = program(SCRIPT, "translate", cwd=tmp_path, texts="\n".join(sources))
    assert translated.stdout.splitlines() == file.read_text().splitlines()
