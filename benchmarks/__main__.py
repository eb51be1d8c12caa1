"""The command `python -m benchmarks`: reads options and runs what they name."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer

from benchmarks import options
from benchmarks.measuring import measuring
from seq2seq.errors import UserError
from seq2seq.extras import missing

if TYPE_CHECKING:
    from benchmarks import decoding as decoding_race
    from benchmarks import training as training_race

app = typer.Typer(
    name="benchmarks",
    help="Measure this project against Hugging Face transformers on this machine, on the same data and batches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def quieten() -> None:
    """Log what goes on, and let transformers neither chat nor look anything up on the net."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


@app.command()
@measuring
def training(
    where: torch.device,
    data: options.AnyData = None,
    rounds: options.Rounds = 5,
    batches: options.Batches = 12,
    max_tokens: options.MaxTokens = 2048,
    size: options.Size = "small",
    vocab_size: options.VocabSize = 8000,
    precision: options.Precision = "auto",
) -> dict[str, Any]:
    """Target tokens a second of updates: ours and Hugging Face's, in turns on identical batches."""
    from benchmarks.training import Plan

    plan = Plan(rounds=rounds, batches=batches, max_tokens=max_tokens, precision=options.precision(precision, where))
    return {"training": race_training(data, plan, size, vocab_size, where)}


@app.command()
@measuring
def profile(
    where: torch.device,
    data: options.AnyData = None,
    rounds: options.Rounds = 5,
    batches: options.Batches = 6,
    max_tokens: options.MaxTokens = 2048,
    size: options.Size = "small",
    vocab_size: options.VocabSize = 8000,
    precision: options.Precision = "auto",
) -> dict[str, Any]:
    """Where an update's time goes, part by part, beside the time of its matrix products alone."""
    from benchmarks.data import DrawnPairs, read_folder
    from benchmarks.profile import Plan, run
    from seq2seq.text.batching import BatchLoader

    plan = Plan(rounds=rounds, batches=batches, max_tokens=max_tokens, precision=options.precision(precision, where))
    count = 40 * (rounds * batches + 1) * max_tokens // 100  # drawn pairs are some ten tokens long
    pairs = read_folder(data, vocab_size).train if data else DrawnPairs(count, vocab_size, plan.seed)
    loader = BatchLoader(pairs, max_tokens=max_tokens, seed=plan.seed)
    found = run(loader, vocab_size, options.model_config(size), plan, where)
    return {"profile": {"data": str(data) if data else "random", **found}}


@app.command()
@measuring
def decoding(
    where: torch.device,
    data: options.Data,
    model: options.Model = None,
    rounds: options.Rounds = 3,
    sentences: options.Sentences = 320,
    batch: options.Batch = 32,
    beam: options.Beam = 5,
    train_seconds: options.TrainSeconds = 60.0,
    size: options.Size = "small",
    vocab_size: options.VocabSize = 8000,
) -> dict[str, Any]:
    """Sentences a second of beam search: ours and Hugging Face's generate, in turns with the same weights."""
    from benchmarks.decoding import Plan

    plan = Plan(rounds=rounds, sentences=sentences, batch=batch, beam=beam, train_seconds=train_seconds)
    return {"decoding": race_decoding(data, model, plan, size, vocab_size, where)}


@app.command()
@measuring
def equality(
    where: torch.device,
    data: options.Data,
    model: options.Bundle,
    sentences: options.Sentences = 500,
) -> dict[str, Any]:
    """Ours, CTranslate2's and Hugging Face's translations with the same weights, token for token: who finds better."""
    from benchmarks.data import read_test
    from benchmarks.equality import run
    from seq2seq.bundle import load_bundle

    bundle = load_bundle(model)
    sources = [source for source, _ in read_test(data)[:sentences]]
    found = run(bundle.model, bundle.tokenizer, sources, where)
    return {"equality": found}


@app.command()
@measuring
def attention(
    where: torch.device,
    rounds: options.Rounds = 5,
    precision: options.Precision = "auto",
) -> dict[str, Any]:
    """Attention by PyTorch's fused kernel and in the open, at several lengths: which this machine wants where."""
    from benchmarks.attention import run

    return {"attention": run(rounds, where, options.precision(precision, where))}


@app.command()
@measuring
def transfers(where: torch.device) -> dict[str, Any]:
    """How often an update, and a step of a search, makes the host wait for a GPU: rehearsed, so none is needed."""
    from benchmarks.rehearsal import run

    return {"transfers": run()}


@app.command()
@measuring
def streaming(
    where: torch.device,
    pairs: options.Pairs = 20_000_000,
    streamed: options.Streamed = 4_000_000,
    part: options.Part = 200_000,
    rounds: options.Rounds = 5,
    batches: options.Batches = 12,
    max_tokens: options.MaxTokens = 2048,
    block: options.Block = 50_000,
    folder: options.Temporary = None,
    size: options.Size = "small",
    vocab_size: options.VocabSize = 8000,
) -> dict[str, Any]:
    """Updates fed by a streamed corpus and by one in memory, in turns; then a long stream's rate and memory."""
    from benchmarks.streaming import Plan, run

    plan = Plan(
        pairs=pairs,
        streamed=streamed,
        part=part,
        rounds=rounds,
        batches=batches,
        max_tokens=max_tokens,
        block=block,
    )
    found = run(plan, options.model_config(size), vocab_size, where, folder)
    return {"streaming": found}


@app.command()
@measuring
def serving(
    where: torch.device,
    model: options.Bundle,
    data: options.Data,
    clients: options.Clients = 64,
    seconds: options.Seconds = 60.0,
    sentences: options.Sentences = 2000,
) -> dict[str, Any]:
    """A server process asked by many clients at a time: batches against one sentence at a time, and its memory."""
    from benchmarks.data import read_test
    from benchmarks.serving import Plan, run

    asked, plan = [source for source, _ in read_test(data)[:sentences]], Plan(clients=clients, seconds=seconds)
    return {"serving": run(plan, model, asked, str(where), torch.get_num_threads())}


@app.command()
@measuring
def hostile(
    where: torch.device,
    model: options.Bundle,
    data: options.Data,
    clients: options.Clients = 64,
    unread: options.Unread = 40,
    seconds: options.Seconds = 60.0,
    sentences: options.Sentences = 2000,
) -> dict[str, Any]:
    """A server's ordinary clients without and with hostile ones, and its memory."""
    from benchmarks.data import read_test
    from benchmarks.hostile import Plan, run

    asked = [source for source, _ in read_test(data)[:sentences]]
    plan = Plan(clients=clients, unread=unread, seconds=seconds)
    return {"hostile": run(plan, model, asked, str(where), torch.get_num_threads())}


@app.command(name="all")
@measuring
def everything(
    where: torch.device,
    data: options.Data,
    model: options.Model = None,
    rounds: options.Rounds = 5,
    train_seconds: options.TrainSeconds = 60.0,
    size: options.Size = "small",
    vocab_size: options.VocabSize = 8000,
    precision: options.Precision = "auto",
) -> dict[str, Any]:
    """Training, decoding and attention at their usual sizes; the rival, half an hour, is a command of its own."""
    from benchmarks import attention, decoding, training

    chosen = options.precision(precision, where)
    plan = decoding.Plan(rounds=rounds, train_seconds=train_seconds)
    results = {
        "training": race_training(data, training.Plan(rounds=rounds, precision=chosen), size, vocab_size, where),
        "decoding": race_decoding(data, model, plan, size, vocab_size, where),
        "attention": attention.run(rounds, where, chosen),
    }
    return results


@app.command()
def rival(
    data: options.Data,
    output: options.Folder,
    minutes: options.Minutes = 25.0,
    max_tokens: options.MaxTokens = 2048,
    learning_rate: options.LearningRate = 1e-3,
    warmup: options.Warmup = 300,
    schedule: options.Schedule = "linear",
    attention: options.Attention = "auto",
    validate_every: options.ValidateEvery = 2.0,
    sentences: options.Tested = 2000,
    seed: options.Seed = 1,
    size: options.Size = "small",
    vocab_size: options.VocabSize = 8000,
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    threads: options.Threads = 0,
) -> None:
    """Train a plain Hugging Face loop for some minutes and score it: the quality to beat in the same time."""
    from benchmarks import rival as module

    where = options.place(device, threads)
    recipe = module.Recipe(
        minutes=minutes,
        max_tokens=max_tokens,
        learning_rate=learning_rate,
        warmup=warmup,
        schedule=schedule,
        attention=attention,
        precision=options.precision(precision, where),
        vocab_size=vocab_size,
        validate_every=validate_every,
        sentences=sentences,
        seed=seed,
    )
    module.run(data, recipe, options.model_config(size), where, output)


def race_training(
    data: Path | None, plan: "training_race.Plan", size: str, vocab_size: int, device: torch.device
) -> dict[str, Any]:
    """Make the batches and race on them."""
    from benchmarks.data import DrawnPairs, draw_batches, read_folder
    from benchmarks.training import run

    config = options.model_config(size)
    pairs = read_folder(data, vocab_size).train if data else DrawnPairs(20_000, vocab_size, plan.seed)
    batches = draw_batches(pairs, plan.batches, plan.max_tokens, plan.seed)
    return {"data": str(data) if data else "random", **run(batches, vocab_size, config, plan, device)}


def race_decoding(
    data: Path,
    model: Path | None,
    plan: "decoding_race.Plan",
    size: str,
    vocab_size: int,
    device: torch.device,
) -> dict[str, Any]:
    """Load a model or train one, and race with it."""
    from benchmarks.data import read_folder, read_test
    from benchmarks.decoding import run, train_briefly
    from seq2seq.bundle import load_bundle

    if model is None:
        prepared = read_folder(data, vocab_size)
        trained = train_briefly(prepared, options.model_config(size), plan.train_seconds, device)
        tokenizer = prepared.tokenizer
    else:
        bundle = load_bundle(model)
        trained, tokenizer = bundle.model, bundle.tokenizer
    return {"data": str(data), "bundle": str(model) if model else None} | run(
        trained, tokenizer, read_test(data), plan, device
    )


def main() -> None:
    """Run the command; what a user can cause is told in one line."""
    try:
        app()
    except UserError as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        if error.name not in ("transformers", "ctranslate2"):
            raise
        extra = "huggingface" if error.name == "transformers" else error.name
        sys.exit(f"error: {missing(extra, 'this benchmark', error.name)}")


if __name__ == "__main__":
    main()
