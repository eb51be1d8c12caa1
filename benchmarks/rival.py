"""Quality of Hugging Face's model after some minutes of a plain training loop, on the same text and batches.

The folder of --output receives rival.json (options, validation loss, scores), translations.txt, and the model as a
bundle, for `decoding --model`.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.progress import track

from benchmarks.command import Results, Table
from benchmarks.data import epochs_of, joint, read_folder, to_device
from benchmarks.huggingface import MarianMTModel, make_optimizer, mean_loss, translate, update
from benchmarks.ours import TrainingOptions, model_config, precision_on
from seq2seq.apps.exchange.huggingface import from_marian, marian_config
from seq2seq.data.batching import FixedBatches, plan_batches
from seq2seq.data.dataset import PreparedData
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import METRICS, score
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import PAD, Tokenizer
from seq2seq.translate.bundle import Bundle, BundleConfig, save_bundle

log = logging.getLogger(__name__)
BATCH = 32  # sentences of a batch of translation
BEAM = 5
CARD = "Trained by `python -m benchmarks rival`, Hugging Face's loop, to be compared with; rival.json tells how.\n"


@dataclass(frozen=True, kw_only=True)
class Plan(TrainingOptions):
    """The options of `rival`."""

    data: Path  # folder with train.tsv, validation.tsv and test.tsv
    output: Path | None = None  # folder to write, required: rival.json, translations.txt and the model
    minutes: float = 25.0  # time of training; validation and translation take more time
    learning_rate: float = 1e-3  # peak of the learning rate, which then falls to zero at the end of the time
    warmup: int = 300  # updates in which the learning rate rises to its peak; 0: it begins at the peak
    attention: Literal["auto", "sdpa", "eager"] = "auto"  # transformers' kernel; auto: the faster one, on CPUs eager
    sentences: int = 2000  # sentences of test.tsv to translate and score, from its beginning; 0: all
    seed: int = 1  # random numbers of weights, batches and dropout


def run(plan: Plan, device: torch.device) -> Results:
    """Train for some minutes, translate the test set with beam 5, and score the translations."""
    if plan.output is None:
        raise UserError("give --output FOLDER, which receives the model and its scores")
    try:
        plan.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write --output {plan.output}: {error.strerror or error}") from error
    data = read_folder(plan.data, plan.vocab_size)
    torch.manual_seed(plan.seed)
    tokenizer, settings = joint(data.tokenizer), model_config(plan.size)
    kernel = plan.attention if plan.attention != "auto" else "eager" if device.type == "cpu" else "sdpa"
    model = MarianMTModel(marian_config(settings, tokenizer.vocab_size, kernel)).train()
    model.to(device)  # type: ignore[arg-type]  (transformers' decorator hides self)
    values = {"attention": kernel, **train(model, data, plan, device)}
    bundle = Bundle(from_marian(model, settings), data.tokenizer, BundleConfig(settings, SearchConfig(beam=BEAM)))
    save_bundle(plan.output / "model", bundle, CARD)
    pairs = next(iter(data.tests.values()))[: plan.sentences or None]
    translations = translate_all(model, tokenizer, [source for source, _ in pairs])
    (plan.output / "translations.txt").write_text("\n".join(translations) + "\n", encoding="utf-8")
    scores = score(translations, [target for _, target in pairs])
    rows = [[name, f"{getattr(scores, key).value:.1f}"] for key, (name, _) in METRICS.items()]
    table = Table(f"{len(pairs):,} sentences", ["metric", "score"], rows)
    return {**values, "scores": scores.to_dict()}, [table]


def train(model: MarianMTModel, data: PreparedData, plan: Plan, device: torch.device) -> dict[str, Any]:
    """Train for the plan's minutes, and return the results as JSON values."""
    precision, optimizer = precision_on(device, plan.precision), make_optimizer(model, plan.learning_rate)
    updates, tokens, seconds, budget = 0, 0, 0.0, plan.minutes * 60
    start = time.perf_counter()
    for batch in epochs_of(data.train, plan.max_tokens, plan.seed):
        if seconds >= budget:
            break
        rise, fall = min(1.0, (updates + 1) / max(1, plan.warmup)), 1 - seconds / budget
        for group in optimizer.param_groups:
            group["lr"] = plan.learning_rate * rise * fall
        loss = update(model, optimizer, to_device(batch, str(device)), precision).item()  # waits for the device
        seconds = time.perf_counter() - start
        updates, tokens = updates + 1, tokens + int((batch.tgt_out != PAD).sum())
        if updates % 100 == 0:
            log.info("%.0f s, update %d: training loss %.3f", seconds, updates, loss)
    return {
        "updates": updates,
        "seconds": seconds,
        "target_tokens_per_second": round(tokens / max(seconds, 1e-9)),
        "validation_loss": validation_loss(model, data, precision),
    }


@torch.no_grad()
def validation_loss(model: MarianMTModel, data: PreparedData, precision: str) -> float:
    """Return the loss per target token of the validation set (nats), without label smoothing."""
    model.eval()
    total, tokens, device = 0.0, 0, model.device
    for batch in FixedBatches(data.validation, plan_batches(data.validation, np.arange(len(data.validation)), 2048)):
        count = int((batch.tgt_out != PAD).sum())
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            total += mean_loss(model, to_device(batch, str(device)), smoothing=0.0).item() * count
        tokens += count
    model.train()
    return round(total / tokens, 4)


def translate_all(model: MarianMTModel, tokenizer: Tokenizer, sources: Sequence[str]) -> list[str]:
    """Return the translations in float32 with beam 5, in batches of 32, longest sentences first."""
    model.eval()
    lengths = [len(ids) for ids in tokenizer.encode(sources)]
    order = sorted(range(len(sources)), key=lambda index: lengths[index], reverse=True)
    translations = [""] * len(sources)
    for start in track(range(0, len(order), BATCH), description="translating"):
        batch = order[start : start + BATCH]
        limit = 2 * lengths[batch[0]] + 20
        found = translate(model, tokenizer, [sources[index] for index in batch], beam=BEAM, max_length=limit)
        for index, text in zip(batch, found, strict=True):
            translations[index] = text
    return translations
