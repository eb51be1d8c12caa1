"""A translator that needs no model, and a server around it that is asked in this process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI
from schemas import check_answer
from shouting import shout

from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.service import Service
from seq2seq.errors import UserError
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.search import SearchConfig
from seq2seq.text.glossary import Glossary
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Translation


class FakeTranslator(Translator):
    """Answers in capitals, then the words of the glossary; the n-th best has n - 1 marks behind it.

    The confidence is 1 / the number of characters.

    Records its batches, waits and fails on request.
    """

    src_lang, tgt_lang = "en", "es"
    search = SearchConfig(beam=5)

    def __init__(self) -> None:
        self.aligns = False
        self.calibration: Calibration | None = Calibration(0.0, 0.0, 0.0, 0.0)
        self.batches: list[list[str]] = []
        self.may_go = threading.Event()
        self.may_go.set()

    @property
    def can_align(self) -> bool:
        return self.aligns

    def count_subwords(self, texts: Iterable[Any]) -> list[int]:
        return [len(text.encode()) // 3 for text in texts]

    def translate_nbest(
        self,
        texts: Iterable[Any],
        n_best: int,
        *,
        glossary: Glossary | None = None,
        align: bool = False,
        on_progress: Callable[[int], object] | None = None,
        **changes: Any,
    ) -> list[list[Translation]]:
        texts = list(texts)
        self.batches.append(texts)
        assert self.may_go.wait(20)
        if on_progress is not None:
            on_progress(len(texts))
        if any("boom" in text for text in texts):
            raise RuntimeError("the model broke")
        if any("refuse" in text for text in texts):
            raise UserError("this text\nis refused")
        required = [" ".join(["", *glossary.translations(text)]) if glossary else "" for text in texts]
        return [
            [
                Translation(shout(text) + end + "!" * rank, 0.0, 0.0, [], confidence=1 / len(text))
                for rank in range(n_best)
            ]
            for text, end in zip(texts, required, strict=True)
        ]


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[Any]:
    """A client of an application that runs, its attribute `app`; each answer is as /openapi.json says."""

    async def check(answer: httpx.Response) -> None:
        await answer.aread()
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert (answer.headers["x-content-type-options"], "server" in answer.headers) == ("nosniff", False)
        if answer.request.method.lower() in api()["paths"].get(answer.request.url.path, {}):
            check_answer(api(), answer)

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    hooks = {"response": [check]}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", event_hooks=hooks) as client,
    ):
        vars(client)["app"] = app
        yield client


@cache
def api() -> dict[str, Any]:
    """The description of the API, which no option changes."""
    return create_app(Service(FakeTranslator())).openapi()


def question(q: Any, **more: Any) -> dict[str, Any]:
    return {"q": q, "source": "en", "target": "es", **more}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other tasks bring about."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
