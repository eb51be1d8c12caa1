"""The benchmarks' command-line options, each declared once."""

from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from seq2seq.device import choose_device
from seq2seq.settings.checks import require_choice
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.training.processes import choose_precision

MODELS, MEASURING, RECIPE = "Models", "Measuring", "Training of the rival"
SIZES = {  # d_model, heads, d_ff, encoder layers, decoder layers: as in conf/model
    "tiny": (128, 4, 512, 3),
    "small": (256, 4, 1024, 3),
    "base": (512, 8, 2048, 6),
    "big": (1024, 16, 4096, 6),
}

Data = Annotated[Path, typer.Option(help="Folder with train.tsv, validation.tsv and test.tsv.")]
AnyData = Annotated[
    Path | None,
    typer.Option(
        help="Folder with train.tsv, validation.tsv and test.tsv. [dim]default: random ids of like lengths[/dim]"
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: a GPU if there is one.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0 = PyTorch's choice.")]
Json = Annotated[Path | None, typer.Option("--output", help="JSON file for all that was measured.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print tables as Markdown, for docs/performance.md.")]

Size = Annotated[str, typer.Option(help="tiny, small, base or big, in the published style.", rich_help_panel=MODELS)]
VocabSize = Annotated[int, typer.Option(min=8, help="Pieces of the joint vocabulary.", rich_help_panel=MODELS)]
Model = Annotated[
    Path | None,
    typer.Option(
        help="Bundle of the published style to decode with. [dim]default: one trained for --train-seconds[/dim]",
        rich_help_panel=MODELS,
    ),
]
Bundle = Annotated[Path, typer.Option("--model", help="Bundle of the published style.", rich_help_panel=MODELS)]
Shortlists = Annotated[
    list[Path],
    typer.Option(
        "--shortlist", help="File of `seq2seq shortlist`; may be given several times.", rich_help_panel=MODELS
    ),
]
TrainSeconds = Annotated[
    float,
    typer.Option(min=1, help="Seconds of training before decoding, where no --model is given.", rich_help_panel=MODELS),
]

Rounds = Annotated[int, typer.Option(min=1, help="Times that everything is measured.", rich_help_panel=MEASURING)]
Batches = Annotated[int, typer.Option(min=1, help="Training batches a round.", rich_help_panel=MEASURING)]
MaxTokens = Annotated[
    int, typer.Option(min=16, help="Positions a side of a training batch, padding included.", rich_help_panel=MEASURING)
]
Precision = Annotated[
    str, typer.Option(help="auto, 32-true or bf16-mixed: as trainer.precision.", rich_help_panel=MEASURING)
]
Imported = Annotated[
    Literal["opus-mt", "tc-big", "tiny"], typer.Option(help="Model of the OPUS-MT family.", rich_help_panel=MEASURING)
]
Pieces = Annotated[int, typer.Option(min=0, help="Of its vocabulary, at least.", rich_help_panel=MEASURING)]
Searched = Annotated[int, typer.Option(min=1, help="Of the sentences, translated.", rich_help_panel=MEASURING)]
Sentences = Annotated[int, typer.Option(min=1, help="Test sentences translated.", rich_help_panel=MEASURING)]
Batch = Annotated[int, typer.Option(min=1, help="Sentences translated at once.", rich_help_panel=MEASURING)]
Beam = Annotated[int, typer.Option(min=1, help="Hypotheses kept.", rich_help_panel=MEASURING)]

Sizes = Annotated[list[int], typer.Option("--pairs", min=1, help="Size of the text; may be given several times.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens of a sentence, on either side.")]
Epochs = Annotated[float, typer.Option(min=0.001, help="Times that training reads the text.")]
Cores = Annotated[int, typer.Option(min=1, help="CPU cores that prepare the text.")]
Devices = Annotated[int, typer.Option(min=1, help="Devices that train and translate.")]
Slopes = Annotated[
    Path | None,
    typer.Option(help="JSON file of an earlier --measure. [dim]default: the figures of docs/scale.md[/dim]"),
]
TeraFlops = Annotated[float | None, typer.Option(min=1e-6, help="10¹² FLOP/s that a device reaches in training.")]
LinesASecond = Annotated[
    float | None, typer.Option("--lines", min=1e-6, help="Lines a second that a device translates.")
]
Translating = Annotated[
    Path | None,
    typer.Option("--model", help="With --measure: bundle that translates. [dim]default: not measured[/dim]"),
]
Measure = Annotated[bool, typer.Option("--measure", help="Measure the slopes here, in some fifteen minutes.")]

BUNDLED_TEXT = [Path(f"data/bundled/{name}.train.tsv") for name in ("grammar", "everyday")]
ONE_AND_TWO = [1, 2]
Text = Annotated[list[Path], typer.Option(help="Whose lines, or first columns, are drawn.", rich_help_panel=MEASURING)]
Lines = Annotated[int, typer.Option(min=1, help="Lines of the file.", rich_help_panel=MEASURING)]
Workers = Annotated[list[int], typer.Option(min=1, help="Processes that translate, each.", rich_help_panel=MEASURING)]
Kills = Annotated[int, typer.Option(min=0, help="Of one more run, which is resumed.", rich_help_panel=MEASURING)]
Processes = Annotated[int, typer.Option("--workers", min=1, help="Processes.", rich_help_panel=MEASURING)]
CompileTraining = Annotated[bool, typer.Option("--compile", help="Race trainer.compile=true, too.")]
Compile = Annotated[str, typer.Option("--compile", help="Compile the search: auto, on or off.")]

Clients = Annotated[int, typer.Option(min=1, help="That ask at the same time.", rich_help_panel=MEASURING)]
Unread = Annotated[int, typer.Option(min=0, help="Clients that never read.", rich_help_panel=MEASURING)]
Seconds = Annotated[float, typer.Option(min=1, help="Of each kind of serving.", rich_help_panel=MEASURING)]

Picture = Annotated[Path | None, typer.Option(help="Draw the results into this file (.png, .svg or .pdf).")]

Folder = Annotated[Path, typer.Option("--output", help="Folder for rival.json, its model and its translations.")]
Minutes = Annotated[
    float, typer.Option(min=0, help="Time of training; validating and translating not counted.", rich_help_panel=RECIPE)
]
LearningRate = Annotated[float, typer.Option(min=0, help="Learning rate at its peak.", rich_help_panel=RECIPE)]
Warmup = Annotated[int, typer.Option(min=0, help="Updates of linear rise.", rich_help_panel=RECIPE)]
Schedule = Annotated[
    str,
    typer.Option(
        help="Of the learning rate: linear, to zero at the end of the time, or inverse_sqrt.", rich_help_panel=RECIPE
    ),
]
Attention = Annotated[
    str, typer.Option(help="sdpa, eager, or auto: eager on the CPU, where it is faster.", rich_help_panel=RECIPE)
]
ValidateEvery = Annotated[
    float, typer.Option(min=0, help="Minutes of training between validations.", rich_help_panel=RECIPE)
]
Tested = Annotated[
    int,
    typer.Option(
        "--sentences", min=0, help="Of test.tsv, from its beginning, that are scored; 0 = all.", rich_help_panel=RECIPE
    ),
]
Seed = Annotated[int, typer.Option(help="Of weights, batches and dropout.", rich_help_panel=RECIPE)]


def model_config(size: str) -> ModelConfig:
    """Return the settings of all contestants' network: the published style, with dropout 0.1.

    The published style has post-norm, ReLU and sinusoidal positions.

    Raises:
        UserError: the size is unknown.
    """
    require_choice("--size", size, tuple(SIZES))
    d_model, heads, d_ff, layers = SIZES[size]
    return ModelConfig(
        d_model=d_model, num_heads=heads, d_ff=d_ff, num_encoder_layers=layers, num_decoder_layers=layers, dropout=0.1
    )


def precision(wanted: str, device: torch.device) -> str:
    """Return the precision of training on the device: bf16-mixed or 32-true.

    Raises:
        UserError: the precision is unknown.
    """
    require_choice("--precision", wanted, ("auto", "32-true", "bf16-mixed"))
    return choose_precision(TrainerConfig(accelerator="cpu" if device.type == "cpu" else "gpu", precision=wanted))


def place(device: str, threads: int) -> torch.device:
    """Set the number of threads and return the device.

    Raises:
        UserError: the device is unknown or not available.
    """
    if threads:
        torch.set_num_threads(threads)
    return choose_device(device)
