"""The stage after training: the weights that are shipped, their loss and test scores, and all that is written of them.

A run that is killed here and resumed repeats the stage. `save_best` writes the model of a run that still trains.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq import __version__
from seq2seq.data.dataset import PreparedData, trained_length
from seq2seq.data.loading import validation_loaders
from seq2seq.errors import StoppedError, UserError
from seq2seq.evaluation.error_analysis import Translated
from seq2seq.evaluation.metrics import Scores, score
from seq2seq.evaluation.robustness import to_plain
from seq2seq.model.build import build_without_values
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.progress import console, phase
from seq2seq.settings.bundle import BundleConfig
from seq2seq.settings.config import Config
from seq2seq.settings.missing_packages import resume_command
from seq2seq.settings.rules import AUTO
from seq2seq.storage.output import read_lines
from seq2seq.training import final_scores
from seq2seq.training.averaging import mean_weights
from seq2seq.training.module import TranslationModule
from seq2seq.training.report import draw_curves, model_card, scores_table, write_json
from seq2seq.training.run_files import write_text
from seq2seq.training.run_folder import read_checkpoint
from seq2seq.training.run_state import list_checkpoints, step_of
from seq2seq.translate.bundle import Bundle, save_bundle

log = logging.getLogger(__name__)
TRANSLATIONS = "translations"  # a run's folder with its translations of the test sets


@dataclass(frozen=True)
class TrainingEnd:
    """How training ended, or how far it is."""

    updates: int
    epochs: float
    seconds: float
    is_out_of_patience: bool
    stopped_by: str | None  # the name of a signal
    best: Sequence[Path]  # the kept checkpoints with the best validations, the best first
    hardware: str
    device: torch.device


def complete_run(config: Config, folder: Path, data: PreparedData, training: TrainingEnd) -> None:
    """Write the model, test it, and write the scores."""
    if training.stopped_by:
        save_best(config, folder, data, training)
        draw_curves(folder)
        raise StoppedError(
            f"stopped by {training.stopped_by} after update {training.updates}: a usable model is in "
            f"{folder / 'model'}; go on with `{resume_command(folder)}`"
        )
    bundle, names = shipped_bundle(config, folder, data, training, config.training.final_weights)
    facts = _facts(config, data, training, bundle) | {"weights": names}
    facts["validation_loss"] = round(validation_loss(bundle.model, config, data, training.device), 4)
    bundle.model.cpu()
    _save(folder, bundle, model_card(config, facts))  # testing takes long and may be killed
    draw_curves(folder)
    translator = final_scores.run_translator(folder / "model", config, training.device)
    bundle.config.calibration = translator.calibration = final_scores.calibrate_on(translator, data.validation_pairs)
    of_tests = final_scores.translate_tests(translator, data.tests)
    translations = {name: [translation.text for translation in of_set] for name, of_set in of_tests.items()}
    keep_translations(folder, translations, data.tests)
    scores = dict[str, Scores]()
    with phase("scoring", sum(map(len, data.tests.values())), "translations") as advance:
        for name, pairs in data.tests.items():
            scores[name] = score(translations[name], [tgt for _, tgt in pairs], language=config.data.tgt_lang)
            advance(len(pairs))
    facts["scores"] = {name: of_set.to_dict() for name, of_set in scores.items()}
    if scores:
        console().print(scores_table(scores))
    confidences = final_scores.reliabilities(of_tests, data.tests)
    facts["confidence"] = {name: of_set.to_dict() for name, of_set in confidences.items()}
    known = final_scores.target_words(data.folder, config.data.tgt_lang)
    facts["robustness"] = to_plain(final_scores.probe(translator, data.tests, config.training.probes, known))
    _save(folder, bundle, model_card(config, facts, final_scores.worst(data.tests, translations), confidences))
    write_json(folder / "results.json", facts)
    log.info("model: %s", folder / "model")


def _save(folder: Path, bundle: Bundle, card: str) -> None:
    try:
        save_bundle(folder / "model", bundle, card)
    except UserError as error:
        raise UserError(f"{error}: make room, then `{resume_command(folder)}`") from error


def save_best(config: Config, folder: Path, data: PreparedData, training: TrainingEnd) -> None:
    """Write the model of a run that goes on: its best weights so far, or the last ones before its first validation.

    A complete run that was given more updates keeps its measured model, to which results.json belongs.
    """
    if not (folder / "results.json").exists():
        bundle, names = shipped_bundle(config, folder, data, training, "best")
        facts = _facts(config, data, training, bundle)
        _save(folder, bundle, model_card(config, facts | {"weights_after": step_of(Path(names[0]))}))


def shipped_bundle(
    config: Config, folder: Path, data: PreparedData, training: TrainingEnd, wanted: str
) -> tuple[Bundle, list[str]]:
    """Return the model that training.final_weights=wanted asks for, and the names of the checkpoints with its weights.

    `auto` takes the best weights if training ran out of patience, else the latest. With a running average, every
    checkpoint's `state_dict` is the average. A damaged checkpoint is left out, with a warning.
    """
    if wanted == AUTO:
        wanted = "best" if training.is_out_of_patience else "last"
    best = [path for path in training.best if path.exists()] if wanted in ("best", "average") else []
    if wanted in ("best", "average") and not best:
        log.warning("there was no validation yet, so there is no best: taking the last weights")
    states = dict(_read_states(best)) if wanted == "average" else {}
    if not states:
        last = reversed(list_checkpoints(folder / "checkpoints"))
        states = dict(islice(_read_states([*best, *last]), 1))
    if not states:
        raise UserError(f"all checkpoints in {folder / 'checkpoints'} are damaged: restore one from a copy")
    model = build_without_values(config.model, *data.tokenizer.sizes)  # draws no random number of the training's
    model.load_state_dict(mean_weights(list(states.values())), assign=True)
    settings = BundleConfig(
        config.model, config.search, config.data.src_lang, config.data.tgt_lang, trained_length(data)
    )
    return Bundle(model.eval(), data.tokenizer, settings), [path.name for path in states]


def _read_states(paths: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Tensor]]]:
    """Yield the weights of the checkpoints that are whole; warn of damaged ones."""
    for path in paths:
        try:
            state = read_checkpoint(path, "cpu")["state_dict"]
        except UserError as error:
            log.warning("%s: its weights are left out", error)
            continue
        yield path, {name.removeprefix("model."): weights for name, weights in state.items()}


def validation_loss(model: EncoderDecoder, config: Config, data: PreparedData, device: torch.device) -> float:
    """Return the loss per target token (nats) of the model, the mean over the validation sets, as training logs it."""
    module = TranslationModule(model.to(device), config.training)
    is_bf16, losses = config.trainer.precision == "bf16-mixed", []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
        for batches in validation_loaders(config, data, rank=0, world_size=1):
            sums = torch.zeros(2, dtype=torch.float64)
            for batch in batches:
                _, nll, tokens = module.loss(module.transfer_batch_to_device(batch, device, 0), 0.0)
                sums += torch.tensor([float(nll), float(tokens)], dtype=torch.float64)
            losses.append(float(sums[0] / sums[1]))
    return sum(losses) / len(losses)


def keep_translations(folder: Path, translations: Mapping[str, Sequence[str]], tests: final_scores.Tests) -> None:
    """Write a run's translations of each test set, the sources and the references, as text files."""
    (folder / TRANSLATIONS).mkdir(exist_ok=True)
    for name, pairs in tests.items():
        texts = {"": translations[name], ".source": [src for src, _ in pairs], ".reference": [tgt for _, tgt in pairs]}
        for kind, lines in texts.items():
            write_text(folder / TRANSLATIONS / f"{name}{kind}.txt", "".join(f"{line}\n" for line in lines))


def read_translations(run: Path) -> list[Translated]:
    """Read the test sets that a run translated at its end."""
    folder, test_sets = run / TRANSLATIONS, []
    for path in sorted(folder.glob("*.source.txt")):
        name = path.name.removesuffix(".source.txt")
        files = [path, *(folder / f"{name}{kind}.txt" for kind in ("", ".reference"))]
        texts = [list(read_lines(file)) for file in files]
        for file, lines in zip(files, texts, strict=True):
            if len(lines) != len(texts[0]):
                raise UserError(f"{file} has {len(lines):,} lines, {path.name} {len(texts[0]):,}: one is damaged")
        test_sets.append(Translated(name, *texts))
    if not test_sets:
        raise UserError(f"{run} keeps no test translations with sources: it is unfinished, old, or had no test set")
    return test_sets


def _facts(config: Config, data: PreparedData, training: TrainingEnd, bundle: Bundle) -> dict[str, Any]:
    """Return the facts for results.json and the model card that need no measurement."""
    return {
        "name": config.name,
        "version": __version__,
        "parameters": sum(parameter.numel() for parameter in bundle.model.parameters()),
        "updates": training.updates,
        "epochs": round(training.epochs, 2),
        "training_seconds": round(training.seconds, 1),
        "out_of_patience": training.is_out_of_patience,
        "hardware": training.hardware,
        "finished": time.strftime("%Y-%m-%d %H:%M"),
        "data": data.report,
        "model": config.model.used(),
        "training": asdict(config.training),
        "search": asdict(config.search),
    }
