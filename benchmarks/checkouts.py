"""Updates of this checkout and of another one in turns, from the same first weights, on the same batches."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.command import Results, Table
from benchmarks.data import epochs_of, read_or_draw, to_device
from benchmarks.ours import SEED, TrainingOptions, Updates, model_config, precision_on
from benchmarks.race import race
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import PAD
from seq2seq.training.module import TranslationModule

HERE, THERE = "this checkout", "the other one"


@dataclass(frozen=True, kw_only=True)
class Plan(TrainingOptions):
    """The options of `checkouts`."""

    other: Path  # folder of the other checkout
    optimizer: Literal["adamw", "muon"] = "adamw"  # as training.optimizer
    rounds: int = 5  # times that both train on all batches; the table shows the median and the range
    batches: int = 10  # batches of a round


def run(plan: Plan, device: torch.device) -> Results:
    """Train both in processes of their own, each with all of its own code but this file."""
    if not (plan.other / "benchmarks").is_dir():
        raise UserError(f"{plan.other} is no checkout: make one, for example by `git worktree add FOLDER COMMIT`")
    numbers, pipe = (plan.vocab_size, plan.max_tokens, plan.batches, torch.get_num_threads()), subprocess.PIPE
    words = map(str, (plan.size, *numbers, plan.optimizer, plan.precision, device))
    command = [sys.executable, "-c", f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')", *words]
    tokens = sum(int((batch.tgt_out != PAD).sum()) for batch in draw(plan.vocab_size, plan.max_tokens, plan.batches))
    with ExitStack() as stack:
        contestants: dict[str, Callable[[int], str]] = {}
        for name, folder in ((HERE, Path(__file__).parents[1]), (THERE, plan.other)):
            trainer = stack.enter_context(subprocess.Popen(command, bufsize=0, cwd=folder, stdin=pipe, stdout=pipe))
            contestants[name] = partial(_update, name, trainer)
        result = race(contestants, range(plan.batches), work=tokens, rounds=plan.rounds, device=device)
    faster, equal = result.ratio(HERE, THERE).show(3), "yes" if result.outputs[HERE] == result.outputs[THERE] else "no"
    rows = [[name, result.rate(name).show(0), faster if name == HERE else "", equal] for name in contestants]
    table = Table("Updates", ["", "target tokens/s (range)", "× faster (range)", "losses equal, bit for bit"], rows)
    return {"seconds": result.seconds, "losses": result.outputs}, [table]


def _update(name: str, trainer: "subprocess.Popen[bytes]", number: int) -> str:
    """Let a checkout train on a batch, and return its loss."""
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    with suppress(BrokenPipeError):
        trainer.stdin.write(f"{number}\n".encode())
    if not (loss := trainer.stdout.readline().decode()):
        raise UserError(f"{name} cannot train: its own error is above")
    return loss.strip()


def draw(vocab_size: int, max_tokens: int, count: int) -> list[Any]:
    """Return batches of random ids, the same for both."""
    return list(islice(epochs_of(read_or_draw(None, vocab_size, 20_000, SEED), max_tokens, SEED), count))


def serve(
    size: str, vocab_size: int, max_tokens: int, batches: int, threads: int, optimizer: str, precision: str, on: str
) -> None:
    """Train on the batch whose number a line of the standard input has, and print its loss."""
    torch.set_num_threads(threads)
    device = torch.device(on)
    drawn = [to_device(batch, on) for batch in draw(vocab_size, max_tokens, batches)]
    torch.manual_seed(SEED)
    model = build_model(model_config(size), vocab_size).to(device)  # type: ignore[arg-type]
    settings = TrainingConfig(max_tokens=max_tokens, learning_rate=1e-4, optimizer=optimizer)
    updates = Updates(TranslationModule(model, settings), precision_on(device, precision))
    for line in sys.stdin:
        print(float(updates.update(drawn[int(line)])).hex(), flush=True)


if __name__ == "__main__":
    size, *numbers, optimizer, precision, on = sys.argv[1:]
    serve(size, *map(int, numbers), optimizer, precision, on)  # type: ignore[call-arg]
