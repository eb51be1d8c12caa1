import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from serving import FakeTranslator, question, served, until

from seq2seq.apps.documents import html
from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.limits import Limits, require_search
from seq2seq.apps.serve.service import Service
from seq2seq.errors import UserError
from seq2seq.settings.search import SearchConfig
from seq2seq.translate.types import Translation
from tests.refusing import refuses

Ask = Callable[..., Any]
JSON = {"Content-Type": "application/json"}


@pytest.mark.slow
def test_a_body_is_not_read_beyond_its_limit(ask: Ask):
    read = 0

    async def endless() -> Any:
        nonlocal read
        while True:
            read += 10_000
            yield b"a" * 10_000
            await asyncio.sleep(0.05 if read > 100_000 else 0)

    answer = ask(lambda client: client.post("/translate", content=endless(), headers=JSON))
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert read < 1_000_000


@pytest.mark.slow
def test_a_body_that_does_not_arrive_is_given_up(ask: Ask):
    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(20)

    answer = ask(lambda client: client.post("/translate", content=slow(), headers=JSON), limits=Limits(timeout=1.0))
    assert (answer.status_code, answer.headers["connection"]) == (408, "close")


def test_a_failure_says_nothing_of_the_inside_and_leaves_others_alone(ask: Ask):
    async def scenario(client: Any) -> Any:
        answers = (client.post("/translate", json=question(q)) for q in ("one", "boom", "two", "One. I refuse."))
        return *await asyncio.gather(*answers), (await client.get("/metrics")).text

    one, broken, two, refused, metrics = ask(scenario, limits=Limits(max_delay=0.2))
    assert (one.json(), two.json()) == ({"translatedText": "ONE"}, {"translatedText": "TWO"})
    assert (broken.status_code, refused.status_code) == (500, 400)
    assert "broke" not in broken.text
    assert list(broken.json()) == ["error"]
    assert broken.headers["x-content-type-options"] == "nosniff"
    assert 'seq2seq_requests_total{method="POST",path="/translate",status="500"} 1.0' in metrics


NUMBERED = [f"word {number}." for number in range(80)]


@pytest.mark.parametrize("is_html", [False, True])
@pytest.mark.parametrize("q", ["word " * 50, "𐍈" * 60, " ".join(NUMBERED), NUMBERED])  # a rare letter: several subwords
def test_a_short_text_overtakes_a_longer_request_at_work(ask, translator, monkeypatch, q, is_html):
    began, order = threading.Event(), []

    def translate_nbest(texts: list[str], n_best: int, *, align: bool = False, on_progress: Any, **more: Any) -> Any:
        if texts[0] != "word":
            began.set()
            while not order:
                on_progress(0)
        order.append(len(texts[0]))
        return [[Translation("done", 0.0, 0.0, [])] for _ in texts]

    monkeypatch.setattr(translator, "translate_nbest", translate_nbest)

    async def scenario(client: Any) -> Any:
        long = asyncio.create_task(client.post("/translate", json=question(q, format="html" if is_html else "text")))
        await until(began.is_set)
        short = await client.post("/translate", json=question("word"))
        return short, await long

    assert [answer.status_code for answer in ask(scenario)] == [200, 200]
    assert order[0] == len("word")


@pytest.mark.slow
def test_what_cannot_be_translated_never_joins_a_batch(ask: Ask, translator: FakeTranslator):
    bad = ("{n, plural, one {a cat} other {cats}}", "<i>y</i> " * 200, "<b>x</b> " * 200)
    kinds = {bad[1]: "html"}

    async def scenario(client: Any) -> Any:
        asked = ("See %1.", *bad, "See %2.")
        sent = (question(q, format=kinds.get(q, "text")) for q in asked)
        return await asyncio.gather(*(client.post("/translate", json=one) for one in sent))

    one, *refused, two = ask(scenario, limits=Limits(max_delay=0.5))
    assert (one.json(), two.json()) == ({"translatedText": "SEE %1."}, {"translatedText": "SEE %2."})
    assert [answer.status_code for answer in refused] == [400] * 3
    assert ["See %1.", "See %2."] in [sorted(batch) for batch in translator.batches]
    assert not any(text in batch for text in bad for batch in translator.batches)


async def keep_busy(client: Any, translator: FakeTranslator) -> "asyncio.Task[Any]":
    """Keep the model at work on a request until `may_go` is set."""
    translator.may_go.clear()
    request = asyncio.create_task(client.post("/translate", json=question("one.")))
    await until(lambda: bool(translator.batches))
    return request


def test_a_full_queue_answers_429_and_says_when_to_come_back(ask: Ask, translator: FakeTranslator):
    async def scenario(client: Any) -> Any:
        first = await keep_busy(client, translator)
        second = asyncio.create_task(client.post("/translate", json=question("x" * 80)))
        await asyncio.sleep(0.05)
        refused = await client.post("/translate", json=question("y" * 80))
        ready = (await client.get("/metrics")).text
        translator.may_go.set()
        return refused, ready, await asyncio.gather(first, second)

    refused, metrics, answered = ask(scenario, limits=Limits(char_limit=100, waiting_chars=100))
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"].startswith("Slowdown")
    assert "seq2seq_waiting_characters 80.0" in metrics
    assert 'seq2seq_rejected_total{reason="full"} 1.0' in metrics
    assert [one.status_code for one in answered] == [200, 200]


async def health_of(client: Any, status: int) -> Any:
    """Ask until the answer has this status."""
    async with asyncio.timeout(20):
        while (answer := await client.get("/health")).status_code != status:
            await asyncio.sleep(0.01)
    return answer


@pytest.mark.slow
def test_markup_that_takes_too_long_stops_nobody_else_and_is_told(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    may_go = threading.Event()
    monkeypatch.setattr(html, "read", lambda *_, **__: may_go.wait(20))

    async def scenario(client: Any) -> Any:
        slow = asyncio.create_task(client.post("/translate", json=question("<p>slow</p>", format="html")))
        await asyncio.sleep(0.05)
        quick = await client.post("/translate", json=question("quick"))
        late = await slow
        health = await health_of(client, 503)
        may_go.set()
        return quick, late, health, await health_of(client, 200)

    quick, late, health, well = ask(scenario, limits=Limits(timeout=1.0))
    assert quick.json() == {"translatedText": "QUICK"}
    assert late.status_code == 503
    assert "in time" in late.json()["error"]
    assert "the markup has been at one step for" in health.json()["error"]
    assert well.json() == {"status": "ok"}


def test_a_client_that_is_gone_leaves_the_queue(ask: Ask, translator: FakeTranslator):
    async def scenario(client: Any) -> Any:
        batcher, gone = client.app.state.service.batchers[0], asyncio.Event()
        bodies = [b'{"q": "late", "source": "en", "target": "es"}']

        async def receive() -> dict[str, Any]:
            if bodies:
                return {"type": "http.request", "body": bodies.pop()}
            await gone.wait()
            return {"type": "http.disconnect"}

        first = await keep_busy(client, translator)
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "headers": headers, "query_string": b""}
        leaving = asyncio.create_task(client.app(scope, receive, AsyncMock()))
        await until(lambda: len(batcher.waiting) == 1)
        gone.set()
        await leaving
        assert not batcher.waiting
        translator.may_go.set()
        await first
        return (await client.get("/metrics")).text

    assert 'seq2seq_rejected_total{reason="gone"} 1.0' in ask(scenario)
    assert translator.batches == [["one."]]


def test_a_model_that_hangs_is_no_healthy_server(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    async def scenario(client: Any) -> Any:
        service = client.app.state.service
        monkeypatch.setattr(type(service.worker), "busy_seconds", 31.0)
        hanging = await client.get("/health")
        monkeypatch.undo()
        await service.batchers[0].stop()
        return hanging, await client.get("/health")

    hanging, stopped = ask(scenario)
    assert hanging.status_code == stopped.status_code == 503
    assert "the model has been at one step for 31 s" in hanging.json()["error"]


def test_the_end_waits_for_the_model_s_present_step(ask: Ask, translator: FakeTranslator):
    """A process that ended while PyTorch computed was aborted, with another exit status than 0."""

    async def scenario(client: Any) -> None:
        (await keep_busy(client, translator)).cancel()
        threading.Timer(0.3, translator.may_go.set).start()

    before = set(threading.enumerate())
    ask(scenario)
    assert not any(thread.name == "model" for thread in set(threading.enumerate()) - before)
    assert translator.may_go.is_set()


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [("beam", 1000, 32), ("mbr", 100, 32), ("min_length", 100_000, 1000), ("max_length_ratio", 1000.0, 10.0)],
)
def test_a_model_whose_own_search_takes_too_long_is_not_served(name: str, value: float, most: float):
    require_search(SearchConfig())
    with pytest.raises(UserError, match=rf"search.{name}={value} is too much for a server, at most {most}: lower it"):
        require_search(replace(SearchConfig(), **{name: value}))


def translate(
    translator: FakeTranslator, texts: list[str], n_best: int = 1, *, is_html: bool = False, **limits: int
) -> list[list[str]]:
    async def scenario() -> list[list[str]]:
        app = create_app(Service(translator, Limits(**limits)))
        async with served(app), asyncio.timeout(20):
            translated = await app.state.service.texts.translate(texts, n_best, is_html=is_html)
            return [text.ranks for text in translated]

    return asyncio.run(scenario())


SPACED, PAGE = "  The cat.  A dog?\n\n\tMr. Hill saw it.\nend \n", "<p>One <b>two</b>.</p><script>let a = 1</script>"


@pytest.mark.parametrize(
    ("texts", "is_html", "translations", "batch"),
    [
        ([SPACED], False, [SPACED.upper()], ["The cat.", "A dog?", "Mr. Hill saw it.", "end"]),
        (["Yes. No.", "No. Yes."], False, ["YES. NO.", "NO. YES."], ["Yes.", "No."]),
        (
            ["At {a} https://b.c/d?e.\nIs <b>f</b>.", "g"],
            False,
            ["AT {a} https://b.c/d?e.\nIS <b>F</b>.", "G"],
            ["At {a} https://b.c/d?e.", "Is f.", "g"],
        ),
        (["a\0b \1 <i>c</i>"], False, ["A B   <i>C</i>"], ["a b   c"]),  # characters that stand for markup inside
        (
            [PAGE, "<p title='x'>Six</p>"],
            True,
            [PAGE.replace("One", "ONE").replace("two", "TWO"), "<p title='x'>SIX</p>"],
            ["One two.", "Six"],
        ),
    ],
)
def test_different_sentences_are_translated_once_and_what_is_around_them_stays(
    translator, texts, is_html, translations, batch
):
    assert [ranks[0] for ranks in translate(translator, texts, 2, is_html=is_html)] == translations
    assert translator.batches == [batch]


def test_the_nth_of_a_text_joins_the_nth_of_every_sentence(translator: FakeTranslator):
    assert translate(translator, ["One. Two."], 3) == [["ONE. TWO.", "ONE.! TWO.!", "ONE.!! TWO.!!"]]


@pytest.mark.parametrize(
    ("text", "is_html", "limits", "message"),
    [
        ("a <b>b</b> " * 3, True, {"tag_limit": 5}, "a sentence has 6 tags or placeholders, at most 5 can be"),
        ("a <b>b</b> " * 3, False, {"tag_limit": 5}, "6 tags or placeholders, at most 5"),
        ("<p>a</p><p>b <i>c</i> d</p>", True, {"sentence_limit": 1}, "the request has 2 sentences, at most 1"),
        ("a\nb\nc\nd", False, {"sentence_limit": 3}, "the request has 4 sentences, at most 3"),
    ],
)
def test_a_text_of_too_many_parts_is_refused_before_the_model_is_asked(translator, text, is_html, limits, message):
    refuses(message, translate, translator, [text], is_html=is_html, **limits)
    assert not translator.batches
    assert translate(translator, [text], is_html=is_html, **{name: value + 1 for name, value in limits.items()})


def test_every_alternative_has_its_markup_by_its_own_alignment(translator, monkeypatch):
    calls: list[bool] = []

    def translate_nbest(
        texts: list[str], n_best: int, *, align: bool = False, on_progress: object = None, **more: object
    ) -> list[list[Translation]]:
        calls.append(align)
        ranked = [("x y", [(1, 0), (0, 1)]), ("z w", [(0, 0), (1, 1)])]
        return [[Translation(text, 0.0, 0.0, [], alignment) for text, alignment in ranked] for _ in texts]

    monkeypatch.setattr(translator, "translate_nbest", translate_nbest)
    translator.aligns = True
    assert translate(translator, ["<p>a <b>b</b></p>"], 2, is_html=True) == [["<p><b>x</b> y</p>", "<p>z <b>w</b></p>"]]
    assert translate(translator, ["a <b>b</b>"], 2) == [["<b>x</b> y", "z <b>w</b>"]]
    assert calls == [True, True]  # once a request, not once an alternative
