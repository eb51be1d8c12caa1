"""Remake what README.md and docs/ show of `data/model`: outputs of commands and code, pictures, the notebook.

    python -m docs.remake          # then read `git diff`, and the sentences beside each change
    python -m docs.remake --dry    # changes nothing: lists what is remade, and fails if something has no maker

In a page, these outputs are replaced:

- the output below a command in a `console` block; bash runs the command beside this clone's files, without runs/, so
  the model is `data/model`, and port 8000 is that of a server with it;
- a `text` block directly below a `python` block, which is run. The blocks of a page share their names.

`PICTURES` and `ELSEWHERE` say who makes the rest.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from docs._ext import notebook

REPOSITORY = Path(__file__).parents[1]
DOCS, MODEL = REPOSITORY / "docs", REPOSITORY / "data/model"
WHY, CARD = DOCS / "why.md", MODEL / "README.md"
NOTEBOOKS = {WHY: DOCS / "why.ipynb", DOCS / "inside.md": REPOSITORY / "examples/first.ipynb"}
PAGES = [REPOSITORY / "README.md", *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
PORT_8000 = "http://127.0.0.1:8000"
WHY_PICTURES = ["mixture", "keys", "query", "scale", "heads", "order", "mask", "cross"]  # by docs/_ext/pictures.py
PICTURES = {  # in docs/pictures/, and the file in the folder of the commands that becomes it
    "attention.png": "attention/attention.png",  # by the first command of docs/attention.md
    "alignment.png": "attention/alignment.png",
    "emerging-dark.gif": "emerging-dark.gif",  # from emerging.gif
    **{f"why-{name}.png": f"why-{name}.png" for name in WHY_PICTURES},
}
ELSEWHERE = {  # pictures, and first lines of `text` blocks: the command that makes them, or what the block is
    "docs/pictures/emerging.gif": "seq2seq attend --over, after the training command in docs/attention.md",
    "docs/lab*/curves.png": "seq2seq lab report",
    "docs/lab_lstm/lengths.png": "seq2seq lab lengths",
    "Before the first update": "python train.py data=files, as docs/automatic.md says",
    "2,000 sentences; baseline: rival.es": "seq2seq evaluate",
    "500 sentences: BLEU *": "seq2seq analyse",
    "errors.py, device.py *": "the packages, in the order of their imports",
    "e?i, j? = *": "equations",
    "The ball is blue.\t*": "a user's file",
}
_CODE = re.compile(r"^```python\n((?:(?!```).*\n)*)```\n\n```text\n(?:(?!```).*\n)*```\n", re.M)
_CONSOLE = re.compile(r"^```console\n(?:(?!```).*\n)*```\n", re.M)
_STEP = re.compile(r"^(\$ (?:.*\\\n)*.*\n)(?:(?!\$ |```).*\n)+", re.M)  # a command with its output
_TEXT = re.compile(r"^```text\n(.*)\n", re.M)
_BLOCK = re.compile(r"^```.*\n(?:(?!```).*\n)*```\n", re.M)
_PICTURE = re.compile(r"(?:\]\(|src(?:set)?=\")([^)\"\s]+\.(?:png|gif))")
_SHARE = re.compile(r"\btakes? (?:less than )?0?\.\d+")
_FIGURE = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")


def remade(text: str, run: Callable[[str], str], names: dict[str, Any]) -> str:
    """Return a page with new outputs; `run` runs a command, and names get what the page's code defines."""

    def run_code(block: re.Match[str]) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block[1], "a block of the page", "exec"), names)
        return f"```python\n{block[1]}```\n\n```text\n{printed.getvalue()}```\n"

    def run_step(step: re.Match[str]) -> str:
        return step[1] + run(step[1].removeprefix("$ "))

    return _CODE.sub(run_code, _CONSOLE.sub(lambda block: _STEP.sub(run_step, block[0]), text))


def remake(folder: Path) -> Iterator[tuple[Path, str | Path]]:
    """Yield each file that shows the model, with its new text, or with a picture that was drawn in the empty folder.

    Raises:
        RuntimeError: a command fails.
    """
    from benchmarks.server_process import ServerProcess
    from docs._ext import pictures

    for name in ("data", "translate.py"):
        (folder / name).symlink_to(REPOSITORY / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    names: dict[Path, dict[str, Any]] = {}
    with ServerProcess(MODEL, "--device", "cpu", OMP_NUM_THREADS="1") as server, contextlib.chdir(folder):

        def run(command: str) -> str:
            words = ["bash", "-c", command.replace(PORT_8000, server.url)]
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
            if done.returncode or not done.stdout:
                raise RuntimeError(f"{command}gives no output: {done.stderr}")
            return done.stdout.removesuffix("\n") + "\n"

        for page in PAGES:
            names[page] = {"__name__": page.stem}
            text = remade(page.read_text(encoding="utf-8"), run, names[page])
            yield page, text
            if page in NOTEBOOKS:
                yield NOTEBOOKS[page], notebook_of(page, text)
    pictures.draw_all(names[WHY], folder)
    pictures.darken(DOCS / "pictures/emerging.gif", folder / "emerging-dark.gif")
    yield from ((DOCS / "pictures" / name, folder / file) for name, file in PICTURES.items())


def notebook_of(page: Path, text: str) -> str:
    """Return a page as the notebook of NOTEBOOKS, whose links begin at the notebook's folder."""
    folder = os.path.relpath(DOCS, NOTEBOOKS[page].parent)
    return notebook.notebook(text if folder == "." else re.sub(r"\]\((?!https?:)", f"]({folder}/", text))


def write(path: Path, new: str | Path) -> bool:
    """Write a new text or picture, unless the file has the same text or pixels; return whether it was written."""
    if isinstance(new, str):
        is_new = path.read_text(encoding="utf-8") != new
        path.write_text(new, encoding="utf-8")
        return is_new
    if is_new := not path.exists() or _pixels(path) != _pixels(new):
        shutil.copyfile(new, path)
    return is_new


def _pixels(path: Path) -> list[bytes]:
    from PIL import Image, ImageSequence

    with Image.open(path) as image:
        return [frame.convert("RGBA").tobytes() for frame in ImageSequence.Iterator(image)]


def remade_parts() -> list[str]:
    """Return what the command remakes: each output with its command, and each picture."""
    parts = []
    for page in PAGES:
        text, name = page.read_text(encoding="utf-8"), page.relative_to(REPOSITORY)
        steps = [step[1].split("\n")[0] for block in _CONSOLE.findall(text) for step in _STEP.finditer(block)]
        parts += [f"{name}: {step}" for step in steps]
        parts += [f"{name}: {len(_CODE.findall(text))} blocks of code"] * bool(_CODE.search(text))
    return [*parts, *(f"docs/pictures/{name}" for name in PICTURES), "docs/why.ipynb", "examples/first.ipynb"]


def problems(pages: Mapping[Path, str], card: str) -> list[str]:
    """Return what the texts of the pages show that no command makes, and what has a maker and is shown nowhere."""
    found, used, shown = [], set(), set()
    for path, text in pages.items():
        page = path.relative_to(REPOSITORY)
        on_page = [(path.parent / name).resolve() for name in _PICTURE.findall(text)]
        shown |= {picture.relative_to(REPOSITORY).as_posix() for picture in on_page}
        found += [f"{page}: {picture.name} does not exist" for picture in on_page if not picture.is_file()]
        for line in _TEXT.findall(_CODE.sub("", text)):
            makers = {key for key in ELSEWHERE if fnmatch(line, key)}
            used |= makers
            found += [f"{page}: the block `{line}` has no maker: put its code above it, or name it in ELSEWHERE"] * (
                not makers
            )
        prose = _BLOCK.sub("", text)
        found += [f"{page}: `{share}`: print the share in a block" for share in _SHARE.findall(prose)]
        for paragraph in re.split(r"\n(?=\n|\||- )", prose):
            if "data/model/README.md" in paragraph:
                figures = [figure for figure in _FIGURE.findall(paragraph) if figure not in card]
                found += [f"{page}: {figure} is not in {CARD.relative_to(REPOSITORY)}" for figure in figures]
    drawn = {f"docs/pictures/{name}" for name in PICTURES}
    files = {path.relative_to(REPOSITORY).as_posix() for path in DOCS.rglob("*") if path.suffix in (".png", ".gif")}
    files = {file for file in files if not file.startswith("docs/_build/")}
    for file in sorted(files | drawn):
        makers = {key for key in ELSEWHERE if fnmatch(file, key)}
        used |= makers
        found += [f"{file} has no maker: name it in PICTURES or ELSEWHERE"] * (not makers and file not in drawn)
        found += [f"{file} is on no page"] * (file not in shown)
    return found + [f"ELSEWHERE: {key} is nowhere" for key in ELSEWHERE.keys() - used]


def main() -> None:
    """Read the command line; remake, or list."""
    parser = argparse.ArgumentParser(description="Remake what README.md and docs/ show of data/model.")
    parser.add_argument("--dry", action="store_true", help="change nothing: list what is remade and what has no maker")
    if parser.parse_args().dry:
        print(*remade_parts(), *(f"not remade: {key}: {maker}" for key, maker in ELSEWHERE.items()), sep="\n")
        texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
        if found := problems(texts, CARD.read_text(encoding="utf-8")):
            sys.exit("\n".join(found))
        return
    import torch

    torch.set_num_threads(1)  # as the commands: the last digits depend on it
    with tempfile.TemporaryDirectory() as folder:
        for path, new in remake(Path(folder)):
            print(f"{path.relative_to(REPOSITORY)}: {'written' if write(path, new) else 'the same'}")


if __name__ == "__main__":
    main()
