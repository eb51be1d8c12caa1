import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi import FastAPI

from seq2seq.apps.serve.app import create_app
from seq2seq.apps.serve.service import Service
from seq2seq.cli import main
from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import install_command

pytestmark = pytest.mark.slow


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Run no server; the list receives the application's service, and the address where it would listen."""
    runs: list[tuple[Any, Any]] = []

    def run(application: Any, socket: Any, on_start: Callable[[], None]) -> None:
        runs.append((application.state.service, socket.getsockname()))
        socket.close()
        on_start()

    monkeypatch.setattr("seq2seq.apps.serve.server.run", run)
    return runs


@pytest.fixture
def serve(seq2seq: Any, bundle_folder: Path) -> Any:
    """Return a function that runs the command with options; it returns status and stderr."""

    def call(*options: str) -> tuple[int, str]:
        status, _, err = seq2seq("serve", "--model", bundle_folder, "--device", "cpu", "--port", "0", *options)
        return status, err

    return call


def test_only_this_machine_can_connect_unless_a_host_is_named(serve: Any, served: Any, monkeypatch: pytest.MonkeyPatch):
    status, err = serve()
    ((service, address),) = served
    assert status == 0
    assert address[0] == "127.0.0.1"
    assert "warning" not in err
    assert f"at http://127.0.0.1:{address[1]} (" in err
    assert service.api_key is None
    assert "warning: 0.0.0.0 is open to the network and no --api-key is set" in serve("--host", "0.0.0.0")[1]
    monkeypatch.setenv("SEQ2SEQ_API_KEY", "k")
    assert "warning" not in serve("--host", "0.0.0.0")[1]
    assert served[2][0].api_key == "k"


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(serve: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seq2seq.cli.shared.load", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, err = serve("--port", str(port))
    assert (status, err.startswith(f"error: cannot listen on 127.0.0.1 port {port}")) == (1, True)


def test_options_become_limits_and_allowed_hosts(serve: Any, served: Any, monkeypatch: pytest.MonkeyPatch):
    hosts: list[str] = []

    def create(service: Service, *, allowed_hosts: list[str], **_: object) -> FastAPI:
        hosts.extend(allowed_hosts)
        return create_app(service)

    monkeypatch.setattr("seq2seq.apps.serve.app.create_app", create)
    sizes = ("--char-limit", "77", "--batch-limit", "5", "--max-batch", "3", "--waiting-chars", "88", "--timeout", "9")
    serve(*sizes, "--host", "localhost", "--allowed-host", "a.example", "--allowed-host", "b.example")
    limits = served[0][0].limits
    assert (limits.char_limit, limits.batch_limit, limits.max_batch, limits.timeout) == (77, 5, 3, 9.0)
    assert limits.waiting_chars == 88
    assert served[0][0].most_alternatives == 2  # the bundle's beam is 3
    assert hosts == ["localhost", "a.example", "b.example"]


def run_command(monkeypatch: pytest.MonkeyPatch, command: Callable[[], None]) -> object:
    """Run a function as a command of its own; return what the program ends with."""
    application = typer.Typer()
    application.command()(command)
    monkeypatch.setattr(sys, "argv", ["seq2seq"])
    with pytest.raises(SystemExit) as left:
        main(application)
    return left.value.code


def test_the_log_says_where_a_request_failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail() -> None:
        try:
            raise RuntimeError("the model broke")
        except RuntimeError as error:  # as uvicorn does
            logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)

    run_command(monkeypatch, fail)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: Exception in ASGI application"
    assert lines[1].startswith("Traceback")
    assert lines[-1] == "RuntimeError: the model broke"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("en\x9b\x1b]0;x\x07 👩\u200d🔬"), "en??]0;x? 👩\u200d🔬"),
        (PermissionError(13, "Permission denied", "a\x1b/b"), "a?/b: Permission denied"),
    ],
)
def test_no_message_has_characters_that_a_terminal_obeys(monkeypatch, capsys, error, message):
    def warn() -> None:
        logging.getLogger("seq2seq").warning("odd\n%s", "\x1b[2J\u202e")
        raise error

    assert run_command(monkeypatch, warn) == f"error: {message}"
    assert capsys.readouterr().err == "warning: odd ?[2J?\n"


def test_without_the_packages_it_says_what_to_install(serve: Any, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("seq2seq.apps.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert serve() == (1, f"error: this needs the package fastapi: {install_command('serve')}\n")
