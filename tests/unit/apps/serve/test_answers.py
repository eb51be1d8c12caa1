"""Answers match their descriptions in /openapi.json."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from schemas import check_answer
from serving import FakeTranslator, question, until

from seq2seq.apps.serve.limits import Limits

Ask = Callable[..., Any]
KEY = "k"
detect = lambda text: [(text, 99.5)]  # noqa: E731


def test_every_route_describes_its_answers(ask: Ask):
    api = ask(lambda client: client.get("/openapi.json")).json()
    assert set(api["paths"]) >= {
        "/",
        "/translate",
        "/detect",
        "/explain",
        "/languages",
        "/health",
        "/ready",
        "/metrics",
    }
    for methods in api["paths"].values():
        for route in methods.values():
            assert {"200", "403", "500"} <= set(route["responses"])
            for answer in route["responses"].values():
                assert all(content["schema"] for content in answer["content"].values())


async def ordinary(client: Any) -> list[httpx.Response]:
    texts = ["a", "b"]
    answers = [await client.get(path) for path in ("/", "/languages", "/frontend/settings", "/health", "/ready")]
    answers += [await client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}), await client.get("/metrics")]
    asked = [question(q, source="auto", alternatives=n, api_key=KEY) for q in ("a", texts) for n in (0, 2)]
    asked += [question("a", api_key=KEY), question("a"), question("a", api_key="wrong"), question("", api_key=KEY)]
    answers += [await client.post("/translate", json=sent) for sent in asked]
    answers += [await client.post("/translate", content=b"a" * size) for size in (9, 90_000)]
    answers.append(await client.post("/translate", json=question("boom", api_key=KEY)))
    answers += [await client.get("/health", headers={"Host": "bad.example"})]
    answers += [
        await client.post(path, json={"q": "a", "source": "a", "api_key": KEY}) for path in ("/detect", "/explain")
    ]
    return answers


def test_answers_and_errors_match_their_description(ask: Ask):
    async def scenario(client: Any) -> Any:
        return (await client.get("/openapi.json")).json(), await ordinary(client)

    api, answers = ask(scenario, api_key=KEY, detect=detect)
    for answer in answers:
        check_answer(api, answer)
    statuses = {200, 400, 403, 413, 415, 500, 501}
    assert {answer.status_code for answer in answers} == statuses


@pytest.mark.parametrize("part", ["", "bytes=0-3", "bytes=9-1"])
def test_the_page_is_given_whole_whatever_part_is_requested(ask: Ask, part: str):
    answer = ask(lambda client: client.get("/", headers={"Range": part}))
    assert (answer.status_code, answer.text.endswith("</html>\n")) == (200, True)


@pytest.mark.slow
def test_refusals_for_time_and_load_match_their_description(ask: Ask, translator: FakeTranslator):
    async def scenario(client: Any) -> Any:
        async def slow() -> Any:
            yield b"{"
            await asyncio.sleep(20)

        api = (await client.get("/openapi.json")).json()
        translator.may_go.clear()
        late = asyncio.create_task(client.post("/translate", json=question("one.")))
        await until(lambda: bool(translator.batches))
        queued = asyncio.create_task(client.post("/translate", json=question("x" * 80)))
        await asyncio.sleep(0.05)
        full = await client.post("/translate", json=question("y" * 80))
        headers = {"Content-Type": "application/json"}
        answers = [full, await late, await queued, await client.post("/translate", content=slow(), headers=headers)]
        translator.may_go.set()
        return api, answers

    api, answers = ask(scenario, limits=Limits(char_limit=100, waiting_chars=100, timeout=1.0))
    assert [answer.status_code for answer in answers] == [429, 503, 503, 408]
    assert ["retry-after" in answer.headers for answer in answers] == [True, True, True, False]
    for answer in answers:
        check_answer(api, answer)


@pytest.mark.parametrize(
    "path", ["/", "/health", "/ready", "/languages", "/frontend/settings", "/metrics", "/page/page.js"]
)
def test_head_tells_what_get_would_without_the_body(ask: Ask, path: str):
    async def scenario(client: Any) -> Any:
        answers = [await client.head(path), await client.get(path), await client.head("/translate")]
        return *answers, (await client.get("/metrics")).text

    head, get, only_posted, metrics = ask(scenario)
    assert (head.status_code, head.content) == (200, b"")
    assert get.content
    assert head.headers["content-type"] == get.headers["content-type"]
    assert path == "/metrics" or head.headers["content-length"] == get.headers["content-length"]
    assert 'seq2seq_requests_total{method="HEAD"' in metrics
    assert (only_posted.status_code, only_posted.headers["allow"], only_posted.content) == (405, "POST", b"")
