"""A whole run: data → training → weights → bundle → scores, in one folder."""

import logging
import os
import platform
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import lightning as L
import torch
from rich.console import Console
from sacrebleu.metrics.chrf import CHRF

from seq2seq import __version__
from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.cache import note_run
from seq2seq.device import prepare
from seq2seq.errors import StoppedError, UserError, in_short, is_out_of_memory
from seq2seq.evaluation.metrics import Scores, score
from seq2seq.evaluation.significance import read_seed
from seq2seq.extras import resume_command
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.bundle import BundleConfig
from seq2seq.settings.config import Config
from seq2seq.settings.data import cache_root
from seq2seq.settings.rules import AUTO
from seq2seq.text.dataset import PreparedData, trained_length
from seq2seq.text.filters import drop_table
from seq2seq.text.loading import mixture_table, training_feed, validation_loaders
from seq2seq.text.prepare import corpus_digests
from seq2seq.text.prepare import prepare as prepare_text
from seq2seq.training.automatic import settle_numbers
from seq2seq.training.baseline import compare_with, keep_initial, keep_translations, read_baseline
from seq2seq.training.callbacks import Budget, Patience, StoppedValidationError
from seq2seq.training.checkpoints import Checkpoints
from seq2seq.training.execution import recompute_layers
from seq2seq.training.finetune import count_trained, make_model, mean_weights, merge_adapters, remove_adapters
from seq2seq.training.folder import point_latest
from seq2seq.training.module import TranslationModule
from seq2seq.training.processes import rank
from seq2seq.training.refusals import refuse_spent
from seq2seq.training.report import changes_table, draw_curves, model_card, scores_table, summary_table, write_json
from seq2seq.training.restore import describe_run
from seq2seq.training.saved import list_checkpoints, step_of
from seq2seq.training.trainer import make_trainer
from seq2seq.translator import Translator

log = logging.getLogger(__name__)
_Kind = TypeVar("_Kind", bound=L.Callback)


def train(config: Config, folder: Path, checkpoint: Path | None = None, named: Collection[str] = ()) -> float | None:
    """Train, or continue from a checkpoint, and complete the run's folder.

    named are the keys that the command line names, for the table that is shown first. Return the best validation's
    value of training.monitor (None if nothing was validated), by which a sweep compares runs.

    Raises:
        UserError: the settings, the data, the checkpoint or the disk do not allow the run, or a signal stopped it.
    """
    if rank() > 0:
        logging.getLogger("seq2seq").setLevel(logging.WARNING)  # the first process logs
    L.seed_everything(config.seed, verbose=False)
    console = Console(stderr=True, quiet=rank() > 0)
    data = prepare_text(config.data, config.tokenizer)
    note_run(data.folder, folder)
    if config.init is not None and Path(config.init).parent == cache_root(config.data.cache).resolve():
        note_run(Path(config.init), folder)  # an imported model
    references = {name: [tgt for _, tgt in pairs] for name, pairs in data.tests.items()}
    baseline = read_baseline(config.baseline, references)
    is_tuned = config.baseline == AUTO and config.init is not None and bool(references)
    if baseline or is_tuned:
        read_seed()  # of the comparison, refused before training
    console.print(drop_table(data.report))
    if (table := mixture_table(config, data)) is not None:
        console.print(table)
    ruled, updates_per_epoch = settle_numbers(config, folder, data)
    if checkpoint is not None:
        refuse_spent(config, folder, step_of(checkpoint))  # again: max_steps is a number now
    record = describe_run(config, corpus_digests(config.data))
    module = make_module(config, data, resumed=checkpoint is not None)
    trained = count_trained(module)
    trainer = make_trainer(config, folder, data, record, updates_per_epoch)
    prepare(trainer.strategy.root_device)
    sizes = count(module), trained
    console.print(summary_table(config, data, (named, ruled), updates_per_epoch, sizes, hardware(trainer)))
    if rank() == 0:
        point_latest(folder)
    fit(trainer, module, config, data, checkpoint)
    best = best_value(config, trainer)
    if not trainer.is_global_zero:
        return best
    interrupted = callback_of(trainer, Budget).stopped_by
    model = build_model(config.model, *data.tokenizer.sizes)
    choose_weights(config, folder, trainer, model)
    settings = BundleConfig(
        config.model, config.search, config.data.src_lang, config.data.tgt_lang, trained_length(data)
    )
    bundle = Bundle(model.cpu().eval(), data.tokenizer, settings)
    facts = gather_facts(config, trainer, data, model) | {"trained_parameters": trained}
    facts["epochs"] = round(trainer.global_step / updates_per_epoch, 2)
    save_bundle(folder / "model", bundle, model_card(config, facts, {}, []))  # testing takes long and may be killed
    draw_curves(folder)
    if interrupted:
        raise StoppedError(
            f"stopped by {interrupted} after update {trainer.global_step}: a usable model is in {folder / 'model'}; "
            f"go on with `{resume_command(folder)}`"
        )
    scores, worst, translations = test(bundle, config, data.tests, trainer.strategy.root_device)
    keep_translations(folder, translations, data.tests)
    save_bundle(folder / "model", bundle, model_card(config, facts, scores, worst))
    facts["scores"] = {name: of_set.to_dict() for name, of_set in scores.items()}
    write_json(folder / "results.json", facts)
    if scores:
        console.print(scores_table(scores))
    if is_tuned:
        baseline = translate_before(config, folder, data.tests, trainer.strategy.root_device)
    if baseline:
        run = config.init if is_tuned else config.baseline
        log.info("comparing the test translations with those of %s", run)
        systems = ("before", "after") if is_tuned else (str(run), str(folder))
        found = compare_with(baseline, translations, references, systems)
        facts["baseline"] = {"run": run, "tests": {name: one.to_dict() for name, one in found.items()}}
        write_json(folder / "results.json", facts)
        for name, comparison in found.items():
            console.print(comparison.table(name))
        if is_tuned and found:
            console.print(changes_table(found))
            save_bundle(folder / "model", bundle, model_card(config, facts, scores, worst, found))
    log.info("model: %s", folder / "model")
    return best


def translate_before(
    config: Config, folder: Path, tests: Mapping[str, list[tuple[str, str]]], device: torch.device
) -> dict[str, list[str]]:
    """Translate every test set with the model of config.init, and keep the translations in the run's folder.

    If the model cannot be loaded any more, log a warning and return no translations: the run itself is complete.
    """
    try:
        initial = load_bundle(Path(str(config.init)))
    except UserError as error:
        log.warning("the initial model is not compared: %s", error)
        return {}
    log.info("translating the test sets with the initial model, %s (baseline=null leaves this out)", config.init)
    translations = translate_tests(initial, config, tests, device)
    keep_initial(folder, translations)
    return translations


def best_value(config: Config, trainer: L.Trainer) -> float | None:
    """Return the best validation's BLEU or loss; the last validation's if no best checkpoint is kept."""
    kept = callback_of(trainer, Checkpoints).best_value()
    value = trainer.callback_metrics.get(f"val_{config.training.monitor}") if kept is None else kept
    return None if value is None else float(value)


def make_module(config: Config, data: PreparedData, *, resumed: bool) -> TranslationModule:
    """Return the Lightning module that trains the model."""
    model = make_model(config, data.tokenizer.sizes, resumed=resumed)
    if config.training.activation_checkpointing:
        recompute_layers(model)
    vocabulary = data.tokenizer.digest[:16]
    return TranslationModule(
        model,
        config.training,
        seed=config.seed,
        vocabulary=vocabulary,
        is_compiled=config.trainer.compile,
        validation_sets=list(data.validation_sets),
    )


def fit(
    trainer: L.Trainer, module: TranslationModule, config: Config, data: PreparedData, checkpoint: Path | None
) -> None:
    """Train until the budget is spent.

    Raises:
        UserError: a checkpoint cannot be written or read, or the loss is not a number.
    """
    place = {"rank": trainer.global_rank, "world_size": trainer.world_size}
    pin = trainer.strategy.root_device.type == "cuda"
    training = training_feed(config, data, **place, pin=pin)
    validation = validation_loaders(config, data, **place)
    try:
        trainer.fit(module, training, validation, ckpt_path=checkpoint, weights_only=True)
    except StoppedValidationError:
        return
    except UserError:
        raise
    except Exception as error:
        if trainer._checkpoint_connector._loaded_checkpoint and not is_out_of_memory(error):  # not yet restored
            raise UserError(
                f"{checkpoint} cannot be resumed from ({type(error).__name__}: {in_short(error)}): it is forged, or "
                "of another version; restore it from a copy, or move it away to resume from the one before"
            ) from error
        if not isinstance(error, OSError):
            raise
        raise UserError(
            f"cannot write to {trainer.default_root_dir} at update {trainer.global_step}: {error.strerror or error}; "
            f"the last checkpoint is whole: make room, then `{resume_command(trainer.default_root_dir)}`"
        ) from error


def choose_weights(config: Config, folder: Path, trainer: L.Trainer, model: EncoderDecoder) -> None:
    """Load the final weights into the model: the latest checkpoint, the best, or the mean of the kept best ones.

    `auto` takes the best if training ran out of patience, else the latest. With a running average, every checkpoint's
    `state_dict` is the average.
    """
    paths = list_checkpoints(folder / "checkpoints")[-1:]
    wanted = config.training.final_weights
    if wanted == AUTO and is_out_of_patience(trainer):
        wanted = "best"
    if wanted in ("best", "average"):
        kept = [path for path in callback_of(trainer, Checkpoints).best() if path.exists()]
        if kept:
            paths = kept[:1] if wanted == "best" else kept
        else:
            log.warning("there was no validation yet, so there is no best: taking the last weights")
    states = [torch.load(path, map_location="cpu", weights_only=True)["state_dict"] for path in paths]
    states = [{name.removeprefix("model."): weights for name, weights in state.items()} for state in states]
    remove_adapters(model)
    model.load_state_dict(mean_weights([merge_adapters(state, config.training) for state in states]))


def callback_of(trainer: L.Trainer, kind: type[_Kind]) -> _Kind:
    """Return the trainer's callback of a class."""
    return next(c for c in trainer.callbacks if isinstance(c, kind))  # type: ignore[attr-defined]


def is_out_of_patience(trainer: L.Trainer) -> bool:
    """Return whether early stopping is on and ended the training."""
    return any(c.is_out for c in trainer.callbacks if isinstance(c, Patience))  # type: ignore[attr-defined]


def test(
    bundle: Bundle, config: Config, tests: Mapping[str, list[tuple[str, str]]], device: torch.device
) -> tuple[dict[str, Scores], list[tuple[str, str, str]], dict[str, list[str]]]:
    """Translate and score every test set.

    Return the scores by test set, the twenty worst translations as (source, reference, translation), and all
    translations by test set.
    """
    found = translate_tests(bundle, config, tests, device)
    scores, samples = {}, []
    for name, pairs in tests.items():
        scores[name] = score(found[name], [tgt for _, tgt in pairs])
        samples += [(src, tgt, hyp) for (src, tgt), hyp in zip(pairs, found[name], strict=True)]
    chrf = CHRF()
    samples.sort(key=lambda sample: chrf.sentence_score(sample[2], [sample[1]]).score)
    return scores, samples[:20], found


def translate_tests(
    bundle: Bundle, config: Config, tests: Mapping[str, list[tuple[str, str]]], device: torch.device
) -> dict[str, list[str]]:
    """Translate every test set with the run's search, on the device.

    After training in float32, the search uses float32; else it uses the precision of `translate.py` on the device.
    """
    dtype = torch.float32 if config.trainer.precision == "32-true" else None
    translator = Translator(
        bundle.model.to(device),
        bundle.tokenizer,
        search=config.search,
        device=device,
        dtype=dtype,
        src_lang=config.data.src_lang,
        tgt_lang=config.data.tgt_lang,
        trained_length=bundle.config.trained_length,
    )
    found = {}
    for name, pairs in tests.items():
        log.info("translating test set %s: %s sentences", name, f"{len(pairs):,}")
        found[name] = translator.translate([src for src, _ in pairs])
    bundle.model.cpu()
    return found


def gather_facts(config: Config, trainer: L.Trainer, data: PreparedData, model: EncoderDecoder) -> dict[str, Any]:
    """Return the facts for results.json and the model card, without the scores."""
    metrics: Mapping[str, Any] = trainer.callback_metrics
    return {
        "name": config.name,
        "version": __version__,
        "parameters": count(model),
        "updates": trainer.global_step,
        "training_seconds": round(callback_of(trainer, Budget).time_elapsed(), 1),
        "out_of_patience": is_out_of_patience(trainer),
        "validation_loss": round(float(metrics["val_loss"]), 4) if "val_loss" in metrics else None,
        "hardware": hardware(trainer),
        "finished": time.strftime("%Y-%m-%d %H:%M"),
        "data": data.report,
        "model": config.model.used(),
        "training": asdict(config.training),
        "search": asdict(config.search),
    }


def count(model: torch.nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def hardware(trainer: L.Trainer) -> str:
    """Return a description of the devices that the trainer computes on."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return f"{trainer.world_size} × {torch.cuda.get_device_name(device)}"
    return f"{os.cpu_count()} CPU cores ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"
