"""Start `seq2seq serve` in a separate process, as users do, and wait until the server answers."""

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.processes import REPOSITORY, SEQ2SEQ


class ServerProcess:
    """A running server at the address `url`, which ends with its `with` block."""

    def __init__(self, model: Path, *options: str, **environment: str) -> None:
        """Start the server on a free port, with options of the command and variables of its environment."""
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115  (closed at the end of the `with` block)
        command = [*SEQ2SEQ, "serve", "--model", str(model.resolve()), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=self._log, cwd=REPOSITORY, env={**os.environ, **environment})
        end = time.monotonic() + 300
        while not (announced := re.search(r" at (http://\S+)", "\n".join(self.errors))):
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"no server came up: {self.errors}")
            time.sleep(0.05)
        self.url = announced[1]
        self._start_bytes = Path(self._log.name).stat().st_size

    @property
    def errors(self) -> list[str]:
        """Lines of the server's standard error so far."""
        if not self._log.closed:
            self._lines = Path(self._log.name).read_text(encoding="utf-8").splitlines()
        return self._lines

    @property
    def log_bytes(self) -> int:
        """Bytes that the running server has written to its standard error since it answers."""
        return Path(self._log.name).stat().st_size - self._start_bytes

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the server, wait for its end, and return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(120)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._lines = self.errors
        self._log.close()
