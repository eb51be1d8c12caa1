import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi import FastAPI

from seq2seq.cli import app, main
from seq2seq.cli import serve as cli_serve
from seq2seq.documents.keeping import translate_texts
from seq2seq.extras import install_command
from seq2seq.serve.app import create_app
from seq2seq.serve.service import Service


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Nothing runs; the application's service, and where it would listen, land here."""
    runs: list[tuple[Any, Any]] = []

    def run(application: Any, taken: Any, on_start: Callable[[], None]) -> None:
        runs.append((application.state.service, taken.getsockname()))
        taken.close()
        on_start()

    monkeypatch.setattr("seq2seq.serve.server.run", run)
    return runs


@pytest.fixture
def serve(run: Any, bundle_folder: Path) -> Any:
    """Run the command with options; gives status and what it tells."""

    def call(*options: str) -> tuple[int, str]:
        given = ("serve", "--model", bundle_folder, "--device", "cpu", "--port", "0", *options)
        status, _, told = run(*given, application=app, command=())
        return status, told

    return call


def test_it_listens_on_this_machine_only_unless_told(serve: Any, served: Any):
    status, told = serve()
    ((service, address),) = served
    assert status == 0
    assert address[0] == "127.0.0.1"
    assert "warning" not in told
    assert f"at http://127.0.0.1:{address[1]} (" in told
    assert service.api_key is None


def test_an_open_address_without_a_key_gets_a_warning(serve: Any, served: Any, monkeypatch: pytest.MonkeyPatch):
    assert "warning: 0.0.0.0 is open to the network and no --api-key is set" in serve("--host", "0.0.0.0")[1]
    monkeypatch.setenv("SEQ2SEQ_API_KEY", "k")
    assert "warning" not in serve("--host", "0.0.0.0")[1]
    assert served[1][0].api_key == "k"


def test_options_become_limits(serve: Any, served: Any):
    sizes = ("--char-limit", "77", "--batch-limit", "5", "--max-batch", "3", "--waiting-chars", "88")
    serve(*sizes, "--timeout", "9")
    limits = served[0][0].limits
    assert (limits.char_limit, limits.batch_limit, limits.max_batch, limits.timeout) == (77, 5, 3, 9.0)
    assert limits.waiting_chars == 88
    assert served[0][0].most_alternatives == 2  # the bundle's beam is 3


def test_the_names_that_it_is_known_by_are_its_host_s_and_those_that_are_named(
    serve: Any, served: Any, monkeypatch: pytest.MonkeyPatch
):
    known: list[Any] = []

    def create(service: Service, *, allowed_hosts: list[str], allow_origins: list[str], viewer: Path) -> FastAPI:
        known.append((list(allowed_hosts), list(allow_origins)))
        return create_app(service)

    monkeypatch.setattr("seq2seq.serve.app.create_app", create)
    serve("--host", "localhost", "--allowed-host", "a.example", "--allowed-host", "b.example")
    assert known == [(["localhost", "a.example", "b.example"], [])]


def test_no_text_of_a_user_is_logged(serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Where a placeholder cannot be kept, the warning quotes the text: right for files, not for a server."""

    def keep(text: str) -> None:
        translate_texts([text], lambda texts, _: [(f"{one} {{added}}", None) for one in texts])

    def run(application: Any, taken: Any, on_start: Any) -> None:
        taken.close()
        keep("my secret {name}")

    monkeypatch.setattr("seq2seq.serve.server.run", run)
    assert serve()[0] == 0
    assert not caplog.records
    keep("my secret {name}")
    assert "secret" in caplog.text


def test_the_log_says_where_a_request_failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        try:
            raise RuntimeError("the model broke")
        except RuntimeError as error:  # as uvicorn does
            logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)

    monkeypatch.setattr(sys, "argv", ["seq2seq"])
    with pytest.raises(SystemExit):
        main(app)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: Exception in ASGI application"
    assert lines[1].startswith("Traceback")
    assert lines[-1] == "RuntimeError: the model broke"


def test_without_the_packages_it_says_what_to_install(serve: Any, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("seq2seq.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    status, told = serve()
    assert status == 1
    assert told == f"error: this needs the package fastapi: {install_command('serve')}\n"


def test_languages_are_not_detected_without_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    assert cli_serve.detector() is None


@pytest.mark.parametrize(
    ("address", "is_own"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False)]
)
def test_loopback(address: str, is_own: bool):
    assert cli_serve.is_loopback(address) is is_own
