"""Search for hypotheses with CTranslate2, as `seq2seq.translate.engine` does with PyTorch.

This module imports PyTorch only to make an export or to use a GPU. Without PyTorch, a translation starts in a fraction
of the time.
"""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError, is_out_of_memory, shorten
from seq2seq.search.types import Hypothesis, Phrases, Source, length_limits
from seq2seq.settings import rules
from seq2seq.settings.bundle import CONFIG, SETTINGS, is_export, parse_json, read_bounded, read_config
from seq2seq.settings.missing_packages import require_package
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import EOS, UNK
from seq2seq.text.vocabulary import Tokenizers, load_tokenizers
from seq2seq.translate.translator import Translator

with require_package("ctranslate2"):
    import ctranslate2

MAX_POSITIONS = 2048  # tokens per side, EOS included: the rows of the table of positions

_MAX_EPSILON = 0.01  # models have 1e-5; more would change translations
_MAX_JSON = 30_000_000  # bytes of a vocabulary
log = logging.getLogger(__name__)


def load_export(folder: Path, device: str, threads: int = 0) -> Translator:
    """Read an export that `export_ctranslate2` wrote; threads=0: OMP_NUM_THREADS, or one for each core."""
    if not is_export(folder):
        raise UserError(f"{folder} is no export for CTranslate2 ({SETTINGS} is missing): see `seq2seq export --help`")
    _, config = read_config(folder / SETTINGS)
    tokenizer = load_tokenizers(folder)
    device = _choose_device(device)
    engine = CTranslate2Engine(folder, tokenizer, device, threads)
    return Translator(
        engine,
        tokenizer,
        search=config.search,
        src_lang=config.src_lang,
        tgt_lang=config.tgt_lang,
        device=device,
        trained_length=config.trained_length,
        calibration=config.calibration,
    )


class CTranslate2Engine:
    """A `SearchEngine` for `Translator` that searches with an exported model.

    Greedy search returns the same hypotheses as the PyTorch engine. Beam search may return others, for two reasons.
    CTranslate2 ignores `early_stopping`: a search stops when enough hypotheses have ended, though a better one might
    follow. Hypotheses with forbidden tokens, such as UNK, may take ranks in the beam. Scores follow the same formula.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizers, device: str, threads: int) -> None:
        """Load the network of the export in folder; it computes in the export's precision if the device supports it."""
        kind, _, number = device.partition(":")
        _require_same(folder, tokenizer)
        self._tokenizer = tokenizer
        self._has_warned = False
        try:
            self._translator = ctranslate2.Translator(
                str(folder), kind, device_index=int(number or 0), intra_threads=threads or _cores()
            )
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            raise UserError(f"CTranslate2 cannot load {folder} on {device}: {shorten(error)}") from error

    def search(
        self,
        sources: Sequence[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Phrases = (),
        *,
        on_step: Callable[[], object] | None = None,
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Yield each batch's (source index, hypotheses) as `Engine.search` does, longest sources first.

        on_step is called before every batch, because CTranslate2 does not expose the steps of a search.
        """
        _require_supported(sources, settings)
        if settings.early_stopping and settings.beam > 1 and not self._has_warned:
            log.warning("CTranslate2 ends a beam search by a rule of its own: early_stopping=True changes nothing")
            self._has_warned = True
        tokens = settings.batch_tokens
        tokens = rules.batch_tokens(self._translator.device) if tokens == rules.AUTO else tokens
        waiting = sorted(range(len(sources)), key=lambda index: len(sources[index].ids), reverse=True)
        while waiting:
            cost = (len(sources[waiting[0]].ids) + 1) * settings.beam
            batch = waiting[: max(1, tokens // cost)]
            if on_step is not None:
                on_step()
            try:
                hypotheses = self._search([sources[index] for index in batch], settings, n_best, banned)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise UserError(f"{len(batch)} texts at once do not fit into memory: lower batch_tokens") from error
            yield list(zip(batch, hypotheses, strict=True))
            waiting = waiting[len(batch) :]

    def _search(
        self, sources: list[Source], settings: SearchConfig, n_best: int, banned: Phrases
    ) -> list[list[Hypothesis]]:
        limits = length_limits(sources, settings)
        options = {
            "beam_size": settings.beam,
            "num_hypotheses": n_best,
            "length_penalty": settings.length_penalty,
            "max_input_length": 0,  # no limit
            "return_end_token": True,
        }
        has_rules = settings.no_repeat_ngram or banned or any(shortest for shortest, _ in limits)
        of_row = {} if has_rules else self._search_freely(sources, [longest for _, longest in limits], options)
        again = [row for row in range(len(sources)) if row not in of_row]
        forbidden = [*([token] for token in self._tokenizer.unproducible), *banned]
        options |= {
            "no_repeat_ngram_size": settings.no_repeat_ngram,
            "suppress_sequences": [self._tokenizer.target.tokens(ids) for ids in forbidden],
        }
        for shortest, longest in {limits[row] for row in again}:
            rows = [row for row in again if limits[row] == (shortest, longest)]
            options |= {"min_decoding_length": shortest, "max_decoding_length": longest}
            of_row |= zip(rows, self._search_by_rules([sources[row] for row in rows], options), strict=True)
        return [of_row[row] for row in range(len(sources))]

    def _search_freely(
        self, sources: list[Source], limits: list[int], options: dict[str, Any]
    ) -> dict[int, list[Hypothesis]]:
        """Search with the greatest limit and no forbidden tokens; return, by row, the results that break no rule.

        Most results break no rule. They need neither batches of equal limits nor rescoring. In greedy search they equal
        the results of `_search_by_rules`. In beam search they may differ, because hypotheses that break a rule took
        ranks in the beam.
        """
        results = self._translator.translate_batch(
            [self._tokenizer.source.tokens(source.ids) for source in sources],
            return_scores=True,
            min_decoding_length=0,
            max_decoding_length=max(limits),
            **options,
        )
        of_row, alpha = {}, options["length_penalty"]
        for number, (source, result, limit) in enumerate(zip(sources, results, limits, strict=True)):
            rows = [self._tokenizer.target.ids(subwords) for subwords in result.hypotheses]  # with EOS
            has_ended = all(row[-1:] == [EOS] and len(row) <= limit + 1 for row in rows)
            if (
                has_ended
                and not source.prefix
                and not any(set(row) & set(self._tokenizer.unproducible) for row in rows)
            ):
                scores = [value * len(row) ** alpha for row, value in zip(rows, result.scores, strict=True)]
                of_row[number] = _ranked([row[:-1] for row in rows], scores, alpha)
        return of_row

    def _search_by_rules(self, sources: list[Source], options: dict[str, Any]) -> list[list[Hypothesis]]:
        """Search for translations of sources with the same limits, and score the hypotheses again.

        The search's own scores have two faults: they lack EOS if the limit cut a hypothesis off, and their
        probabilities are renormalised without the forbidden tokens.
        """
        target = self._tokenizer.target
        subwords = [self._tokenizer.source.tokens(source.ids) for source in sources]
        prefixes = [target.tokens(source.prefix) for source in sources]
        results = self._translator.translate_batch(subwords, prefixes, **options)
        hypotheses = []
        for source, result in zip(subwords, results, strict=True):
            rows = [[token for token in target.ids(row) if token != EOS] for row in result.hypotheses]
            targets = [target.tokens(row) for row in rows]
            scored = self._translator.score_batch([source] * len(rows), targets, max_input_length=0)  # with EOS
            hypotheses.append(_ranked(rows, [sum(scores.log_probs) for scores in scored], options["length_penalty"]))
        return hypotheses


def _choose_device(device: str) -> str:
    """Return the device that a user named; a GPU needs libraries that are installed and loaded with PyTorch."""
    if device == "cpu" or (device == "auto" and not ctranslate2.get_cuda_device_count()):
        return "cpu"
    from seq2seq.device import choose_device

    return str(choose_device(device))


def _cores() -> int:
    """Return the number of threads that PyTorch would use: OMP_NUM_THREADS, or the number of physical cores."""
    if (number := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return int(number)
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    try:
        return len({Path(siblings.format(cpu)).read_text() for cpu in os.sched_getaffinity(0)})
    except (AttributeError, OSError):  # not on Linux
        return os.cpu_count() or 1


def settings_of(tokenizer: Tokenizers) -> dict[str, str | bool]:
    """Return the settings in the config.json of an export that are of its tokenizer."""
    unk, start, eos = tokenizer.target.tokens((UNK, tokenizer.start, EOS))
    marks = {"unk_token": unk, "bos_token": start, "eos_token": eos, "decoder_start_token": start}
    return {**marks, "add_source_bos": False, "add_source_eos": True}


def _require_same(folder: Path, tokenizer: Tokenizers) -> None:
    """Refuse an export with another model's vocabulary or settings: its translations would be other words."""
    for path in sorted(folder.iterdir()):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"{folder / shorten(path.name)} is no file")  # CTranslate2 would wait for a pipe
    settings = parse_json(read_bounded(folder / CONFIG, _MAX_JSON), folder / CONFIG)
    expected = settings_of(tokenizer)
    if not isinstance(settings, dict) or any(repr(settings.get(key)) != repr(expected[key]) for key in expected):
        raise UserError(f"{folder / CONFIG} is not of this model's tokenizer: export the model again")
    epsilon = settings.get("layer_norm_epsilon")
    if not (isinstance(epsilon, float) and 0 < epsilon < _MAX_EPSILON):
        raise UserError(f"{folder / CONFIG} has layer_norm_epsilon={shorten(epsilon)}: export the model again")
    sides = {"source": tokenizer.source, "target": tokenizer.target}
    if (folder / "shared_vocabulary.json").exists():
        sides = {"shared": tokenizer.target}
    for name, side in sides.items():
        path = folder / f"{name}_vocabulary.json"
        if parse_json(read_bounded(path, _MAX_JSON), path) != side.tokens(range(side.vocab_size)):
            raise UserError(f"{path} is not the vocabulary of this model's tokenizer: export the model again")


def _require_supported(sources: Sequence[Source], settings: SearchConfig) -> None:
    if settings.sampling:  # with another formula
        raise UserError("search.sampling=True is not what CTranslate2 computes: use --engine pytorch")
    if any(source.phrases for source in sources):
        raise UserError("phrases that must appear are not known to CTranslate2: use --engine pytorch")
    longest = [longest for _, longest in length_limits(sources, settings)]
    needed = max([*longest, *(len(source.ids) for source in sources)], default=0)
    if needed >= MAX_POSITIONS:
        message = f"texts or translations of up to {needed} tokens need more than an export's"
        raise UserError(f"{message} {MAX_POSITIONS} positions: lower --max-length, or use --engine pytorch")


def _ranked(rows: Sequence[list[int]], scores: Sequence[float], alpha: float) -> list[Hypothesis]:
    """Return hypotheses made of ids and scores, best first."""
    if any(map(math.isnan, scores)):
        raise UserError("the model's scores are not numbers (NaN): its weights are damaged, train it again")
    hypotheses = [
        Hypothesis(ids, score, score / (len(ids) + 1) ** alpha) for ids, score in zip(rows, scores, strict=True)
    ]
    return sorted(hypotheses, key=lambda hypothesis: hypothesis.normalised_score, reverse=True)
