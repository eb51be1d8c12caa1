import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from serving import FakeTranslator, question, until

from seq2seq.apps.serve.limits import Limits
from seq2seq.apps.serve.messages import ExplainRequest
from seq2seq.errors import UserError

Ask = Callable[..., Any]


def explain(options: ExplainRequest) -> dict[str, Any]:
    if options.layer > 1:
        raise UserError(f"layer {options.layer} is not there: give 0 to 1")
    return {"source": options.source, "target": options.target, "walks": [[options.layer, options.head]]}


def post(ask: Ask, sent: Any, **options: Any) -> Any:
    return ask(lambda client: client.post("/explain", json=sent), **options)


def test_an_explanation_is_of_what_is_asked_for(ask: Ask):
    sent = {"source": "ñ", "target": "b", "layer": 1, "head": 3}
    assert post(ask, sent, explain=explain).json() == {"source": "ñ", "target": "b", "walks": [[1, 3]]}
    assert post(ask, {"source": "a"}, explain=explain).json()["walks"] == [[0, 0]]


@pytest.mark.parametrize("names", [["cross"], ["cross", "encoder.1"]])
def test_a_form_names_one_part_or_several(ask: Ask, names: list[str]):
    def explain_changed(options: ExplainRequest) -> dict[str, Any]:
        return explain(options) | {"interventions": {"without": options.without, "average": options.average}}

    form = {"source": "a", "without": names}
    answer = ask(lambda client: client.post("/explain", data=form), explain=explain_changed)
    assert answer.status_code == 200
    assert answer.json()["interventions"] == {"without": names, "average": []}


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({}, "missing source"),
        ({"source": "a" * 301}, "(301) exceeds text limit (300)"),
        ({"source": "a", "target": "a" * 301}, "(301) exceeds"),
        ({"source": "a", "head": -1}, "head: "),
        ({"source": "a", "layer": 2}, "layer 2 is not there"),
    ],
)
def test_what_cannot_be_explained_is_answered_with_the_reason(ask: Ask, sent: Any, message: str):
    answer = post(ask, sent, explain=explain)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_server_that_cannot_explain_says_so(ask: Ask):
    answer = post(ask, {"source": "a"})
    assert answer.status_code == 501
    assert "--engine pytorch" in answer.json()["error"]


def test_explanations_have_a_bound_of_their_own(ask: Ask, translator: FakeTranslator):
    may_go, begun = threading.Event(), threading.Event()

    def slowly(_: ExplainRequest) -> dict[str, Any]:
        begun.set()
        assert may_go.wait(20)
        return {}

    async def scenario(client: Any) -> Any:
        first = asyncio.create_task(client.post("/explain", json={"source": "1"}))
        await until(begun.is_set)
        others = [asyncio.create_task(client.post("/explain", json={"source": str(i)})) for i in range(4)]
        translation = asyncio.create_task(client.post("/translate", json=question("a")))
        await until(lambda: sum(task.done() for task in others) == 3)
        may_go.set()
        return [answer.status_code for answer in await asyncio.gather(first, translation, *others)]

    first, translation, *others = ask(scenario, explain=slowly, limits=Limits(explanations=2))
    assert (first, translation) == (200, 200)
    assert sorted(others) == [200, 429, 429, 429]
