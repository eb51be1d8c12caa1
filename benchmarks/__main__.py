"""The command `python -m benchmarks COMMAND`: measure speed, memory and equality, most of them beside other programs.

`python -m benchmarks COMMAND --help` lists the options of a command.
"""

import ast
import logging
import os
import sys
from pathlib import Path

from benchmarks.command import make_app
from seq2seq.errors import UserError

COMMANDS = (
    "training", "checkouts", "profile", "rival", "speedrun", "decoding", "equality", "workers", "files", "serving",
    "attention", "transfers", "kernels", "shapes", "importing", "pipelines", "argos", "browser",
    "slopes", "starts", "documents", "modifiers", "masks", "typed", "sentences", "invented", "groups",
)  # fmt: skip


def show_help() -> None:
    """Print the commands, each with the first line of its module."""
    print(f"{__doc__}")
    for name in COMMANDS:  # the modules are not imported, because some need packages of extras
        source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        print(f"{name:10}  {(ast.get_docstring(ast.parse(source)) or '').splitlines()[0]}")


def main() -> None:
    """Run a command; report a user's mistake in one line."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name == "--help":
        return show_help()
    if name not in COMMANDS:
        sys.exit(f"error: there is no command {name}: choose {', '.join(COMMANDS)}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        make_app(name)(arguments, prog_name=f"python -m benchmarks {name}")
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
