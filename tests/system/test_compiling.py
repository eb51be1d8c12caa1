"""Compiled training computes what PyTorch computes, away from the tests' type checks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.system

SCRIPT = """
import torch
from torch.testing import assert_close
from seq2seq.settings.model import ModelConfig
from seq2seq.model.transformer import Transformer
from seq2seq.training import computation
from seq2seq.training.loss import cross_entropy, loss_of_chunk

graphs = []

def backend(graph, inputs):  # the graph as it is: code for the processor takes minutes
    graphs.append(graph)
    return graph.forward

computation.BACKEND = backend
sizes = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
model = Transformer(ModelConfig(**sizes, dropout=0.0), 30).train()
forward = computation.compile_forward(model)

def gradients(hidden):
    hidden.square().sum().backward()
    values = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return values

for rows, source, target in ((3, 5, 17), (4, 9, 12), (6, 17, 3), (2, 30, 20), (7, 20, 60)):
    src, tgt_in = torch.randint(4, 30, (rows, source)), torch.randint(4, 30, (rows, target))
    src[0, 3:] = 0
    hidden, expected = forward(src, tgt_in), model(src, tgt_in)
    assert_close(hidden, expected, atol=1e-5, rtol=0)
    assert_close(gradients(hidden), gradients(expected), atol=1e-4, rtol=1e-4)
assert not any("compiled" in name for name in model.state_dict())
print("graphs of the model:", len(graphs))

def loss_and_gradients(compute):
    leaves = hidden.detach().requires_grad_(), model.embedding.weight.detach().requires_grad_()
    loss, nll, _ = cross_entropy(*leaves, tgt_out, pad=0, smoothing=0.1, compute=compute)
    loss.backward()
    return loss.detach(), nll, *(leaf.grad for leaf in leaves)

compute = computation.compiled(loss_of_chunk)
for rows, target in ((3, 17), (4, 12), (20, 30)):
    hidden, tgt_out = torch.randn(rows, target, 16), torch.randint(4, 30, (rows, target))
    tgt_out[0, 3:] = 0
    assert_close(loss_and_gradients(compute), loss_and_gradients(loss_of_chunk))
print("graphs of the loss:", len(graphs) - 1)
"""


def test_one_compiled_graph_serves_batches_of_all_sizes() -> None:
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "graphs of the model: 1\ngraphs of the loss: 2\n"


NO_COMPILER = """
import torch
from seq2seq.settings.model import ModelConfig
from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.training import computation

sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
forward = computation.compile_forward(Transformer(ModelConfig(**sizes, dropout=0.0), 30).train())
try:
    forward(torch.randint(4, 30, (3, 5)), torch.randint(4, 30, (3, 7)))
except UserError as error:
    print(error)
"""


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", NO_COMPILER],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (message,) = done.stdout.splitlines()
    assert message.startswith("trainer.compile=true cannot make its kernels here (No working C++ compiler found in")
    assert message.endswith("install one, or leave trainer.compile out")
