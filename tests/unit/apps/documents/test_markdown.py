"""Only the words of a text change: its rendering has the same markup, and what is no text is byte for byte the same."""

import html
import re
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from markdown_it import MarkdownIt

Run = Callable[..., str]

TEXT = """---
title: Keep *this*
---
# A *fine* title #

Some text with `code`, **bold _both_** and a [link *to*](https://example.org/a_(b) "title") or [another][ref].
It goes on <b>here</b>, {name}: https://example.org/x_y &nbsp; 5 * 3, snake_case \\*not emphasis\\*, [ref] [ref][].

> A quotation
> in two lines.  
> After a hard break\\
and a lazy line.

1. 1
2. two
   - [ ] nested, ![image](a.png) ~~gone~~

| Head | `a\\|b` |
|:-----|---:|
| Cell | Cell |
|  | a \\| b **c** |

Second
======

```python
keep = "this"
```

    and this

<div>
keep
</div>

[ref]: https://example.org "kept"
"""


def render(text: str) -> str:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)


def shouted(page: str) -> str:
    """Write an HTML page's text in capitals, but for code, entities and addresses."""
    kept = r"<code[^>]*>.*?</code>|<div>.*?</div>|<[^<>]*>|\{name\}|https\S+|snake_case|&\w+;|\xa0|(?<=>)ref(?=<)"
    return "".join(
        part if i % 2 else part.upper() for i, part in enumerate(re.split(f"({kept})", page, flags=re.DOTALL))
    )


def flat(page: str) -> str:
    return re.sub(r"\s+", " ", page)


def test_a_text_keeps_all_but_its_words(run: Run):
    front, body = TEXT[:27], TEXT[27:]
    found = run(".md", TEXT)
    assert found.startswith(front)
    assert flat(render(found.removeprefix(front))) == flat(shouted(render(body)))


def test_what_is_no_text_is_byte_for_byte_the_same(run: Run):
    one_line = TEXT.replace(".\nIt goes", ". It goes").replace("quotation\n> in", "quotation in")
    assert run(".markdown", one_line).upper() == one_line.upper()


def test_a_text_that_does_not_change_keeps_its_lines(run: Run):
    assert run(".markdown", TEXT, list) == TEXT


def test_the_kind_of_a_note_stays_in_its_line(run: Run):
    assert run(".md", "> [!NOTE]\n> one\n> two\n") == "> [!NOTE]\n> ONE TWO\n"
    assert run(".md", "> [!Note]  \n> one\n") == "> [!Note]  \n> ONE\n"


INVENTED = ("*a*", "a_ _b", "[x](y)", "<b", "# a", "1. a", "- a", "> a", "a | b", "---", "=", "~~a~~", "1) a")


@pytest.mark.parametrize("invented", INVENTED)
@pytest.mark.parametrize("text", ["text", "- text", "> text", "# text", "| a |\n|---|\n| text |"])
def test_markup_that_a_model_invents_is_text(run: Run, invented: str, text: str):
    found = run(".md", f"{text}\n", lambda texts: [invented if one == "text" else one for one in texts])
    assert render(found) == render(f"{text}\n").replace("text", html.escape(invented))


def test_words_that_move_take_their_markup_along(run: Run):
    aligned = ("El gato negro.", [(0, 0), (2, 1), (1, 2)])
    found = run(".md", "The **black** [cat](x).\n", lambda texts: [aligned for _ in texts])
    assert found == "El [gato](x) **negro**.\n"


def test_a_text_whose_markup_would_change_stays(run: Run, caplog: pytest.LogCaptureFixture):
    found = run(".md", "*One* **two**\n\nthree\n", lambda texts: ["uno" for _ in texts])
    assert found == "*One* **two**\n\nuno\n"
    assert "not translated, since its translation '****uno**' has other markup: '*One* **two**'" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected", "read"),
    [
        (
            "The cat sees ![the dog](i.png)\nthe ball.",
            "THE CAT SEES ![the dog](i.png) THE BALL.",
            "The cat sees the ball.",
        ),
        ("one <br>\ntwo", "ONE <br> TWO", "one two"),
        ("one <!-- c -->\n  two", "ONE <!-- c --> TWO", "one two"),
        ("[![build](b.svg)](ci) the status", "[![build](b.svg)](ci) THE STATUS", "the status"),
        ("> a [link\n> text](u) b", "> A [LINK TEXT](u) B", "a link text b"),
        ("***both*** **a *b* c** __e__", "***BOTH*** **A *B* C** __E__", "both a b c e"),
        ("a ~~b~~ ![x [y](z)](i) c", "A ~~B~~ ![x [y](z)](i) C", "a b c"),
    ],
)
def test_words_and_markup_keep_their_places(run: Run, text: str, expected: str, read: str):
    model = Mock(side_effect=lambda texts: [one.upper() for one in texts])
    assert run(".md", f"{text}\n", model) == f"{expected}\n"
    model.assert_called_once_with([read])


LONG = {
    "underscores": "a" + "_" * 20_000 + "b",
    "paragraphs": "one two\n\n" * 2000,
    "links": "[a](b) " * 1000,
    "badges": "[![x](y)](z) " * 1000,
    "cells": "|a|\n|-|\n" + "|x|\n" * 2000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_long_documents_are_read_in_linear_time(run: Run, name: str):
    assert run(".md", f"{LONG[name]}\n", list).split() == LONG[name].split()
