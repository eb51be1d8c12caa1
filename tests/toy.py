"""A toy corpus of eighty pairs, and settings of a run of seconds; for tests of whole runs."""

from pathlib import Path

SUBJECTS = {"The cat": "El gato", "The dog": "El perro", "The bird": "El pájaro", "The cow": "La vaca"}
VERBS = {"sees": "ve", "wants": "quiere", "eats": "come", "has": "tiene", "brings": "trae"}
THINGS = {"the milk": "la leche", "the bread": "el pan", "an apple": "una manzana", "a ball": "una bola"}
PAIRS = [(f"{s} {v} {t}.", f"{SUBJECTS[s]} {VERBS[v]} {THINGS[t]}.") for s in SUBJECTS for v in VERBS for t in THINGS]
TINY = (
    "tokenizer.vocab_size=300", "model.d_model=16", "model.num_heads=2", "model.d_ff=32",
    "model.num_encoder_layers=1", "model.num_decoder_layers=1",
)  # fmt: skip
FILES = (
    "data=files", "data.train=[train.tsv]", "data.validation=[validation.tsv]", "data.test=[test.tsv]",
    "data.languages=[en,es]", "data.remove_overlap=false",
)  # fmt: skip


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")


def write_corpus(folder: Path) -> Path:
    """Write train.tsv (60 pairs), validation.tsv (10) and test.tsv (10)."""
    for name, pairs in (("train", PAIRS[:60]), ("validation", PAIRS[60:70]), ("test", PAIRS[70:])):
        write_pairs(folder / f"{name}.tsv", pairs)
    return folder
