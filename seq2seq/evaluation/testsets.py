"""sacreBLEU's public test sets by name; the first use downloads a set, later uses read sacreBLEU's folder."""

from pathlib import Path
from tarfile import TarError

from seq2seq.errors import UserError
from seq2seq.storage.lines import Lines, refuse_bad_lines


def load_testset(name: str, src_lang: str = "en", tgt_lang: str = "es") -> tuple[list[str], list[str]]:
    """Read a test set's source lines and (first) references.

    Args:
        name: as sacreBLEU spells it, for example wmt13.
        src_lang: language of the sources.
        tgt_lang: language of the references.
    """
    from sacrebleu.dataset import DATASETS

    pair = f"{src_lang}-{tgt_lang}"
    if name not in DATASETS or pair not in DATASETS[name].langpairs:
        known = sorted(key for key, dataset in DATASETS.items() if pair in dataset.langpairs)
        raise UserError(f"sacreBLEU has no test set {name!r} for {pair}: choose one of {', '.join(known) or '(none)'}")
    dataset = DATASETS[name]
    try:
        files = dataset.get_source_file(pair), dataset.get_reference_files(pair)[0]
    except (OSError, EOFError, TarError, SystemExit) as error:  # sacreBLEU exits on a wrong checksum
        raise UserError(
            f"test set {name} is not in {dataset._outdir} and could not be downloaded ({error}): "
            "connect to the network, or copy the folder from a machine that has it"
        ) from error
    sources, references = ([line.strip() for line in refuse_bad_lines(Lines(Path(file)))] for file in files)
    return sources, references
