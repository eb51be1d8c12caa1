"""Starts train.py over and over at the price of one start: a process that has imported everything forks for each run.

The forks are processes of their own, with their own environment and standard error, and can be killed like any other.
Run as a program it takes one job a line (JSON) from standard input and answers with one line.
"""

import contextlib
import json
import logging
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

REPOSITORY = Path(__file__).parents[2]


class Finished:
    """A run that has ended."""

    def __init__(self, status: int, output: str) -> None:
        """status is the exit status, or minus the signal; output is what it wrote to both standard streams."""
        self.status, self.output = status, output
        self.errors = [line for line in output.splitlines() if line.startswith("error: ")]


class Launcher:
    """The forking process, seen from the tests."""

    def __init__(self) -> None:
        self.server = _start()

    def train(
        self, *overrides: str, cwd: Path, until: str | None = None, send: int = signal.SIGKILL, **environment: str
    ) -> Finished:
        """Run train.py to its end; or to where it logs the given words, and there it gets a signal.

        It sends the signal to itself, so that nothing more happens before it, however busy the machine.
        """
        job = {"argv": overrides, "cwd": str(cwd), "until": until, "send": int(send), "environment": environment}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        try:
            return Finished(*json.loads(self.server.stdout.readline()))
        except BaseException:  # the test's time is over
            self.close()
            self.server = _start()
            raise

    def complete(self, *overrides: str, cwd: Path, **environment: Any) -> Finished:
        """Run train.py to its end, which must be a success."""
        result = self.train(*overrides, cwd=cwd, **environment)
        assert result.status == 0, result.output
        return result

    def close(self) -> None:
        """End it, and what its runs have left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.server.pid, signal.SIGKILL)
        self.server.communicate()


def _start() -> "subprocess.Popen[str]":
    environment, pipe = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}, subprocess.PIPE
    command = [sys.executable, "-W", "ignore", __file__]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True)


def serve() -> None:
    """Import what training needs, then fork for each job."""
    sys.path.insert(0, str(REPOSITORY))
    import matplotlib.figure  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401

    import seq2seq.cli.train
    import seq2seq.training.run  # noqa: F401

    # Hydra would silence all loggers that exist already.
    logging.Logger.disabled = property(lambda logger: False, lambda logger, value: None)  # type: ignore[assignment]

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _become_train(job, writing)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as file:
            output = file.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answers.write(json.dumps((status, output)) + "\n")
        answers.flush()


def _send_when_logged(words: str, number: int) -> None:
    """Have this process get a signal as soon as it has logged a line with the words, once."""
    emit, is_sent = logging.StreamHandler.emit, False

    def emit_and_send(self: "logging.StreamHandler[TextIO]", record: logging.LogRecord) -> None:
        nonlocal is_sent
        emit(self, record)
        if not is_sent and words in record.getMessage():
            is_sent = True
            os.kill(os.getpid(), number)

    logging.StreamHandler.emit = emit_and_send


def _become_train(job: dict[str, Any], output: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, 256)
    os.chdir(job["cwd"])
    os.environ.update(job["environment"])
    if job["until"]:
        _send_when_logged(job["until"], job["send"])
    program = str(REPOSITORY / "train.py")
    sys.argv = [program, *job["argv"]]
    status = 0
    try:
        before = job["environment"].get("BEFORE")
        if before:  # code of a test that breaks something in this process
            exec(before, {})
        runpy.run_path(program, run_name="__main__")
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        if isinstance(exit_.code, str):
            print(exit_.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 70
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
