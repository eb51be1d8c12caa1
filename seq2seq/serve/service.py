"""What answers requests: limits, the queues, the model's thread, the key, the counts; knows no routes."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from fastapi import Request

from seq2seq.errors import UserError
from seq2seq.serve.batching import Batcher, OverloadedError
from seq2seq.serve.front import Gate
from seq2seq.serve.languages import Detect
from seq2seq.serve.limits import Limits
from seq2seq.serve.metrics import Metrics
from seq2seq.serve.requests import ApiError, ExplainRequest
from seq2seq.serve.translating import TextTranslator, Translates, compute_with
from seq2seq.serve.worker import Worker

_ENDING = 5.0  # seconds for a step of the model that nobody waits for any more
Explain = Callable[[ExplainRequest], dict[str, Any]]


class Service:
    """What answers requests: limits, the queues, the model's thread, and the counts of it all."""

    def __init__(
        self,
        translator: Translates,
        limits: Limits,
        *,
        most_alternatives: int,
        explain: Explain | None,
        detect: Detect | None,
        api_key: str | None,
    ) -> None:
        """Wrap a translator; nothing runs before `start`."""
        self.translator, self.limits, self.most_alternatives = translator, limits, most_alternatives
        self.can_explain, self.detect, self.has_key = explain is not None, detect, api_key is not None
        self._key = hashlib.sha256((api_key or "").encode()).digest()
        self.gate, self.metrics = Gate(), Metrics()
        self.worker, self.markup_worker = Worker("model"), Worker("markup")
        self.batcher, self.long_batcher = (
            Batcher(
                compute_with(translator),
                self.worker,
                max_batch=limits.max_batch,
                max_delay=limits.max_delay if limits.max_batch > 1 else 0.0,
                max_items=limits.waiting_texts,
                max_size=limits.waiting_chars,
                size=len,
                is_costly=is_long,
                on_batch=self.metrics.on_batch,
            )
            for is_long in (False, True)
        )
        self._batchers = self.batcher, self.long_batcher
        languages = translator.src_lang, translator.tgt_lang
        self.texts = TextTranslator(self.batcher, self.long_batcher, self.markup_worker, languages, limits)
        self.explainer: Batcher[str, ExplainRequest, bytes] = Batcher(
            lambda _, wanted, check: [self._to_json(explain(one)) for one in wanted] if explain else [],
            self.worker,
            max_batch=1,
            max_delay=0.0,
            max_items=limits.explanations,
            max_size=limits.explanations * limits.explain_chars * 2,
            size=lambda wanted: len(wanted.source) + len(wanted.target or ""),
            is_costly=True,
        )
        self._explaining = 0
        watch, both = self.metrics.watch, self._batchers
        watch(
            "seq2seq_waiting_sentences",
            "Sentences in the queue.",
            lambda: sum(one.waiting_items for one in both),
        )
        watch("seq2seq_waiting_characters", "Their characters.", lambda: sum(one.waiting_size for one in both))
        watch("seq2seq_waiting_explanations", "Explanations in the queue.", lambda: self.explainer.waiting_items)
        watch("seq2seq_requests_inside", "Requests at work.", lambda: self.gate.inside)

    def start(self) -> None:
        """Begin to work, in the running event loop."""
        for batcher in (*self._batchers, self.explainer):
            batcher.start()

    async def stop(self) -> None:
        """Work no more; wait a little for what is at work, since Python cannot end well while PyTorch computes."""
        await asyncio.gather(*(batcher.stop() for batcher in (*self._batchers, self.explainer)))
        for worker in (self.worker, self.markup_worker):
            worker.close()
            await asyncio.to_thread(worker.join, _ENDING)

    @property
    def trouble(self) -> str:
        """Why requests are not being answered; empty: they are.

        A thread is stuck when one step of its work takes longer than any answer may.
        """
        if not all(batcher.is_running for batcher in self._batchers):
            return "the queue has stopped"
        for worker in (self.worker, self.markup_worker):
            if (seconds := worker.busy_seconds) > self.limits.timeout:
                return f"the {worker.name} has been at one step for {seconds:.0f} s"
        return ""

    @property
    def retry_after(self) -> int:
        """Seconds in which all sentences that wait now should be done, as far as the last batches tell."""
        return max(batcher.retry_after for batcher in self._batchers)

    def deadline(self) -> float:
        """When a request that comes now has to be answered, by the event loop's clock."""
        return asyncio.get_running_loop().time() + self.limits.timeout

    def begin_explanation(self) -> None:
        """Count an explanation as at work until `end_explanation`, which is due once it is sent.

        Raises:
            OverloadedError: there are as many as may be.
        """
        if self._explaining >= self.limits.explanations:
            raise OverloadedError("too many explanations are wanted or being sent", self.explainer.retry_after)
        self._explaining += 1

    def end_explanation(self) -> None:
        """Make room for another explanation."""
        self._explaining -= 1

    def check_key(self, key: str | None, request: Request) -> None:
        """Refuse a request without the key, told as api_key or in the header Authorization: Bearer.

        Raises:
            ApiError: the key is missing or wrong.
        """
        if not self.has_key:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = key or (token.strip() if scheme.lower() == "bearer" else "")
        if not key:
            raise ApiError(400, "an API key is needed: ask whoever runs this server")
        if not hmac.compare_digest(hashlib.sha256(key.encode(errors="replace")).digest(), self._key):
            raise ApiError(403, "Invalid API key")

    def _to_json(self, values: dict[str, Any]) -> bytes:
        found = json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if len(found) > (most := self.limits.explanation_bytes):
            raise UserError(f"the explanation has {len(found)} bytes, at most {most} are sent: give a shorter sentence")
        return found
