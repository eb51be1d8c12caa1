"""What has no translation gets one; comments, contexts, flags and finished translations stay."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.errors import UserError

Run = Callable[..., str]

CATALOGUE = r"""# A comment.
msgid ""
msgstr ""
"Language: \n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. For translators.
#: a.c:1
#, c-format
msgid "%d file in {folder}"
msgid_plural "%d files in {folder}"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
#| msgid "Older"
msgid "Old <b>cat</b>\n"
msgstr "Perro viejo\n"

msgctxt "menu"
msgid "Open"
msgstr "Abrir"

msgctxt "door"
msgid ""
"First line\n"
"  second line"
msgstr ""

#~ msgid "gone"
#~ msgstr "ido"
"""


def test_a_catalogue_gets_the_translations_it_lacks(run: Run):
    found = run(".po", CATALOGUE)
    expected = CATALOGUE.replace('[0] ""', '[0] "%d FILE IN {folder}"').replace('[1] ""', '[1] "%d FILES IN {folder}"')
    expected = expected.replace('#, fuzzy\n#| msgid "Older"\n', "").replace("Perro viejo", "OLD <b>CAT</b>")
    expected = expected.replace('line"\nmsgstr ""', 'line"\nmsgstr ""\n"FIRST LINE\\n"\n"  SECOND LINE"')
    assert found == expected.replace("Language: ", "Language: es")
    assert run(".po", found, lambda texts: ["again" for _ in texts]) == found


HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
PLURAL = '\nmsgid "file"\nmsgid_plural "files"\nmsgstr[0] ""\n'


@pytest.mark.parametrize(("count", "forms"), [(1, ["FILES"]), (2, ["FILE", "FILES"]), (3, ["FILE", "FILES", "FILES"])])
def test_every_plural_form_is_filled(run: Run, count: int, forms: list[str]):
    found = run(".po", HEADER + f'"Plural-Forms: nplurals={count}; plural=0;\\n"\n' + PLURAL)
    filled = [f'msgstr[{i}] "{form}"' for i, form in enumerate(forms)]
    assert found.split('files"\n')[1].splitlines() == filled


@pytest.mark.parametrize("field", ["", '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n'])
def test_a_template_gets_the_plural_forms_that_it_lacks(run: Run, field: str, caplog: pytest.LogCaptureFixture):
    found = run(".po", HEADER.replace("UTF-8", "CHARSET") + field + PLURAL + 'msgstr[1] ""\n')
    assert found.endswith('files"\nmsgstr[0] "FILE"\nmsgstr[1] "FILES"\n')
    assert found.count("charset=UTF-8") == found.count('"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n') == 1
    assert caplog.messages == [
        "its header has no plural forms: nplurals=2; plural=(n != 1); is written, as for English and Spanish"
    ]


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("_File", "Archivo", "_Archivo"),
        ("Save &As…", "Guardar como…", "Gu&ardar como…"),
        ("~Edit", "Editar", "~Editar"),
        ("E_xit", "¡Salir!", "¡_Salir!"),
        ("E&xit", "Exit", "E&xit"),
        ("Zoom &In", "Ampliar", "Ampl&iar"),
        ("_Open %s", "Abrir %s u otro", "Abrir %s u _otro"),
        ("Find && &Replace", "Buscar && reemplazar", "Buscar && &reemplazar"),
        (r"&Find\tCtrl+F", "Buscar\tCtrl+F", r"&Buscar\tCtrl+F"),
        ("&Save (Ctrl+S)", "Guardar (Ctrl+S)", "&Guardar (Ctrl+S)"),
        ("&%1 _{a} &1", "&%1 _{a} &1", "&%1 _{a} &1"),
        ("R&D, AT&T", "R&D, AT&T", "R&D, AT&T"),
        ("a & b", "a & b", "a & b"),
        ("the snake_case", "el snake_case", "el snake_case"),
        ("&quot;Yes&quot; ~/bin", "&quot;Sí&quot; ~/bin", "&quot;Sí&quot; ~/bin"),
    ],
)
def test_the_mark_of_a_key_goes_before_a_letter(run: Run, source: str, translation: str, expected: str):
    found = run(".po", HEADER + f'\nmsgid "{source}"\nmsgstr ""\n', lambda texts: [translation for _ in texts])
    assert found.endswith(f'msgstr "{expected}"\n')


def test_a_text_that_is_a_path_is_not_opened(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret.po"
    secret.write_text('msgid ""\nmsgstr ""\n\nmsgid "password"\nmsgstr "hunter2"\n', encoding="utf-8")
    with pytest.raises(UserError, match="it is no PO catalogue"):
        run(".po", str(secret))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "a\nnonsense', "it is no PO catalogue: Syntax error"),
        (HEADER.replace("UTF-8", "ISO-8859-1"), "it declares charset=ISO-8859-1, expected UTF-8: convert it"),
    ],
)
def test_a_catalogue_that_cannot_be_read_is_refused(run: Run, text: str, message: str):
    with pytest.raises(ValueError, match=rf"in.po: {message}"):
        run(".po", text)


@pytest.mark.parametrize(
    ("character", "written"),
    [("\u2028", "\u2028"), ("\x85", "\x85"), ("\f", r"\f"), ("\v", r"\v"), ("\x1c", "\x1c")],
)
def test_characters_that_end_lines_elsewhere_are_text(run: Run, character: str, written: str):
    text = HEADER + f'\nmsgid "one{character}two"\nmsgstr ""\n'
    assert run(".po", text, list).endswith(f'msgid "one{character}two"\nmsgstr "one{written}two"\n')


UNUSUAL = r"""#
#:
#:  a.c:1    b.c:2
#, fuzzy, c-format  ,  no-wrap
#| msgid  "older"
  msgid  "one"
msgstr  ""

"uno"  {}


msgid "an entry that polib would wrap, because it is longer than the width of a page"
msgstr ""
#~| msgid "x"
#~ msgid  "gone"
#~ msgstr "ido"
# The last comment."""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_all_but_the_translations_stays(run: Run, line_end: str):
    text = UNUSUAL.replace("{}", "\t").replace("\n", line_end)
    expected = text.replace(" fuzzy,", "").replace(f'#| msgid  "older"{line_end}', "")
    expected = expected.replace(f'msgstr  ""{line_end * 2}"uno"', 'msgstr "ONE"')
    assert run(".po", text, lambda texts: ["ONE"] * len(texts)) == expected.replace('msgstr ""', 'msgstr "ONE"')


def test_a_finished_catalogue_stays_as_it_is(run: Run):
    text = f'#\n{HEADER}\n#~ msgid "a"\n#~ msgstr "b"\n\n\nmsgid  "one"\nmsgstr "uno"\n# end'
    assert run(".po", text) == text


def test_a_long_last_line_is_read_in_linear_time(run: Run):
    text = HEADER + f'\nmsgid "one"\nmsgstr "{"x" * 300_000}"'
    assert "x" * 300_000 in run(".po", text)
