"""`python -m docs.remake` makes all that README.md and docs/ show of data/model; docs/why.ipynb is docs/why.md."""

import re
from pathlib import Path

import pytest

from docs import remake
from tests.documented import REPOSITORY

PAGES = {page: page.read_text(encoding="utf-8") for page in remake.PAGES}
MARKDOWN = PAGES[remake.WHY]
CARD = remake.CARD.read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+\.\d+")
PAGE = """It says:

```console
$ pip install it
$ greet \\
    Ana
an old answer
of two lines
$ greet Eva
another
```

```python
import this_is_not_run
```

```python
name = "Ana"
print(name)
```

```text
old
```

```python
print(name * 2)
```

```text
```
"""


def test_a_page_gets_the_outputs_of_its_commands_and_of_its_code() -> None:
    new = remake.remade(PAGE, lambda command: f"Hello, {command.split()[-1]}\n", {})
    assert "$ pip install it\n$ greet \\\n    Ana\nHello, Ana\n$ greet Eva\nHello, Eva\n```\n" in new
    assert re.findall(r"```text\n(.*?)```", new, re.S) == ["Ana\n", "AnaAna\n"]
    assert remake.remade(new, lambda command: f"Hello, {command.split()[-1]}\n", {}) == new


def test_all_that_is_shown_has_a_maker() -> None:
    assert remake.problems(PAGES, CARD) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```text\nEl gato.\n```\n", "the block `El gato.` has no maker"),
        ("*gato* takes 0.75 of *cat*.", "`takes 0.75`: print the share in a block"),
        ("![a](pictures/no.png)", "no.png does not exist"),
        ("41.9 BLEU ([card](../data/model/README.md))", "41.9 is not in data/model/README.md"),
    ],
)
def test_what_has_no_maker_is_named(text: str, problem: str) -> None:
    assert [problem in found for found in remake.problems({**PAGES, remake.DOCS / "new.md": text}, CARD)] == [True]


def test_a_picture_that_nobody_makes_or_shows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remake, "PICTURES", {"gone.png": "gone.png"})
    found = remake.problems(PAGES, CARD)
    assert "docs/pictures/why-keys.png has no maker: name it in PICTURES or ELSEWHERE" in found
    assert "docs/pictures/gone.png is on no page" in found


def test_a_picture_with_the_same_pixels_is_not_written(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    old, same, other = (tmp_path / name for name in ("old.png", "same.png", "other.png"))
    image.new("RGB", (3, 2), "red").save(old)
    image.new("RGB", (3, 2), "red").save(same, compress_level=0)
    image.new("RGB", (3, 2), "blue").save(other)
    before = old.read_bytes()
    assert (remake.write(old, same), old.read_bytes() == before) == (False, True)
    assert (remake.write(old, other), old.read_bytes() == before) == (True, False)


def test_notebooks_are_the_texts_as_they_are_now() -> None:
    for page, path in remake.NOTEBOOKS.items():
        assert path.read_text(encoding="utf-8") == remake.notebook_of(page, PAGES[page]), "run python -m docs.remake"


def test_the_measurements_are_those_of_the_lab() -> None:
    """Every name of an experiment with its difference and interval is a row of docs/lab.md."""
    lab = (REPOSITORY / "docs/lab.md").read_text(encoding="utf-8")
    quoted = re.findall(r"\(`(\w+)`, ([−+][\d.]+), ([−+][\d.]+) to\s+([−+][\d.]+)", MARKDOWN)
    assert len(quoted) >= 8
    for name, *numbers in quoted:
        difference, low, high = (number.replace("−", "-") for number in numbers)
        assert re.search(rf"^\| {name}<br>.*{re.escape(f'{difference} ({low} to {high})')}", lab, re.M), name


@pytest.mark.system
def test_the_model_gives_what_the_pages_show(tmp_path: Path) -> None:
    """Numbers may differ by rounding, which depends on the processor."""
    pictures = []
    for path, new in remake.remake(tmp_path):
        if isinstance(new, str):
            old = path.read_text(encoding="utf-8")
            assert NUMBER.sub("#", new) == NUMBER.sub("#", old), path
            numbers = [[float(number) for number in NUMBER.findall(text)] for text in (new, old)]
            assert numbers[0] == pytest.approx(numbers[1], rel=0.01, abs=0.02), path
        else:
            pictures.append(new)
    assert all(picture.stat().st_size > 10_000 for picture in pictures)
    assert len(pictures) == len(remake.PICTURES)
