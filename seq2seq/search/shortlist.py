"""Shortlists, the target ids that translations of a source id need, and searches in such a part of a vocabulary."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Int32, Int64
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seq2seq.errors import UserError
from seq2seq.search.types import Candidate, Hypothesis
from seq2seq.storage.atomic import replacing

MULTIPLE = 64  # divides the number of allowed ids: a search finds the best tokens of a row in blocks of this size
_FORMAT = "seq2seq-shortlist-1"  # increased when an older version could not read the file
_MAX_BYTES = 1 << 30
_SEPARATORS = set(" \t\n")  # of CTranslate2's format
_AGAIN = "make it with `seq2seq shortlist`"


@dataclass(frozen=True)
class Shortlist:
    """The target ids that each source id needs, and the target ids that every text needs.

    Attributes:
        offsets: where the target ids of each source id begin in `targets`, and where the last ones end.
        targets: target ids, source id by source id.
        always: the ids that are allowed for every source.
        by_frequency: all ids, the most frequent in targets first.
        vocabulary: SHA-256 of the tokenizer that made the ids.
    """

    offsets: Int64[np.ndarray, " v_and_1"]
    targets: Int32[np.ndarray, " t"]
    always: Int32[np.ndarray, " a"]
    by_frequency: Int32[np.ndarray, " v"]
    vocabulary: str

    @classmethod
    def load(cls, path: Path) -> "Shortlist":
        """Read the file that `save` wrote."""
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise UserError(f"{path} has {path.stat().st_size:,} bytes: it is no shortlist; {_AGAIN}")
            with cast(Any, safe_open(path, "np")) as file:
                about: dict[str, str] = file.metadata() or {}
                if about.get("format") != _FORMAT:
                    raise UserError(f"{path} is no shortlist of this version: {_AGAIN}")
                arrays = {name: file.get_tensor(name) for name in ("offsets", "targets", "always", "by_frequency")}
        except SafetensorError as error:
            raise UserError(f"{path} is damaged, or no shortlist: {_AGAIN}") from error
        except OSError as error:  # of safetensors, it has neither a number nor a file's name
            raise UserError(f"{path} cannot be read ({error.strerror or error}): {_AGAIN}") from error
        if not _fit(**arrays):
            raise UserError(f"{path} is damaged: its numbers do not fit each other; {_AGAIN}")
        return cls(**arrays, vocabulary=about.get("vocabulary", ""))

    def save(self, path: Path) -> None:
        """Write a file; if an error occurs, a file that was there does not change."""
        arrays: dict[str, np.ndarray] = {name: value for name, value in vars(self).items() if name != "vocabulary"}
        with replacing(path) as draft:
            draft.write_bytes(save(arrays, {"format": _FORMAT, "vocabulary": self.vocabulary}))

    @property
    def digest(self) -> str:
        """Hash of everything that decides which ids are allowed."""
        parts = (self.offsets, self.targets, self.always, self.by_frequency)
        return hashlib.blake2b(b"".join(array.tobytes() for array in parts), digest_size=8).hexdigest()

    def require(self, vocabulary: str) -> None:
        """Check that the model's tokenizer, given by its SHA-256, made the shortlist's ids."""
        if self.vocabulary != vocabulary:
            message = "the shortlist belongs to another model, whose tokenizer differs"
            raise UserError(f"{message}: make one for this model with `seq2seq shortlist --model RUN`")

    def needed_by(self, source: int) -> Int32[np.ndarray, " n"]:
        """Return the target ids that one source id needs."""
        return self.targets[self.offsets[source] : self.offsets[source + 1]]

    def union(self, sources: Iterable[Sequence[int]], others: Iterable[int] = ()) -> Int64[np.ndarray, " u"]:
        """Return, in rising order, the ids that texts may be translated into.

        These are the ids that every text needs, the ids that the sources' ids need, the sources' own ids (for names and
        numbers, which are copied), `others`, and the most frequent of all other ids up to a multiple of `MULTIPLE`.
        """
        is_allowed = np.zeros(len(self.by_frequency), bool)
        is_allowed[self.always] = True
        for source in set(chain.from_iterable(sources)):
            is_allowed[source] = True
            is_allowed[self.needed_by(source)] = True
        is_allowed[list(others)] = True
        rest = self.by_frequency[~is_allowed[self.by_frequency]]
        is_allowed[rest[: -int(is_allowed.sum()) % MULTIPLE]] = True
        return np.flatnonzero(is_allowed)

    def vmap(self, subwords: Sequence[str]) -> Iterator[str]:
        """Yield the lines of CTranslate2's `vmap.txt`; `subwords` are the subwords of all ids.

        A line is a source subword, a tab, and the target subwords that the source subword allows. The first line has no
        source subword: its target subwords are always allowed.
        """

        def spell(ids: Iterable[int]) -> str:
            return " ".join(subwords[token] for token in ids if not _SEPARATORS & set(subwords[token]))

        yield f"\t{spell(self.always.tolist())}"
        for source, subword in enumerate(subwords):
            if spell([source]):  # otherwise the format cannot hold the subword
                yield f"{subword}\t{spell(sorted({source, *self.needed_by(source).tolist()}))}"


def _fit(offsets: np.ndarray, targets: np.ndarray, always: np.ndarray, by_frequency: np.ndarray) -> bool:
    """Return whether arrays from a file have the types, sizes and ranges of `Shortlist`'s."""
    arrays = (offsets, targets, always, by_frequency)
    kinds = [(array.dtype, array.ndim) for array in arrays]
    size = by_frequency.size
    if kinds != [(np.int64, 1), *[(np.int32, 1)] * 3] or offsets.size != size + 1:
        return False
    has_order = offsets[0] == 0 and offsets[-1] == targets.size and (np.diff(offsets) >= 0).all()
    are_ids = all(((ids >= 0) & (ids < size)).all() for ids in (targets, always))
    return bool(has_order and are_ids and np.array_equal(np.sort(by_frequency), np.arange(size)))


@dataclass(frozen=True)
class Subset:
    """The ids of a vocabulary that a search may use; the search itself knows them by their indices."""

    ids: Int64[np.ndarray, " u"] | None = None  # in ascending order; None: all, and an id is its own index

    def index(self, ids: Sequence[int]) -> list[int]:
        """Return the indices of ids, all of which must be in the subset."""
        return list(ids) if self.ids is None else np.searchsorted(self.ids, ids).tolist()

    def with_ids(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Return hypotheses of indices as hypotheses of ids."""
        if self.ids is None:
            return hypotheses
        return [replace(hypothesis, ids=self.ids[hypothesis.ids].tolist()) for hypothesis in hypotheses]

    def on_candidates(self, call: Callable[[list[Candidate]], object]) -> Callable[[list[Candidate]], object]:
        """Return a function that calls `call` with candidates whose indices are replaced by ids."""
        if (ids := self.ids) is None:
            return call
        return lambda candidates: call([one._replace(ids=ids[one.ids].tolist()) for one in candidates])
