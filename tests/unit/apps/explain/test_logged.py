"""Pictures of attention reach the loggers that take images, and training does not notice them."""

import io
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, WandbLogger
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seq2seq.apps.explain import logged
from seq2seq.apps.explain.explanation import Explanation, explain
from seq2seq.data.prepare import prepare
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import TranslationModule
from seq2seq.training.progress_log import TranslationValidation
from tests.unit.training.resuming import end_of, is_same, run, small_config

PAIR = "The old man sees a ball, and a dog drinks the milk.", "El viejo ve una bola, y un perro bebe la leche."


class Weights(L.Callback):
    """The weights of each validation, by update; before each batch of training, the model is in training mode."""

    def __init__(self) -> None:
        self.validated: dict[int, torch.Tensor] = {}

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        self.validated[trainer.global_step] = pl_module.model.embedding.weight.clone()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        assert all(module.training for module in pl_module.model.modules())


@pytest.mark.slow
def test_a_picture_shows_the_weights_of_each_validation_and_changes_no_training(tmp_path: Path, monkeypatch: Any):
    """The run has dropout and a running average."""
    config, drawn, weights = small_config(tmp_path), list[torch.Tensor](), Weights()
    config.logger.tensorboard = True
    data = prepare(config.data, config.tokenizer)

    def spy(translator: Any, *pair: str) -> Explanation:
        drawn.append(translator.engine.model.embedding.weight.clone())
        return explain(translator, *pair)

    monkeypatch.setattr(logged, "explain", spy)
    _, events = run(config, data, tmp_path / "plain")
    assert run(config, data, tmp_path / "drawn", None, logged.AttentionPictures(), weights)[1] == events
    assert is_same(end_of(tmp_path / "drawn"), end_of(tmp_path / "plain"))
    assert is_same(drawn, [*weights.validated.values()])
    assert not is_same(drawn[0], drawn[2])
    images = EventAccumulator(str(tmp_path / "drawn")).Reload().Images(logged.TAG)
    assert [image.step for image in images] == [*weights.validated] == [4, 8, 11]
    pictures = [Image.open(io.BytesIO(image.encoded_image_string)) for image in images]
    assert {picture.format for picture in pictures} == {"PNG"}
    assert all(300 < side < 1500 for picture in pictures for side in picture.size)


def draw_for(golden: Any, logger: Any, *pairs: tuple[str, str], is_first: bool = True) -> None:
    """Draw after update 8 with a golden model, for a logger that notes what it gets."""
    validation = TranslationValidation({"dev": pairs}, golden.tokenizer, TrainingConfig(), golden.search)
    trainer = Mock(spec=L.Trainer, callbacks=[validation], loggers=[Mock(spec=CSVLogger), logger], global_step=8)
    trainer.configure_mock(is_global_zero=is_first, precision="32-true")
    module: Any = TranslationModule(golden.engine.model, TrainingConfig())
    logged.AttentionPictures().on_validation_epoch_start(trainer, module)


@pytest.mark.slow
def test_weights_and_biases_gets_a_sentence_of_readable_length_from_the_first_process(golden, monkeypatch) -> None:
    wandb, spy = Mock(spec=WandbLogger), Mock(wraps=explain)
    monkeypatch.setattr(logged, "explain", spy)
    draw_for(golden, wandb, ("A dog.", "Un perro."), PAIR, (PAIR[0] * 3, PAIR[1] * 3), is_first=False)
    wandb.log_image.assert_not_called()
    draw_for(golden, wandb, ("A dog.", "Un perro."), PAIR, (PAIR[0] * 3, PAIR[1] * 3))
    assert spy.call_args.args[1:] == PAIR
    ((tag, (picture,), update), _) = wandb.log_image.call_args
    assert (tag, update, picture.shape[2], picture.dtype) == ("attention", 8, 3, "uint8")


@pytest.mark.slow
def test_a_picture_that_fails_is_one_warning(golden: Any, caplog: Any) -> None:
    draw_for(golden, Mock(spec=WandbLogger, log_image=Mock(side_effect=OSError("disk full"))), PAIR)
    assert caplog.messages == ["no picture of attention after update 8: disk full"]
