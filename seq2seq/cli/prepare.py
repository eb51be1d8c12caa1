"""The command that prepares text ahead of training; `cli` registers it."""

import contextlib
import logging
from collections.abc import Iterator

from seq2seq.cli import bulk_translate, options


def prepare(overrides: options.Overrides = None, ray: bulk_translate.Ray = None, debug: options.Debug = False) -> None:
    """Prepare text for training ahead: clean, find duplicates and overlap, learn the vocabulary, tokenise.

    [bold]seq2seq prepare experiment=tatoeba_cpu data.root=FOLDER data.num_proc=4[/bold]   then train.py with the
    same

    [bold]seq2seq prepare --ray auto data=files 'data.train=["corpora/*.tsv"]'[/bold]   on the Ray cluster that runs
    here

    The settings are those of train.py, group=option and key=value; of them data, tokenizer, init and seed matter.
    train.py with the same ones finds the result in data.cache. A preparation that was killed goes on with the same
    command. With --ray, texts and data.cache must lie where every node sees them.
    """
    from rich.console import Console

    from seq2seq.settings.compose import compose
    from seq2seq.text.dataset import load_prepared
    from seq2seq.text.filters import drop_table
    from seq2seq.text.prepare import prepare_folder

    config = compose(overrides or [])
    if config.init is not None:  # its tokenizer is used
        from seq2seq.training.finetune import start_from_bundle

        config = start_from_bundle(config, overrides or [])
    with _told():
        folder = prepare_folder(config.data, config.tokenizer, config.seed, bulk_translate.ray_workers(ray))
        prepared = load_prepared(folder)
    sizes = prepared.report["sizes"]
    tests = "".join(f", {name} {size:,}" for name, size in sizes["tests"].items())
    bytes_ = sum(path.stat().st_size for path in folder.iterdir())
    Console().print(drop_table(prepared.report))
    print(f"pairs: train {sizes['train']:,}, validation {sizes['validation']:,}{tests}")
    print(f"vocabulary: {prepared.tokenizer.vocab_size:,}; size: {bytes_ / 1e6:,.1f} MB")
    print(f"folder: {folder}")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell the steps of preparation on stderr; warnings come there anyhow."""
    logger, handler = logging.getLogger("seq2seq.text"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(lambda record: record.levelno < logging.WARNING)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
