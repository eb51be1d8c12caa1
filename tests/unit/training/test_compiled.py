import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.computation import WIDTH, widen


@pytest.mark.parametrize(("length", "expected"), [(1, WIDTH), (WIDTH, WIDTH), (WIDTH + 1, 2 * WIDTH)])
def test_batches_get_few_widths_by_padding_on_the_right(length: int, expected: int) -> None:
    ids = torch.randint(4, 30, (3, length))
    wider = widen(ids)
    assert wider.shape == (3, expected)
    assert torch.equal(wider[:, :length], ids)
    assert not wider[:, length:].any()


def test_what_compiling_excludes_is_told() -> None:
    with pytest.raises(UserError, match=r"trainer.compile=true decides by itself"):
        Config(training=TrainingConfig(activation_checkpointing=True), trainer=TrainerConfig(compile=True))
