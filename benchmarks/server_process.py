"""Start `seq2seq serve` in a separate process, as users do, and wait until the server answers."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).parents[1]


class ServerProcess:
    """A running server that ends with its `with` block.

    Attributes:
        url: the server's address.
        errors: lines of the server's standard error so far.
    """

    def __init__(self, model: Path, *options: str, **environment: str) -> None:
        """Start the server on a free port, with options of the command and variables of its environment.

        Raises:
            RuntimeError: the server does not start.
        """
        program = "import sys; from seq2seq.cli import main; main()"
        command = [sys.executable, "-c", program, "serve", "--model", str(model.resolve()), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *options],
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
        )
        self.errors: list[str] = []
        self.url = ""
        self._is_up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._is_up.wait(300) or not self.url:
            self.__exit__(None, None, None)
            raise RuntimeError(f"no server came up: {self.errors}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.rstrip())
            if found := re.search(r" at (http://\S+)", line):
                self.url = found[1]
                self._is_up.set()
        self._is_up.set()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the server, wait for its end, and return its exit status."""
        self.process.send_signal(number)
        status = self.process.wait(120)
        self._reader.join(10)
        return status

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
