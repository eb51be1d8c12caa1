"""The corpora of the three splits, and the names of the validation and test sets."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.data.corpus import Corpus, names_corpus, open_splits
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig

# Endings of a run's files of a test set, see training/finish_run.py.
_ENDINGS = (".source", ".reference")


@dataclass(frozen=True)
class Splits:
    """What a preparation reads, and what it holds out.

    Attributes:
        train, validation, test: the corpora of each split.
        held_out_from: indices of the training corpora that data.held_out_from names.
        validation_names, test_names: names of the sets of the given corpora, followed by those
            that are drawn from these training corpora.
    """

    train: list[Corpus]
    validation: list[Corpus]
    test: list[Corpus]
    held_out_from: list[int]
    validation_names: list[str]
    test_names: list[str]

    @property
    def corpora(self) -> list[Corpus]:
        """All corpora."""
        return [*self.train, *self.validation, *self.test]


def find_splits(data: DataConfig) -> Splits:
    """Open the corpora that the settings name, and name the held-out sets after their files."""
    splits = open_splits(data)
    sources = _find_sources(data, splits["train"])
    held_out = [splits["train"][index] for index in sources]
    validation = _name_sets("validation", [*splits["validation"], *held_out])
    tests = _name_sets("test", [*splits["test"], *held_out])
    for name in tests:
        if name.endswith(_ENDINGS):
            raise UserError(
                f"data.test has a set called {name}, whose files would be taken for those of "
                f"{name.rpartition('.')[0]}: rename its file, without {name[name.rindex('.') :]}"
            )
    return Splits(splits["train"], splits["validation"], splits["test"], sources, validation, tests)


def _find_sources(data: DataConfig, corpora: Sequence[Corpus]) -> list[int]:
    """Return the indices of the corpora that data.held_out_from names."""
    names = [corpus.name for corpus in corpora]
    for key in data.held_out_from:
        if not any(names_corpus(key, name) for name in names):
            advice = "leave it out, or name one"
            raise UserError(
                f"data.held_out_from has {key}, which names none of the corpora: {', '.join(names)}; {advice}"
            )
    return [i for i, name in enumerate(names) if any(names_corpus(key, name) for key in data.held_out_from)]


def _name_sets(split: str, corpora: Sequence[Corpus]) -> list[str]:
    """Return the corpora's file names without endings; files of the same name get the names of their folders, too."""
    count = Counter(corpus.stem for corpus in corpora)
    names = [
        corpus.stem if count[corpus.stem] == 1 else f"{corpus.paths[0].parent.name}-{corpus.stem}" for corpus in corpora
    ]
    if split == "validation":  # loggers do not accept every character
        names = [re.sub(r"[^\w.-]+", "_", name) for name in names]
    for name, number in Counter(names).items():
        if number > 1:
            raise UserError(f"data.{split} has two sets called {name}: rename one of the files")
    return names
