"""The command `python -m benchmarks`: reads options and runs a measurement."""

import logging
import os
import sys
from typing import Any

import torch
import typer

from benchmarks import options
from benchmarks.measuring import measuring
from seq2seq.errors import UserError
from seq2seq.extras import missing

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
    """Log progress; silence transformers and keep it offline."""
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
    compile_: options.CompileTraining = False,
) -> dict[str, Any]:
    """Measure target tokens per second of training: ours and Hugging Face's, in turns, on identical batches."""
    from benchmarks.training import Plan, run_on

    chosen = options.precision(precision, where)
    plan = Plan(rounds=rounds, batches=batches, max_tokens=max_tokens, precision=chosen, is_compiled=compile_)
    return {"training": run_on(data, plan, size, vocab_size, where)}


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
    """Measure the time of each part of an update, and the time of its matrix products alone."""
    from benchmarks.data import drawn_pairs, epochs_of, read_folder
    from benchmarks.profile import Plan, run

    plan = Plan(rounds=rounds, batches=batches, max_tokens=max_tokens, precision=options.precision(precision, where))
    count = 40 * (rounds * batches + 1) * max_tokens // 100  # random pairs are about ten tokens long
    pairs = read_folder(data, vocab_size).train if data else drawn_pairs(count, vocab_size, plan.seed)
    loader = epochs_of(pairs, max_tokens, plan.seed)
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
    """Measure sentences per second of beam search: ours, CTranslate2's and Hugging Face's, in turns, same weights."""
    from benchmarks.decoding import Plan, run_with

    plan = Plan(rounds=rounds, sentences=sentences, batch=batch, beam=beam, train_seconds=train_seconds)
    return {"decoding": run_with(data, model, plan, size, vocab_size, where)}


@app.command()
@measuring
def shortlist(
    where: torch.device,
    data: options.Data,
    model: options.Bundle,
    shortlists: options.Shortlists,
    rounds: options.Rounds = 3,
    sentences: options.Sentences = 320,
    batch: options.Batch = 32,
    beam: options.Beam = 5,
) -> dict[str, Any]:
    """Measure sentences per second and BLEU of beam search without and with shortlists, compiled and not."""
    from benchmarks.data import read_test
    from benchmarks.decoding import Plan
    from benchmarks.shortlist import run
    from seq2seq.bundle import load_bundle

    plan = Plan(rounds=rounds, sentences=sentences, batch=batch, beam=beam)
    return {"shortlist": run(load_bundle(model), shortlists, read_test(data), plan, where)}


@app.command()
@measuring
def importing(
    where: torch.device,
    data: options.AnyData = None,
    size: options.Imported = "opus-mt",
    pieces: options.Pieces = 65_001,
    sentences: options.Sentences = 2000,
    searched: options.Searched = 100,
) -> dict[str, Any]:
    """Import a Marian model with random weights and export it again: equality, seconds, memory; on the CPU."""
    from benchmarks.data import read_everyday, read_test
    from benchmarks.importing import run

    pairs = read_test(data) if data else read_everyday()
    return {"importing": run(size, pieces, [source for source, _ in pairs[:sentences]], searched)}


@app.command()
@measuring
def equality(
    where: torch.device,
    data: options.Data,
    model: options.Bundle,
    sentences: options.Sentences = 500,
) -> dict[str, Any]:
    """Compare our translations with CTranslate2's and Hugging Face's, token for token, with the same weights."""
    from benchmarks.data import one_of, read_test
    from benchmarks.equality import run
    from seq2seq.bundle import load_bundle

    bundle = load_bundle(model)
    sources = [source for source, _ in read_test(data)[:sentences]]
    found = run(bundle.model, one_of(bundle.tokenizer), sources, where)
    return {"equality": found}


@app.command()
@measuring
def attention(
    where: torch.device,
    rounds: options.Rounds = 5,
    precision: options.Precision = "auto",
) -> dict[str, Any]:
    """Compare attention by PyTorch's fused kernel and by separate operations, at several lengths."""
    from benchmarks.attention import run

    return {"attention": run(rounds, where, options.precision(precision, where))}


@app.command()
@measuring
def cost(where: torch.device, rounds: options.Rounds = 20, picture: options.Picture = None) -> dict[str, Any]:
    """Measure attention's time and memory by the length of a text, fused and not, and fit exponents.

    Each peak of memory is measured in its own process. Lengths go up to 4,096 positions, where separate operations
    take half a gigabyte.
    """
    from benchmarks.cost import run

    return {"cost": run(rounds, where, picture)}


@app.command()
@measuring
def transfers(where: torch.device) -> dict[str, Any]:
    """Count how often an update or a step of a search would make the host wait for a GPU; needs no GPU."""
    from benchmarks.rehearsal import run

    return {"transfers": run()}


@app.command()
@measuring
def starting(where: torch.device, model: options.Bundle, rounds: options.Rounds = 5) -> dict[str, Any]:
    """Measure the translation of one sentence from the shell, and the import of PyTorch alone, in turns."""
    from benchmarks.starting import run

    return {"starting": run(model, rounds)}


@app.command()
@measuring
def files(
    where: torch.device,
    model: options.Bundle,
    text: options.Text = options.BUNDLED_TEXT,
    lines: options.Lines = 1_000_000,
    workers: options.Workers = options.ONE_AND_TWO,
    kills: options.Kills = 2,
    beam: options.Beam = 1,
    compiles: options.Compile = "auto",
) -> dict[str, Any]:
    """Measure speed and memory of translating a long file: with one process, with several, and killed and resumed."""
    from benchmarks.files import Plan, run

    if where.type != "cpu":
        raise UserError("files are translated on the CPU here: give --device cpu")
    plan = Plan(lines=lines, workers=workers, kills=kills, beam=beam, compiles=compiles)
    return {"files": run(plan, model, text, torch.get_num_threads())}


@app.command()
@measuring
def workers(
    where: torch.device,
    model: options.Bundle,
    data: options.Data,
    lines: options.Lines = 8192,
    processes: options.Processes = 2,
    rounds: options.Rounds = 3,
    beam: options.Beam = 5,
) -> dict[str, Any]:
    """Measure lines per second of a file: with several processes, with one, and with CTranslate2, in turns."""
    from benchmarks.data import read_test
    from benchmarks.workers import Plan, run

    if where.type != "cpu":
        raise UserError("several processes translate on the CPU: give --device cpu")
    plan = Plan(lines=lines, workers=processes, rounds=rounds, beam=beam)
    return {"workers": run(plan, model, read_test(data))}


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
    """Measure speed and memory of a server with many clients, with and without batches."""
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
    """Measure speed and memory of a server for ordinary clients, without and with hostile clients."""
    from benchmarks.data import read_test
    from benchmarks.hostile import Plan, run

    asked = [source for source, _ in read_test(data)[:sentences]]
    plan = Plan(clients=clients, unread=unread, seconds=seconds)
    return {"hostile": run(plan, model, asked, str(where), torch.get_num_threads())}


@app.command()
@measuring
def scale(
    where: torch.device,
    pairs: options.Sizes = (10_000_000, 100_000_000, 1_000_000_000),  # type: ignore[assignment]
    size: options.Size = "base",
    vocab_size: options.VocabSize = 32_000,
    tokens: options.Tokens = 30,
    epochs: options.Epochs = 3.0,
    cores: options.Cores = 16,
    devices: options.Devices = 1,
    slopes: options.Slopes = None,
    tflops: options.TeraFlops = None,
    lines: options.LinesASecond = None,
    measure: options.Measure = False,
    model: options.Translating = None,
) -> dict[str, Any]:
    """Print what a large corpus costs to prepare, train on and translate, from measured slopes."""
    from dataclasses import replace

    from benchmarks.scale import Case, run
    from benchmarks.slopes import Slopes, read_slopes
    from benchmarks.slopes import measure as measure_slopes

    config, found = options.model_config(size), {}
    if measure:
        found["measured"] = measure_slopes(config, vocab_size, where, model)
        chosen = Slopes(**found["measured"]["slopes"])
    else:
        chosen = read_slopes(slopes)
    given = {"reached": tflops and tflops * 1e12, "translated": lines}
    chosen = replace(chosen, **{name: value for name, value in given.items() if value})
    case = Case(pairs=pairs, tokens=tokens, epochs=epochs, vocab_size=vocab_size, cores=cores, devices=devices)
    return {**found, "scale": run(config, case, chosen)}


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
    """Run training, decoding and attention at their usual sizes; not `rival`, which takes half an hour."""
    from benchmarks import attention, decoding, training

    chosen = options.precision(precision, where)
    plan = decoding.Plan(rounds=rounds, train_seconds=train_seconds)
    return {
        "training": training.run_on(data, training.Plan(rounds=rounds, precision=chosen), size, vocab_size, where),
        "decoding": decoding.run_with(data, model, plan, size, vocab_size, where),
        "attention": attention.run(rounds, where, chosen),
    }


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
    """Train with a plain Hugging Face loop for some minutes and score the model: the quality to beat in this time."""
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


def main() -> None:
    """Run the command; report a user's mistake in one line."""
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
