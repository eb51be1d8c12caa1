"""Strings to strings: encode, sort by length, search in batches, decode, restore the order; knows no files."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2seq.bundle import load_bundle
from seq2seq.config import SearchConfig
from seq2seq.device import choose_device
from seq2seq.engine import EncoderDecoder, Engine
from seq2seq.errors import UserError
from seq2seq.search.step import Hypothesis
from seq2seq.text.segments import split_text
from seq2seq.text.tokenizer import Tokenizer

MAX_SOURCE_TOKENS = 200  # longer texts are translated in pieces
CHUNK_LINES = 2048  # lines that `stream` sorts and translates together

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Translation:
    """One translation of one text."""

    text: str
    score: float  # sum of log-probabilities, EOS included (nats)
    normalised_score: float  # score / length^α, length counting EOS (nats)
    tokens: list[str]  # subword pieces


@dataclass(frozen=True)
class _Piece:
    """A text, or a part of one that is too long, as the model sees it."""

    text_index: int
    ids: list[int]  # without EOS
    is_first: bool = True  # of its text


class Translator:
    """Translates texts with one model, whatever their number, length and order.

    Attributes:
        search: the settings used where a call gives no others.
        src_lang: language of the texts, such as "en".
        tgt_lang: language of the translations.
        device: where the model computes.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        *,
        search: SearchConfig | None = None,
        src_lang: str = "en",
        tgt_lang: str = "es",
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        """Wrap a model that is on device already; its mode (training or not) is as before after every call.

        dtype is that of matrix products: None means bfloat16 on a GPU and float32 elsewhere.
        """
        self.tokenizer, self.src_lang, self.tgt_lang = tokenizer, src_lang, tgt_lang
        self.search = SearchConfig() if search is None else search
        self.device = torch.device(device)
        default = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self._engine = Engine(model, self.device, default if dtype is None else dtype)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", dtype: torch.dtype | None = None) -> "Translator":
        """Read a bundle, the `model/` folder of a run.

        Args:
            folder: the bundle.
            device: cpu, cuda, cuda:N, or auto for a GPU if there is one.
            dtype: of matrix products; None means bfloat16 on a GPU and float32 elsewhere.

        Raises:
            UserError: the bundle is missing or damaged, or the device is not there.
        """
        chosen = choose_device(device)
        bundle = load_bundle(Path(folder))
        model = bundle.model.to(chosen).eval()
        config = bundle.config
        return cls(
            model,
            bundle.tokenizer,
            search=config.search,
            src_lang=config.src_lang,
            tgt_lang=config.tgt_lang,
            device=chosen,
            dtype=dtype,
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[str]:
        """Translate every text into one line; a text without words gives an empty one.

        Args:
            texts: one source a string; line ends within it count as spaces.
            beam: hypotheses kept a step; 1 is greedy search. As all settings: None means the bundle's own.
            length_penalty: α in score / length^α.
            max_length: most tokens of a translation (of each piece, where a long text is split).
            batch_tokens: source tokens computed at once times the beam, padding included.

        Raises:
            UserError: a setting is out of range, texts is a single string, or one text alone exceeds the memory.
        """
        settings = self.settings(beam, length_penalty, max_length, batch_tokens)
        return [best[0].text for best in self._translate(texts, settings, n_best=1)]

    def translate_nbest(
        self,
        texts: Sequence[str],
        n_best: int,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> list[list[Translation]]:
        """Give the n best translations of every text, best first; fewer where the model has fewer, always one.

        The settings are those of `translate`. Of a text that is split, the i-th joins the i-th of every piece.

        Raises:
            UserError: as `translate`, or n_best is not between 1 and the beam.
        """
        return self._translate(texts, self.settings(beam, length_penalty, max_length, batch_tokens), n_best)

    def stream(
        self,
        texts: Iterable[str],
        settings: SearchConfig,
        *,
        n_best: int = 1,
        chunk: int = CHUNK_LINES,
        on_progress: Callable[[int], object] | None = None,
    ) -> Iterator[list[Translation]]:
        """Translate any number of texts in order, holding only `chunk` of them at a time.

        on_progress is called with the number of texts begun since its last call. Gives and raises what
        `translate_nbest` does.
        """
        texts = iter(texts)
        first_line = 1
        while lines := list(itertools.islice(texts, chunk)):
            yield from self._translate(lines, settings, n_best, first_line=first_line, on_progress=on_progress)
            first_line += len(lines)

    def settings(
        self,
        beam: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> SearchConfig:
        """Give the bundle's search settings with those given changed.

        Raises:
            UserError: a value is out of range.
        """
        changes = {"beam": beam, "length_penalty": length_penalty, "batch_tokens": batch_tokens}
        if max_length is not None:
            changes |= {"max_length_ratio": 0.0, "max_length_offset": max_length}
        return replace(self.search, **{key: value for key, value in changes.items() if value is not None})

    def _translate(
        self,
        texts: Sequence[str],
        settings: SearchConfig,
        n_best: int,
        *,
        first_line: int = 1,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[list[Translation]]:
        if isinstance(texts, str):
            raise UserError(f"texts is one string ({texts[:20]!r}…): give a list of them, [text]")
        if not 1 <= n_best <= settings.beam:
            raise UserError(f"n_best={n_best} needs a beam of at least as many (beam={settings.beam})")
        pieces = self._pieces(texts, first_line)
        if on_progress is not None:
            on_progress(len(texts) - sum(piece.is_first for piece in pieces))  # texts without words are done
        found: list[list[Hypothesis]] = [[] for _ in pieces]
        for batch in self._engine.search([piece.ids for piece in pieces], settings, n_best):
            for index, hypotheses in batch:
                found[index] = hypotheses
            if on_progress is not None:
                on_progress(sum(pieces[index].is_first for index, _ in batch))
        parts: list[list[list[Hypothesis]]] = [[] for _ in texts]
        for piece, hypotheses in zip(pieces, found, strict=True):
            parts[piece.text_index].append(hypotheses)
        return [self._join(part, settings.length_penalty) for part in parts]

    def _pieces(self, texts: Sequence[str], first_line: int) -> list[_Piece]:
        """Encode texts, long ones in several pieces; texts without a token have none."""
        pieces = []
        for index, (text, ids) in enumerate(zip(texts, self.tokenizer.encode(texts), strict=True)):
            if len(ids) <= MAX_SOURCE_TOKENS:
                pieces += [_Piece(index, ids)] if ids else []
                continue
            parts = self.tokenizer.encode(split_text(" ".join(text.split()), MAX_SOURCE_TOKENS, self._lengths))
            log.warning(
                "line %d has %d tokens, more than %d: translated in %d pieces",
                *(first_line + index, len(ids), MAX_SOURCE_TOKENS, len(parts)),
            )
            pieces += [_Piece(index, part_ids, is_first=part == 0) for part, part_ids in enumerate(filter(None, parts))]
        return pieces

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer.encode(texts)]

    def _join(self, parts: list[list[Hypothesis]], alpha: float) -> list[Translation]:
        """Make texts of hypotheses; of several pieces, the i-th best belong together."""
        if not parts:
            return [Translation("", 0.0, 0.0, [])]
        translations = []
        for rank in range(max(len(part) for part in parts)):
            chosen = [part[min(rank, len(part) - 1)] for part in parts]
            text = " ".join(filter(None, self.tokenizer.decode([hypothesis.ids for hypothesis in chosen])))
            score = sum(hypothesis.score for hypothesis in chosen)
            length = sum(len(hypothesis.ids) + 1 for hypothesis in chosen)
            tokens = [token for hypothesis in chosen for token in self.tokenizer.tokens(hypothesis.ids)]
            translations.append(Translation(text, score, score / length**alpha, tokens))
        return translations
