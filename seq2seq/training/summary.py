"""What a run is, in one table before its first update: text, model, device, end, and who decided each."""

from rich.markup import escape
from rich.table import Table

from seq2seq.settings.choices import Origins
from seq2seq.settings.config import Config
from seq2seq.text.dataset import PreparedData, example

_TEXT = ("data.train", "data.hub", "data.root", "data.src_lang", "data.tgt_lang", "data.languages")
_DEVICE = ("trainer.accelerator", "trainer.devices", "trainer.strategy", "trainer.precision")
_END = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time", "training.patience")


def summary_table(
    config: Config,
    data: PreparedData,
    origins: Origins,
    updates_per_epoch: float | None,
    parameters: tuple[int, int],
    hardware: str,
) -> Table:
    """Make the table; parameters are those of the model and those of them that are trained."""
    table = Table("", "this run", "decided by", title="Before the first update", title_justify="left")
    for name, text, keys in (
        ("text", _text(data), _TEXT),
        ("pairs", _pairs(config, data), (*_TEXT, "data.validation", "data.test", "data.held_out")),
        ("example", escape(example(data)), _TEXT),
        (
            "vocabulary",
            f"{data.tokenizer.vocab_size:,} subwords, {config.tokenizer.type}",
            ("tokenizer.type", "tokenizer.vocab_size", "tokenizer.model"),
        ),
        ("model", _model(config, parameters), ("model",)),
        ("dropout", f"{config.model.dropout:g}", ("model.dropout",)),
        ("device", _device(config, hardware), _DEVICE),
        ("batch", _batch(config, updates_per_epoch), ("training.max_tokens", "training.accumulate")),
        ("learning rate", _rate(config), ("training.learning_rate", "training.warmup_steps", "training.schedule")),
        ("ends", _end(config, updates_per_epoch), _END),
        ("validation", _validation(config), ("trainer.validate_every", "training.patience", "training.monitor")),
    ):
        table.add_row(name, text, origins.of(*keys))
    return table


def _text(data: PreparedData) -> str:
    names = [str(file["name"]).rpartition("/")[2] for file in data.report["files"]]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _pairs(config: Config, data: PreparedData) -> str:
    tests = "".join(f", {name} {len(pairs):,}" for name, pairs in data.tests.items())
    kind = "sampled from a stream" if config.data.streaming else "to train on"
    languages = f"{config.data.src_lang}→{config.data.tgt_lang}"
    return f"{languages}: {len(data.train):,} {kind}, {len(data.validation):,} to validate{tests}"


def _model(config: Config, parameters: tuple[int, int]) -> str:
    model, (number, trained) = config.model, parameters
    layers = f"{model.num_encoder_layers}+{model.num_decoder_layers} layers of width {model.d_model}"
    part = f", {trained:,} of them trained" if trained < number else ""
    return f"{model.architecture}, {layers}, {number:,} parameters{part}"


def _device(config: Config, hardware: str) -> str:
    number = config.trainer.devices * config.trainer.num_nodes
    spread = f", {number} processes ({config.trainer.strategy})" if number > 1 else ""
    return f"{hardware}, {config.trainer.precision}{spread}"


def _batch(config: Config, updates_per_epoch: float | None) -> str:
    number = config.training.accumulate * config.trainer.devices * config.trainer.num_nodes
    times = f" × {number}" if number > 1 else ""
    epoch = f"; {updates_per_epoch:,.0f} updates an epoch" if updates_per_epoch else ""
    return f"{config.training.max_tokens:,}{times} positions an update{epoch}"


def _rate(config: Config) -> str:
    training = config.training
    return f"{training.learning_rate:g} after {training.warmup_steps:,} updates of warm-up, then {training.schedule}"


def _end(config: Config, updates_per_epoch: float | None) -> str:
    trainer = config.trainer
    epochs = f" ({trainer.max_steps / updates_per_epoch:.1f} epochs)" if updates_per_epoch else ""
    time = f" or {trainer.max_time} (days:hours:minutes:seconds)" if trainer.max_time else ""
    patience = config.training.patience
    stopped = f", or after {patience} validations without improvement" if patience else ""
    return f"after {trainer.max_steps:,} updates{epochs}{time}{stopped}"


def _validation(config: Config) -> str:
    return f"every {config.trainer.validate_every:,} updates, by {config.training.monitor}"
