"""The service behind the routes: the model's thread, the queues and the metrics; this module does not know HTTP."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from seq2seq.apps.serve.batching import Batcher, OverloadedError, Sentence, count_chars
from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.translating import TextTranslator, compute_with
from seq2seq.apps.serve.worker import Kind, Worker
from seq2seq.data.languages import NAMES, base_language, load_identifier
from seq2seq.errors import UserError
from seq2seq.translate.translator import Translator

Explain = Callable[[Any], dict[str, Any]]  # of an `ExplainRequest`, which the service hands on as it is
_MOST_ALTERNATIVES = 9  # further translations that a request may ask for, if the beam is wide enough
_STOP_TIMEOUT = 5.0  # seconds to wait at the end for the model's current step
_FEW_WORDS, _CERTAIN = 2, 90.0  # words, and probability (percent) below which the model tells their language
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Detect = Callable[[str], tuple[str, float]]  # the likeliest language of a text, and its probability (percent)
_CERTAIN_THIRD = 0.9  # least probability of a language without a name here
_THIRD, _UNLIKELY = 0.4, 0.13  # least share of a third language, and most share of the model's two, as a part of it
_TARGET = 0.7  # least probability of the target language: a text in it is not translated


class Metrics:
    """The Prometheus metrics of one server, in their own registry: several servers in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        shared = {"namespace": "seq2seq", "registry": self.registry}
        counter, histogram = partial(Counter, **shared), partial(Histogram, **shared)
        self.requests = counter("requests", "Requests answered.", ["method", "path", "status"])
        self.seconds = histogram("request_seconds", "Time to the end of the answer.", ["path"], buckets=_SECONDS)
        self.rejected = counter("rejected", "Requests refused or given up.", ["reason"])
        self.sentences = counter("sentences", "Sentences translated.")
        self.batch = histogram("batch_sentences", "Sentences of a batch.", buckets=_SIZES)
        self.batch_seconds = histogram("batch_seconds", "Time to translate a batch, pauses included.", buckets=_SECONDS)

    def gauge(self, name: str, description: str, value: Callable[[], int]) -> None:
        """Add a metric whose value is asked for when the metrics are read."""
        Gauge(name, description, namespace="seq2seq", registry=self.registry).set_function(value)

    def on_batch(self, count: int, seconds: float) -> None:
        """Count a translated batch."""
        self.sentences.inc(count)
        self.batch.observe(count)
        self.batch_seconds.observe(seconds)


class Service:
    """Translates and explains sentences for requests.

    Attributes:
        inside: number of requests that are being answered.
        explanations: number of explanations that wait, are being computed or are being sent.
    """

    def __init__(
        self,
        translator: Translator,
        limits: Limits | None = None,
        *,
        explain: Explain | None = None,
        detect: Detect | None = None,
        api_key: str | None = None,
    ) -> None:
        """Wrap a translator; call `start` to begin.

        Args:
            translator: translates the sentences.
            limits: of requests, batches and waiting; None: the defaults.
            explain: returns an explanation as JSON values; None: this server cannot explain.
            detect: returns a text's likeliest language; None: py3langid's model does.
            api_key: the key that requests must have; None: no request needs a key.
        """
        self.limits = limits = limits or Limits()
        self.translator = translator
        self.most_alternatives = min(translator.search.beam - 1, _MOST_ALTERNATIVES)
        self.explain, self.api_key = explain, api_key
        self.metrics = Metrics()
        self.inside, self.explanations = 0, 0
        self.worker, self.markup_worker = Worker("model"), Worker("markup")
        self.batchers = batchers = [
            Batcher(compute_with(translator), self.worker, limits, kind=kind, on_batch=self.metrics.on_batch)
            for kind in Kind
        ]
        languages = translator.src_lang, translator.tgt_lang
        self._detect = detect or detector(*languages)
        self.texts = TextTranslator(batchers, translator.count_subwords, self.markup_worker, languages, limits)
        self._one_explanation = asyncio.Lock()  # one at a time, so that long sentences get their turns
        gauge = self.metrics.gauge
        gauge("waiting_sentences", "Sentences in the queues.", lambda: len(self._waiting))
        gauge("waiting_characters", "Characters in the queues.", lambda: count_chars(self._waiting))
        gauge("waiting_explanations", "Explanations waiting, at work or being sent.", lambda: self.explanations)
        gauge("requests_inside", "Requests being answered.", lambda: self.inside)

    def start(self) -> None:
        """Start to answer requests, in the running event loop."""
        for batcher in self.batchers:
            batcher.start()

    async def stop(self) -> None:
        """Stop, and wait a few seconds for the current step: Python cannot end properly while PyTorch computes."""
        await asyncio.gather(*(batcher.stop() for batcher in self.batchers))
        for worker in (self.worker, self.markup_worker):
            await asyncio.to_thread(worker.close, _STOP_TIMEOUT)

    @property
    def _waiting(self) -> list[Sentence]:
        return [sentence for batcher in self.batchers for sentence in batcher.waiting]

    @property
    def trouble(self) -> str:
        """The reason why requests are not answered, such as a step that exceeds the timeout; empty: no trouble."""
        if not all(batcher.is_running for batcher in self.batchers):
            return "the queue has stopped"
        for worker in (self.worker, self.markup_worker):
            if (seconds := worker.busy_seconds) > self.limits.timeout:
                return f"the {worker.name} has been at one step for {seconds:.0f} s"
        return ""

    @property
    def retry_after(self) -> int:
        """Estimated seconds until the queues are empty, from the speed of the last batches."""
        return max(batcher.retry_after for batcher in self.batchers)

    @contextmanager
    def explanation_slot(self) -> Iterator[None]:
        """Count an explanation until the client has received the answer."""
        if self.explanations >= self.limits.explanations:
            raise OverloadedError("too many explanations are requested or being sent", self.retry_after)
        self.explanations += 1
        try:
            yield
        finally:
            self.explanations -= 1

    async def detect(self, text: str, *, is_html: bool = False) -> tuple[str, float]:
        """Return the likeliest language of a text, or of the words of HTML, and its probability (percent)."""
        if is_html:
            text = await self.markup_worker.run(self.texts.words_of, text)
        language, percent = await self.markup_worker.run(self._detect, text)
        words = text.lower().split()
        if language == self.translator.src_lang and 0 < percent < _CERTAIN and len(words) <= _FEW_WORDS:
            (translated,) = await self.texts.translate([" ".join(words)], 1, is_html=False)
            return (self.translator.tgt_lang, _CERTAIN) if translated.ranks[0].split() == words else (language, percent)
        return language, percent

    async def explain_as_json(self, request: Any) -> bytes:
        """Return an explanation as JSON."""
        async with self._one_explanation:
            return await self.worker.run(self._to_json, request, kind=Kind.LONG)

    def _to_json(self, request: Any) -> bytes:
        assert self.explain is not None
        fields = self.explain(request)
        content = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        size, limit = len(content), self.limits.explanation_bytes
        if size > limit:
            raise UserError(f"the explanation has {size} bytes, at most {limit} are sent: give a shorter sentence")
        return content


def detector(src_lang: str, tgt_lang: str) -> Detect:
    """Return the function that finds a text's language; without letters, the source language with probability 0.

    A short text looks like many of the 140 languages that py3langid knows. So a text is in the model's source or target
    language, whichever is likelier, unless both together are unlikely beside a third language: one that is certain, or
    one of `seq2seq.data.languages`.
    """
    src, tgt = base_language(src_lang), base_language(tgt_lang)

    def detect(text: str) -> tuple[str, float]:
        words = re.findall(r"[^\W\d_]+", text.lower())
        ranked = load_identifier().rank(f" {' '.join(words)} ")  # likeliest first
        named = {*NAMES, src, tgt}
        shares = {code: float(share) for code, share in ranked if code in named or share > _CERTAIN_THIRD}
        if not words or not (shares.get(src) or shares.get(tgt)):
            return src_lang, 0.0
        third, total = next(iter(shares)), sum(shares.values())
        pair = shares.get(src, 0.0), shares.get(tgt, 0.0)
        if shares[third] > _THIRD * total and sum(pair) < _UNLIKELY * shares[third]:
            return third, float(round(100 * shares[third] / total))
        share = pair[1] / sum(pair)
        return (tgt_lang, float(round(100 * share))) if share > _TARGET else (src_lang, float(round(100 - 100 * share)))

    return detect
