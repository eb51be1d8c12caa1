import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import lightning as L
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.data.batching import Batch, collate
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import TranslationModule, learning_rate
from tests.refusing import refuses

V = 23


def batch_of(*lengths: tuple[int, int]) -> Batch:
    rng = np.random.default_rng(sum(map(sum, lengths)))
    return collate([(rng.integers(4, V, s), rng.integers(4, V, t)) for s, t in lengths])


SHORT, LONG = batch_of((2, 1), (3, 2)), batch_of((9, 11), (8, 12), (7, 12))
BOTH = collate(
    [
        (src[src > 3].numpy(), tgt[tgt > 3].numpy())
        for part in (SHORT, LONG)
        for src, tgt in zip(part.src, part.tgt_out, strict=True)
    ]
)


def module(**changes: object) -> TranslationModule:
    torch.manual_seed(0)
    config = ModelConfig(d_model=12, num_heads=3, d_ff=20, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    values = {"max_tokens": 4096, "warmup_steps": 0, "schedule": "constant", "learning_rate": 1.0, "eps": 1.0}
    return TranslationModule(build_model(config, V), TrainingConfig(**(values | changes)))  # type: ignore[arg-type]


def make_trainer(folder: Path, **options: Any) -> L.Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return L.Trainer(accelerator="cpu", enable_model_summary=False, default_root_dir=folder, **quiet, **options)


def loader(batches: list[Batch]) -> Any:
    return torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def train(
    module: TranslationModule, batches: list[Batch], folder: Path, accumulate: int = 1, callbacks: Any = None
) -> None:
    updates = len(batches) // accumulate
    trainer = make_trainer(folder, max_steps=updates, accumulate_grad_batches=accumulate, callbacks=callbacks)
    trainer.fit(module, loader(batches))


def weights(module: TranslationModule) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.model.named_parameters()}


pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{message}.*")
    for message in ("does not have many workers", "the number of training batches", "have no `val_dataloader")
]


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_two_micro_batches_of_different_sizes_update_like_their_union(tmp_path: Path, clip_norm: float) -> None:
    split, union = module(clip_norm=clip_norm), module(clip_norm=clip_norm)
    train(split, [SHORT, LONG], tmp_path, accumulate=2)
    train(union, [BOTH], tmp_path)
    assert_close(weights(split), weights(union), atol=1e-6, rtol=1e-5)
    assert split.grad_norm is not None
    assert union.grad_norm is not None
    assert_close(split.grad_norm, union.grad_norm)


def test_the_gradient_norm_is_that_of_the_loss_per_token_and_is_clipped(tmp_path: Path) -> None:
    clipped = module(clip_norm=0.01, label_smoothing=0.0)
    reference = module().model
    logits, _ = reference.decode(LONG.tgt_in, reference.encode(LONG.src))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), LONG.tgt_out.flatten(), ignore_index=0).backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters() if p.grad is not None])
    norms: list[Tensor] = []

    class Record(L.Callback):
        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            norms.append(torch.nn.utils.get_total_norm([p.grad for p in clipped.parameters() if p.grad is not None]))

    train(clipped, [LONG], tmp_path, callbacks=[Record()])
    assert clipped.grad_norm is not None
    assert_close(clipped.grad_norm, expected)
    assert_close(norms[-1], torch.tensor(0.01), rtol=1e-4, atol=0)


def test_a_gradient_below_the_limit_is_not_scaled_up_to_it(tmp_path: Path) -> None:
    clipped, free = module(clip_norm=100.0), module(clip_norm=0.0)
    for trained in (clipped, free):
        train(trained, [LONG], tmp_path)
    assert_close(weights(clipped), weights(free), atol=0, rtol=0)


def test_every_batch_of_every_rank_and_update_draws_another_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, seeds = module(), list[int]()
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    for seed in (0, 1):
        trained.seed = seed
        for update in (0, 1):
            for rank in (0, 1):
                trainer = Mock(world_size=2, global_step=update, global_rank=rank, optimizers=[])
                trained._trainer = trainer
                for batch_idx in (0, 1):
                    trained.on_train_batch_start(SHORT, batch_idx)
    assert len(set(seeds)) == len(seeds) == 16


def test_the_validation_loss_is_a_mean_over_tokens_not_over_batches(tmp_path: Path) -> None:
    validated = module()
    with torch.no_grad():
        sums = [validated.loss(batch, 0.0)[1:] for batch in (SHORT, LONG)]
    (values,) = make_trainer(tmp_path).validate(validated, loader([SHORT, LONG]), verbose=False)
    assert values["val_loss"] == pytest.approx(float(sum(nll for nll, _ in sums) / sum(n for _, n in sums)), rel=1e-6)


def test_embeddings_norms_and_biases_are_not_decayed() -> None:
    trained = module(weight_decay=0.1)
    groups = trained.configure_optimizers().param_groups
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    kinds = ("embedding", "norm", "bias")
    for name, parameter in trained.named_parameters():
        assert (id(parameter) in decayed) != any(kind in name for kind in kinds), name


def test_a_checkpoint_from_before_a_setting_existed_has_its_default() -> None:
    trained, checkpoint = module(), dict[str, Any]()
    trained.on_save_checkpoint(checkpoint)
    del checkpoint["belongs_to"]["architecture"]
    trained.on_load_checkpoint(checkpoint)
    checkpoint["belongs_to"]["architecture"] = "markov"
    refuses(r"written with another architecture \(markov, now transformer\)", trained.on_load_checkpoint, checkpoint)


def config(**changes: object) -> TrainingConfig:
    values = {"learning_rate": 2.0, "warmup_steps": 100, **changes}
    return TrainingConfig(**values)  # type: ignore[arg-type]


HALF_COSINE = (1 + math.cos(math.pi / 4)) / 2  # after a quarter of the fall
TIMED: dict[str, object] = {"warmup_steps": "auto"}  # a tenth of the time, here of 1,500 updates
RATES: list[tuple[dict[str, object], int, float, float]] = [  # settings, update, progress, rate; the peak is 2
    *(({"schedule": name}, 49, 0.0, 1.0) for name in ("inverse_sqrt", "cosine", "linear", "constant")),
    *(({"schedule": name}, 99, share, 2.0) for name in ("cosine", "linear") for share in (100 / 150, 100 / 10**5)),
    *(({"schedule": name}, 100, share, 2.0) for name in ("cosine", "linear") for share in (100 / 150, 100 / 10**5)),
    ({"schedule": "cosine", "final_rate": 0.1}, 325, 0.325, 0.2 + 1.8 * HALF_COSINE),
    ({"schedule": "linear", "final_rate": 0.1}, 325, 0.325, 2 - 1.8 / 4),
    *(({"schedule": name, "final_rate": 0.1}, 550, 0.55, 1.1) for name in ("cosine", "linear")),
    *(
        ({"schedule": name, "final_rate": 0.1}, 500, share, 0.2)
        for name in ("cosine", "linear")
        for share in (1.0, 1.3)
    ),
    *((TIMED | {"schedule": name}, 75, 75 / 1500, 1.0) for name in ("linear", "cosine", "constant")),
    *((TIMED | {"schedule": name}, 150, 150 / 1500, 2.0) for name in ("linear", "cosine", "constant")),
    (TIMED | {"schedule": "linear"}, 750, 0.5, 2 * 0.5 / 0.9),
    (TIMED | {"schedule": "cosine"}, 750, 0.5, 1 + math.cos(math.pi * 0.4 / 0.9)),
    (TIMED | {"schedule": "inverse_sqrt"}, 600, 600 / 1500, 2 * math.sqrt(150 / 601)),
    (TIMED | {"schedule": "constant"}, 1999, 2000 / 10**6, 1.0),  # and at most 4,000 updates
    (TIMED | {"schedule": "constant"}, 3999, 4000 / 10**6, 2.0),
    ({"warmup_steps": 0}, 0, 0.0, 2.0),
]


@pytest.mark.parametrize(("changes", "update", "progress", "rate"), RATES, ids=str)
def test_the_rate_rises_to_its_peak_and_falls_to_its_end(changes, update, progress, rate):
    settings: Any = {"learning_rate": 2.0, "warmup_steps": 100, **changes}
    assert learning_rate(TrainingConfig(**settings), update, progress) == pytest.approx(rate)


@pytest.mark.parametrize("changes", [{"schedule": "linear"}, TIMED, {"schedule": "cosine"}])
def test_no_rate_is_above_the_peak_and_none_is_zero_before_the_end(changes: dict[str, Any]) -> None:
    settings: Any = {"learning_rate": 2.0, "warmup_steps": 100, **changes}
    rates = [learning_rate(TrainingConfig(**settings), step, step / 1500) for step in range(1500)]
    assert max(rates) == pytest.approx(2.0)
    assert min(rates) > 0


def test_inverse_square_root_is_the_papers() -> None:
    d_model, warmup = 512, 4000
    rate = (d_model * warmup) ** -0.5
    config = TrainingConfig(schedule="inverse_sqrt", learning_rate=rate, warmup_steps=warmup)
    for step in (1, 10, 3999, 4000, 4001, 40_000):
        expected = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(config, step - 1, 0.9) == pytest.approx(expected)
