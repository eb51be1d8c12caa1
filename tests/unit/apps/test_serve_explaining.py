"""The server with a real model's explanations behind it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from seq2seq.apps.explain.explanation import explain
from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.service import Service
from seq2seq.cli import serve as cli_serve
from seq2seq.translate.translator import Translator

DOCUMENT = Path(__file__).parents[3] / "docs" / "attention.md"


def ask(translator: Translator, **sent: Any) -> httpx.Response:
    async def scenario() -> httpx.Response:
        app = create_app(Service(translator, explain=cli_serve.explainer(translator)))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            return await client.post("/explain", json=sent)

    return asyncio.run(scenario())


@pytest.mark.slow
def test_an_answer_is_the_explanation_with_walks_and_beams(translator: Translator):
    answer = ask(translator, source="The cat drank.", layer=0, head=2).json()
    walks, beams = answer.pop("walks"), answer.pop("beams")
    assert answer == json.loads(json.dumps(explain(translator, "The cat drank.").to_plain()))
    parts = [(walk["part"], walk["layer"], walk["head"]) for walk in walks]
    assert parts == [("encoder", 0, 2), ("decoder", 0, 2), ("cross", 0, 2)]
    assert beams["result"][0]["text"] == answer["target"]


def test_an_answer_has_the_documented_fields_and_no_others(translator: Translator):
    text = DOCUMENT.read_text(encoding="utf-8").partition("## The JSON")[2]
    lines = re.findall(r"^- ((?:`\w+`(?:, | and )?)+)", text, re.MULTILINE)
    documented = {name for line in lines for name in re.findall(r"`(\w+)`", line)}
    assert set(ask(translator, source="The cat drank.").json()) == documented | {"walks", "beams"}


@pytest.mark.slow
def test_parts_of_the_model_are_switched_off_for_one_answer(translator: Translator):
    usual = ask(translator, source="The cat drank.", target="El gato").json()
    changes = {"without": ["source.2", "cross.1.head.1"], "average": ["encoder"], "temperature": 2.0}
    answer = ask(translator, source="The cat drank.", target="El gato", **changes).json()
    assert answer["interventions"] == changes
    assert answer["unchanged"] == {"target": "El gato", "log_prob": pytest.approx(sum(usual["log_probs"]), abs=1e-3)}
    assert answer["log_probs"] != usual["log_probs"]
    assert all(row[1] == 0 for layer in answer["by_word"]["cross"] for head in layer for row in head)
    assert ask(translator, source="The cat drank.", target="El gato").json() == usual


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"layer": 2}, "layer"),
        ({"head": 3}, "head"),
        ({"target": " "}, "empty"),
        ({"without": ["cross.1.head.9"]}, "cross.1.head.9: this model has heads 1 to "),
        ({"without": ["x" * 41]}, "without: "),
        ({"temperature": 0}, "temperature: "),
    ],
)
def test_what_is_not_there_is_named(translator: Translator, sent: Any, message: str):
    answer = ask(translator, source="The cat.", **sent)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
