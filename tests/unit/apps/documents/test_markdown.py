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


DIALECTS = [  # what is translated is in capitals
    ":::tip TITLE\nBODY.\n:::\nTEXT", "::: note\nONE\n\n- TWO\n:::", ":::info[A **TITLE**]{#x}\n\nBODY\n\n:::",
    "::::a ONE {open}\n:::b\nTWO\n:::\n::::", "/// note | TITLE\nBODY\n///",
    "::: a.b.c\n    options:\n      x: y\n\nTEXT", '!!! note "A TITLE"\n    ONE.\n\n    TWO.\n\nTEXT',
    "!!! note\n    BODY", '!!! tip inline end "TITLE"\n\n    - ONE\n    - TWO', '??? note "TITLE"\n    BODY',
    '???+ note ""\n    BODY', '=== "ON TAB"\n\n    ONE\n\n===! "TAB"\n\n    ```\n    x\n    ```',
    "> [!note] TITLE\n> BODY", "> [!note]- TITLE\n>\n> BODY", "> [!note]\n> BODY", "> [!note]  \n> BODY",
    "```{note}\nBODY\n```", ":::{admonition} TITLE\n:class: x\n\nBODY\n:::", ":::{toctree}\na\n:::",
    "```{code} x\na\n```", "TERM\n:   MEANING\n\n    MORE", "ONE\nTWO\n: MEANING\n: OTHER", "**TERM**\n\n:   MEANING",
    "ONE[^a] TWO.[^b] X[^a], Y[^b].\n\n[^a]: NOTE\n[^b]: OTHER\n\n    MORE", "|A[^a]|\n|-|\n|B[^b]|", "A WORD[^c-d]",
    "# TITLE {#x}", "## TITLE { .a #b }", "TITLE {: .a }\n---",
    "A ![x](y){ width=3 } [B](c){:target='_blank'} **D**{.e} `f`{.g}",
    "TEXT\n{: .a }\n\nMORE", "{: #a }\n# TITLE", "- ONE\n{:.a}", "{:toc}\n\nTEXT",
    "[toc]\n\n--8<-- 'a b'\n\n(a)=\n# TITLE", "{% a %}\nONE\n{% if b %}\nTWO {{ c }}.\n{% endif %}",
    '{{< a b="c d" >}}\n\nONE', "{{% a %}}\nONE\n{{% /a %}}", "[ONE]({{ a }}{% link b c %}) TWO",
    "`{{` AND `}}` {{ a*b }} C*", "+++\na = 'b'\n+++\n\nTEXT", "---\na: b\n---\n\nTEXT",
    "SEE [[a page|a b]] AND ![[c]].", "A $a^2$ AND $$x * y * z$$, $5 OR $6", "$$\na_b\n$$\n\nTEXT",
    "m<sup>2</sup> IN h<sub>2</sub>o", "A NAME<sup>2</sup> HERE", "[A](b)[C](d)", "[A](b) | [C](d)", "X [A](b)[C](d) Y",
    "X **[A](b)**[C](d) *[E](f)*/*[G](h)* **I**—*J*",
    "X [A](b)/[C](d), [E](f)", "1<sup>st</sup> TEXT<sup>[1](#x)</sup>, OTHER", "\\begin{a}\nb\n\\end{a}",
    "[![a](b)][c] [![a](b)](c)\nTEXT", "A {_b_} {c*d} __init__ {e}*F", "https://a.b/c?d=*e* F*", "<kbd>a</kbd> B",
    "import a from 'b'\n\nTEXT", "- [ ] ONE\n- [x] TWO",
    "A :material-a-b:{ .c } B :+1: C 10:30:45", "PRESS ++ctrl+a++ OR ++'b c'++, C++ AND I++, ++NEW++ ++f1++",
    "A\n*[b]: C\n*[d e]: F\n\n- G", "A {--B--}{++*C* D++}{>>e. f <g<<} {~~H I~>J~~} {==K==} ~> L",
    "%%\na\n\nb\n%%\n\nA. %%b c.%% D, %% E. ^e-f", "% a\n% b\n\nC", "A ==*B* C== D == E", "{++A {--B C++} D",
    "A \\(b=c\\) \\(D E\\) x^2^ h~2~o.<sup>[1](#x)</sup> F\n\n\\[ a = b \\]",
    "{++A. B++}\n\n{>>c<<}\n\n- {--D--}\n- E", "USE {--x} OR {--Y--} {++ Z", "A {~~B~>~~} {==C {++D++}==}",
    "<?php if ($a > 1): ?>\nONE <?= $b->c ?> TWO <%= d > e %>\n\n<?php\n\n$f ?>\n\nTHREE",
    "```{figure} a\n:name: b\n\nCAPTION\n```\n\n```{note}\nA {{ b }}\n```\n\n{{ c }}\n\nD",
]  # fmt: skip
JAVASCRIPT = [
    "---\na: b\n---\nimport a from 'b'\n\nexport const c = {\n  d: 'e',\n\n  f,\n}\n\n# TITLE",
    "{/* a */}\n\nA {b + 1} C", "<a b={[{c: 'd'}]}>\n<b>\nTEXT\n</b>\n</a>",
    "<a\n  b='c'\n  d={() => {e}}\n>\n    TEXT\n</a>", "A <b c={d} /> E <b>F</b>",
    "- <b/> ONE <c/>\n- TWO", "---\na: b\n---\nimport {a,\n  b} from 'c'\nexport {d} from 'e'\n\nTEXT",
]  # fmt: skip


@pytest.mark.parametrize(("text", "name"), [*((x, ".md") for x in DIALECTS), *((x, ".mdx") for x in JAVASCRIPT)])
def test_the_marks_of_dialects_stay(run: Run, text: str, name: str):
    assert run(name, f"{text.lower()}\n") == f"{text}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](#two) [b][c]\n\n[c]: #two\n\n# two", "[a](#zwei) [b][c]\n\n[c]: #zwei\n\n# zwei"),
        ("<p><a href='#two'>b</a>\n\n# two", "<p><a href='#zwei'>b</a>\n\n# zwei"),
        ("`](#two)` [a](#two 'b') [c](#d)\n\ntwo\n===", "`](#zwei)` [a](#zwei 'b') [c](#d)\n\nzwei\n==="),
        ("[a](#two)\n\n```\n[a](#two)\n```\n# two", "[a](#zwei)\n\n```\n[a](#two)\n```\n# zwei"),
        ("!!! a\n    [a](#two)\n\n# two #", "!!! a\n    [a](#two)\n\n# zwei {#two} #"),
        (":::{note}\n[a](#two)\n:::\n\n# two", ":::{note}\n[a](#zwei)\n:::\n\n# zwei"),
        (":::{note}\nb\n:::\n{#d .c}\n[a](#two)\n\n# two", ":::{note}\nb\n:::\n{#d .c}\n[a](#zwei)\n\n# zwei"),
        ("# b {#c}\n\n[a](#two) [a](#c)\n\ntwo\n---", "# b {#c}\n\n[a](#two) [a](#c)\n\nzwei {#two}\n---"),
    ],
)
def test_links_to_headings_find_them(run: Run, text: str, expected: str):
    assert run(".md", f"{text}\n", lambda texts: [one.replace("two", "zwei") for one in texts]) == f"{expected}\n"


INLINE = ("*a*", "a_ _b", "[x](y)", "<b", "a | b", "~~a~~")
BLOCKS = ("# a", "1. a", "- a", "> a", "---", "=", "1) a", "!!! a", ":::a")


@pytest.mark.parametrize("invented", INLINE + BLOCKS)
@pytest.mark.parametrize("text", ["text", "- text", "> text", "# text", "| a |\n|---|\n| text |"])
def test_markup_that_a_model_invents_is_text(run: Run, invented: str, text: str):
    found = run(".md", f"{text}\n", lambda texts: [invented if one == "text" else one for one in texts])
    assert render(found) == render(f"{text}\n").replace("text", html.escape(invented))


@pytest.mark.parametrize(
    ("name", "text", "order", "expected"),  # order: of the words
    [
        (".md", "The **black** [cat](x)", "021", "The [cat](x) **black**"),
        (".html", "see <b>Red</b><i>car</i> here", "3210", "here <i>car</i> <b>Red</b> see"),
        (".html", "<b>O</b><i>nce</i> <b>New</b><i>hot</i>", "210", "<i>hot</i> <b>New</b> <b>O</b><i>nce</i>"),
        (".md", "**W**orld cat{++s++} re[do](u)es **c**", "3210", "**c** re[do](u)es cat{++s++} **W**orld"),
        (".md", "{--[a](u)--}{++[b](v)++} now", "210", "now {++[b](v)++} {--[a](u)--}"),
        (".md", "Use {--flag} here", "210", "here {--flag} Use"),
        (".md", "a {~~b c~>d e~~} f", "021435", "a {~~c b~>e d~~} f"),
        (".md", "a {~~b c ~> d~~} f", "43210", "a {~~b c ~> d~~} f"),  # a new word is never shown as an old one
    ],
)
def test_words_that_move_take_their_markup_along(run: Run, name: str, text: str, order: str, expected: str):
    aligned = [(int(old), new) for new, old in enumerate(order)]
    found = run(name, text, lambda texts: [(" ".join(texts[0].split()[old] for old, _ in aligned), aligned)])
    assert found == expected


def test_a_text_whose_markup_would_change_stays(run: Run, caplog: pytest.LogCaptureFixture):
    found = run(".md", "*One* **two**\n\nthree\n", lambda texts: ["uno" for _ in texts])
    assert found == "*One* **two**\n\nuno\n"
    assert "not translated, since its translation '****uno**' has other markup: '*One* **two**'" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected", "read"),
    [
        ("The cat ![the dog](i.png)\nthe ball.", "THE CAT ![the dog](i.png) THE BALL.", "The cat the ball."),
        ("one <br>\ntwo", "ONE <br> TWO", "one two"),
        ("one <!-- c -->\n  two", "ONE <!-- c --> TWO", "one two"),
        ("[![build](b.svg)](ci) the status", "[![build](b.svg)](ci) THE STATUS", "the status"),
        ("> a [link\n> text](u) b", "> A [LINK TEXT](u) B", "a link text b"),
        ("![a\nb](c) d", "![a b](c) D", "d"),
        ("a <b\nc='d'>e</b>", "A <b c='d'>E</b>", "a e"),
        ("import the 'a' here", "IMPORT THE 'A' HERE", "import the 'a' here"),
        ("***both*** **a *b* c** __e__", "***BOTH*** **A *B* C** __E__", "both a b c e"),
        ("see [](a.md) and b", "SEE [](a.md) AND B", "see \x010\x01 and b"),
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
