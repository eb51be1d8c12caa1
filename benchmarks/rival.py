"""The rival in quality: a plain Hugging Face training loop, scored after the same time on the same text."""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from transformers import MarianMTModel

from benchmarks.data import epochs_of, one_of, read_folder, to_device
from benchmarks.huggingface import make_optimizer, mean_loss, translate, update
from benchmarks.machine import describe_machine, write_json
from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.evaluation.metrics import Scores, score
from seq2seq.exchange.huggingface import from_marian, marian_config
from seq2seq.settings.checks import require_choice
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.batching import Batch, FixedBatches, count_batches, plan_batches
from seq2seq.text.dataset import PreparedData
from seq2seq.text.tokenizer import PAD

log = logging.getLogger(__name__)
BATCH = 32  # sentences per batch of translation
BEAM = 5
CARD = "Trained by `python -m benchmarks rival`, Hugging Face's loop, to be compared with; rival.json tells how.\n"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the rival's training; each is an option of the command with the same name."""

    minutes: float = 25.0  # of updates and batch loading; validation, saving and translating take more time
    max_tokens: int = 2048  # most source or target positions of a batch, padding included
    learning_rate: float = 1e-3  # peak of the schedule
    warmup: int = 300  # updates of linear warm-up
    schedule: str = "linear"  # linear: to zero at the end of the time | inverse_sqrt
    attention: str = "auto"  # transformers' kernel: eager | sdpa | auto (the faster one: eager on the CPU, else sdpa)
    precision: str = "bf16-mixed"  # or 32-true
    vocab_size: int = 8000
    validate_every: float = 2.0  # minutes of training between validations
    sentences: int = 2000  # of test.tsv, from its beginning; 0 = all
    seed: int = 1

    def __post_init__(self) -> None:
        require_choice("--schedule", self.schedule, ("linear", "inverse_sqrt"))
        require_choice("--attention", self.attention, ("auto", "sdpa", "eager"))

    def rate(self, step: int, progress: float) -> float:
        """Return the learning rate of update number `step` (from 0), after the share `progress` of the time."""
        warmup = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.schedule == "linear":
            return self.learning_rate * warmup * (1 - min(1.0, progress))
        return self.learning_rate * warmup * math.sqrt(max(self.warmup, 1) / max(step + 1, self.warmup, 1))


def run(folder: Path, recipe: Recipe, model_config: ModelConfig, device: torch.device, output: Path) -> dict[str, Any]:
    """Train for the recipe's minutes, translate the test set with beam 5, and write scores and model into output.

    Raises:
        UserError: the data cannot be read, or the output folder cannot be written.
    """
    if recipe.attention == "auto":
        recipe = replace(recipe, attention="eager" if device.type == "cpu" else "sdpa")
    machine = describe_machine(device)
    data = read_folder(folder, recipe.vocab_size)
    results: dict[str, Any] = {"machine": machine, "recipe": asdict(recipe), "model": asdict(model_config)}
    write_json(output / "rival.json", results)  # fails before the training if the folder cannot be written
    torch.manual_seed(recipe.seed)
    tokenizer = one_of(data.tokenizer)
    config = marian_config(model_config, tokenizer.vocab_size, recipe.attention)
    model = MarianMTModel(config).train()
    model.to(device)  # type: ignore[arg-type]  (transformers' decorator hides self)
    results["parameters"] = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    results |= Training(model, data, recipe).run()
    bundle = Bundle(
        from_marian(model, model_config), data.tokenizer, BundleConfig(model_config, SearchConfig(beam=BEAM))
    )
    save_bundle(output / "model", bundle, CARD)  # for `decoding --model`; kept if translating is interrupted
    write_json(output / "rival.json", results)
    pairs = next(iter(data.tests.values()))[: recipe.sentences or None]
    scores, translations = evaluate(model, data, pairs)
    (output / "translations.txt").write_text("\n".join(translations) + "\n", encoding="utf-8")
    results["scores"] = scores.to_dict()
    write_json(output / "rival.json", results)
    Console().print(scores.table())
    return results


class Training:
    """The training loop; it stops at the end of its time or at Ctrl-C. Validation does not count as time."""

    def __init__(self, model: MarianMTModel, data: PreparedData, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe
        self.optimizer = make_optimizer(model, recipe.learning_rate)
        self.loader = epochs_of(data.train, recipe.max_tokens, recipe.seed)
        self.batches_an_epoch = count_batches(data.train, recipe.max_tokens)
        plan = plan_batches(data.validation, np.arange(len(data.validation)), 2048)
        self.validation = list(FixedBatches(data.validation, plan))
        self.updates, self.tokens, self.seconds = 0, 0, 0.0
        self.history: list[dict[str, float]] = []

    def run(self) -> dict[str, Any]:
        """Train, and return the results as JSON values."""
        interrupted = False
        try:
            self._train(self.recipe.minutes * 60)
        except KeyboardInterrupt:
            interrupted = True
            log.warning("interrupted after %d updates: going on to the test", self.updates)
        if not self.history or self.history[-1]["updates"] != self.updates:
            self._validate()
        return {
            "interrupted": interrupted,
            "updates": self.updates,
            "training_seconds": round(self.seconds, 1),
            "target_tokens_per_second": round(self.tokens / max(self.seconds, 1e-9)),
            "epochs": round(self.updates / self.batches_an_epoch, 2),
            "validation_loss": self.history[-1]["validation_loss"],
            "history": self.history,
        }

    def _train(self, budget: float) -> None:
        validated, total, tokens = 0.0, 0.0, 0
        start = time.perf_counter()
        for batch in self._batches():
            if self.seconds >= budget:
                break
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.rate(self.updates, self.seconds / budget)
            count = int((batch.tgt_out != PAD).sum())
            total += update(self.model, self.optimizer, batch, self.recipe.precision).item() * count
            tokens, self.tokens, self.updates = tokens + count, self.tokens + count, self.updates + 1
            now = time.perf_counter()
            self.seconds, start = self.seconds + now - start, now
            if self.seconds - validated >= self.recipe.validate_every * 60:
                log.info("training loss %.3f, %.0f target tokens/s", total / tokens, self.tokens / self.seconds)
                self._validate()
                validated, total, tokens, start = self.seconds, 0.0, 0, time.perf_counter()

    def _batches(self) -> Iterator[Batch]:
        device = str(self.model.device)
        for batch in self.loader:
            yield to_device(batch, device)

    @torch.no_grad()
    def _validate(self) -> None:
        self.model.eval()
        total, tokens, device = 0.0, 0, self.model.device
        for batch in self.validation:
            count = int((batch.tgt_out != PAD).sum())
            with torch.autocast(device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16-mixed"):
                total += mean_loss(self.model, to_device(batch, str(device)), smoothing=0.0).item() * count
            tokens += count
        self.model.train()
        told = {"seconds": round(self.seconds, 1), "updates": self.updates, "validation_loss": round(total / tokens, 4)}
        self.history.append(told)
        log.info("%(seconds).0f s, update %(updates)d: validation loss %(validation_loss).4f", told)


def evaluate(model: MarianMTModel, data: PreparedData, pairs: Sequence[tuple[str, str]]) -> tuple[Scores, list[str]]:
    """Return scores and translations: BLEU, chrF++ and TER with their signatures.

    The translation is in float32 with beam 5, in batches of 32, longest sentences first.
    """
    model.eval()
    sources = [src for src, _ in pairs]
    tokenizer = one_of(data.tokenizer)
    lengths = [len(ids) for ids in tokenizer.encode(sources)]
    order = sorted(range(len(pairs)), key=lambda index: lengths[index], reverse=True)
    translations = [""] * len(pairs)
    for start in track(range(0, len(order), BATCH), description="translating"):
        batch = order[start : start + BATCH]
        limit = 2 * lengths[batch[0]] + 20
        found = translate(model, tokenizer, [sources[index] for index in batch], beam=BEAM, max_length=limit)
        for index, text in zip(batch, found, strict=True):
            translations[index] = text
    return score(translations, [tgt for _, tgt in pairs]), translations
