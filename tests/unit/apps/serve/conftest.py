"""Fixtures of the server's tests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from serving import FakeTranslator, served

from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.service import Service


@pytest.fixture
def translator() -> FakeTranslator:
    return FakeTranslator()


@pytest.fixture
def ask(translator: FakeTranslator) -> Callable[..., Any]:
    """Run a scenario, a function of a client, against an application with the given options; return its result."""

    def run(scenario: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
        async def run_scenario() -> Any:
            names = ("allowed_hosts", "allow_origins")
            of_app = {name: options.pop(name) for name in names if name in options}
            async with served(create_app(Service(translator, **options), **of_app)) as client:
                return await scenario(client)

        return asyncio.run(run_scenario())

    return run
