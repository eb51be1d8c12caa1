"""Pictures of attention among the logged numbers of a run: one validation pair, drawn anew at each validation."""

import io
import logging

import lightning as L
import numpy as np
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
from PIL import Image

from seq2seq.apps.explain.explanation import explain
from seq2seq.apps.explain.picture import draw
from seq2seq.training.progress_log import TranslationValidation
from seq2seq.training.run import callback_of

log = logging.getLogger(__name__)
TAG = "attention"
_LETTERS = 60  # of a sentence whose picture is easy to read


class AttentionPictures(L.Callback):
    """Draws the cross-attention of the same validation pair at each validation, for loggers that take images."""

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Draw with the weights that are validated: a running average is in place from here to the epoch's end."""
        if not trainer.is_global_zero:
            return
        validation, file, update = callback_of(trainer, TranslationValidation), io.BytesIO(), trainer.global_step
        pair = min(validation.pairs, key=lambda pair: sum(abs(len(text) - _LETTERS) for text in pair))
        try:
            draw(explain(validation.translator(trainer, pl_module), *pair), file, ["alignment"])
            picture = np.asarray(Image.open(file).convert("RGB"))
            for logger in trainer.loggers:
                if isinstance(logger, TensorBoardLogger):
                    logger.experiment.add_image(TAG, picture, update, dataformats="HWC")
                elif isinstance(logger, WandbLogger):
                    logger.log_image(TAG, [picture], update)
        except Exception as error:  # of a logger, too: the run goes on
            log.warning("no picture of attention after update %d: %s", update, error)
