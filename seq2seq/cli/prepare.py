"""The command that prepares text before training."""

import logging
from contextlib import closing
from itertools import islice
from typing import Annotated

import typer

from seq2seq.cli import options
from seq2seq.progress import log_handler
from seq2seq.settings.rules import AUTO

Show = Annotated[int, typer.Option(min=0, metavar="N", help="Training pairs to show as the model gets them.")]


def prepare(overrides: options.Overrides = None, show: Show = 0) -> None:
    """Prepare text before training: clean, find duplicates and overlap, learn the vocabulary, tokenise.

    [bold]seq2seq prepare experiment=tatoeba_cpu data.root=FOLDER data.num_proc=4[/bold]   then train.py with the
    same settings

    The settings are train.py's, group=option and key=value; only data, tokenizer and init matter. train.py
    with the same settings finds the result in data.cache.
    """
    from rich.console import Console
    from rich.filesize import decimal

    from seq2seq.data.clean import drop_table
    from seq2seq.data.loading import training_feed
    from seq2seq.data.prepare import prepare as prepare_text
    from seq2seq.settings.compose import compose
    from seq2seq.text.tokenizer import PAD

    config = compose(overrides or [])
    if config.init is not None:  # the initial model's tokenizer is used
        from seq2seq.apps.exchange.cached import imported
        from seq2seq.training.finetune import start_from_bundle

        config.init = imported(config.init, config.data.cache, f"init={config.init}")
        config = start_from_bundle(config, overrides or [])
    logger, handler = logging.getLogger("seq2seq"), log_handler()
    handler.addFilter(lambda record: record.levelno < logging.WARNING)  # `cli.main` prints warnings
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        prepared = prepare_text(config.data, config.tokenizer)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    sizes = prepared.report["sizes"]
    tests = "".join(f", {name} {size:,}" for name, size in sizes["tests"].items())
    Console().print(drop_table(prepared.report))
    print(f"pairs: train {sizes['train']:,}, validation {sizes['validation']:,}{tests}")
    bytes_ = sum(path.stat().st_size for path in prepared.folder.iterdir())
    print(f"vocabulary: {prepared.tokenizer.target.vocab_size:,}; size: {decimal(bytes_)}")
    print(f"folder: {prepared.folder}")
    if show:
        if config.training.max_tokens == AUTO:
            config.training.max_tokens = 1024
        with closing(training_feed(config, prepared, rank=0, world_size=1, pin=False)) as batches:
            pairs = (pair for batch in batches for pair in zip(batch.src, batch.tgt_out, strict=True))
            for pair in islice(pairs, show):
                for side, ids in zip((prepared.tokenizer.source, prepared.tokenizer.target), pair, strict=True):
                    tokens = [token for token in ids.tolist() if token != PAD]
                    print(*(f"{subword}:{token}" for subword, token in zip(side.tokens(tokens), tokens, strict=True)))
                print()
