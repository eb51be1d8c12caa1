"""XLIFF and TMX: every unit without a target gets one, with the inline markup of its source; the rest stays."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]  # has no stubs
from shouting import shout_all

from seq2seq.apps.documents import xml
from seq2seq.apps.documents.document import translate_document

Run = Callable[..., str]

XLIFF = """<?xml version='1.0' encoding='UTF-8'?>
<!-- note --><xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:m="urn:m" version="1.2">
  <file original="a.html" source-language="en-US" datatype="html" m:a="1"{language}><body>
    <trans-unit id="1">
    <source>Click <g id="1">here &amp; <x id="2"/>now</g>, {{name}} &lt;b&gt;.</source>{0}<note>n</note></trans-unit>
    <trans-unit id="2" translate="no"><source>Do not</source></trans-unit>
    <trans-unit id="3"><source>Cat</source><target state="final">Gato</target></trans-unit>
    <trans-unit id="4">
      <source>A <ph id="1">&lt;br/&gt;</ph> b</source>
      <seg-source><mrk mtype="seg" mid="0">A <ph id="1">&lt;br/&gt;</ph> b</mrk></seg-source>{1}
      <alt-trans><source>A</source><target>B</target></alt-trans>
    </trans-unit>
    <trans-unit id="5" xml:space="preserve"><source xml:lang="en">One,
  two</source>{2}</trans-unit>
    <group translate="no"><trans-unit id="6"><source>Nor this</source></trans-unit></group>
    <trans-unit id="7"><source>One,
      two</source>{3}</trans-unit>
  </body></file>
</xliff>"""


def test_xliff_gets_the_targets_it_lacks(run: Run):
    before = XLIFF.format("", "", "", '<target state="new">x</target>', language="")
    after = XLIFF.format(
        '\n    <target>CLICK <g id="1">HERE &amp; <x id="2"/>NOW</g>, {name} &lt;b&gt;.</target>',
        '\n      <target><mrk mtype="seg" mid="0">A <ph id="1">&lt;br/&gt;</ph> B</mrk></target>',
        '<target xml:lang="es">ONE,\n  TWO</target>',
        "<target>ONE, TWO</target>",
        language=' target-language="es"',
    )
    assert run(".xlf", before) == after
    assert run(".xliff", after, lambda texts: ["again" for _ in texts]) == after


@pytest.mark.parametrize(
    ("states", "is_kept"),
    [
        ("new needs-translation needs-l10n needs-adaptation needs-review-translation needs-review-l10n", False),
        ("translated signed-off final x-own", True),
    ],
)
def test_a_stale_target_is_translated_where_its_state_asks_for_it(run: Run, states: str, is_kept: bool):
    unit = '<trans-unit><source>&amp;Old</source><target state="{}">x</target></trans-unit>'
    units = [unit.format(state) for state in states.split()]
    after = (
        units
        if is_kept
        else ["<trans-unit><source>&amp;Old</source><target>&amp;OLD</target></trans-unit>"] * len(units)
    )
    text = '<xliff><file target-language="es">{}</file></xliff>'
    assert run(".xlf", text.format("".join(units))) == text.format("".join(after))


def test_xliff_of_version_2_is_translated_by_segment(run: Run):
    text = (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en"{0}><file id="f"><unit id="1">'
        '<originalData><data id="d">text</data></originalData><segment{1}><source>Click <pc id="1">here</pc>'
        '<ph id="2"/>.</source>{2}</segment><segment><source><mrk id="m" translate="no">Brand</mrk> new</source>{3}'
        "</segment></unit></file></xliff>"
    )
    after = run(".xlf", text.format("", ' state="initial"', "", ""))
    expected = text.format(
        ' trgLang="es"',
        ' state="translated"',
        '<target>CLICK <pc id="1">HERE</pc><ph id="2"/>.</target>',
        '<target><mrk id="m" translate="no">Brand</mrk> NEW</target>',
    )
    assert etree.canonicalize(after) == etree.canonicalize(expected)


def test_tmx_gets_the_language_it_lacks(run: Run):
    text = """<?xml version='1.0' encoding='UTF-8'?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US"/><body>
<tu tuid="1"><prop type="p">x</prop>
<tuv xml:lang="en-US" usagecount="1"><seg>Click <bpt i="1">{{b}}</bpt>here<ept i="1">{{/b}}</ept></seg></tuv>{0}</tu>
<tu><tuv xml:lang="en"><seg>Cat</seg></tuv><tuv xml:lang="es-ES"><seg>Gato</seg></tuv></tu>
<tu>
  <tuv xml:lang="fr"><seg>vieux</seg></tuv>
  <tuv lang="EN"><seg>old</seg></tuv>{1}
</tu>
<tu><tuv xml:lang="fr"><seg>seul</seg></tuv></tu>
</body></tmx>"""
    after = text.format(
        '\n<tuv xml:lang="es"><seg>CLICK <bpt i="1">{b}</bpt>HERE<ept i="1">{/b}</ept></seg></tuv>',
        '\n  <tuv xml:lang="es"><seg>OLD</seg></tuv>',
    )
    assert run(".tmx", text.format("", "")) == after
    assert run(".tmx", after, lambda texts: ["again" for _ in texts]) == after


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (".xlf", b"<xliff>", "it is damaged or no XML"),
        (".tmx", b"plain", "it is damaged or no XML"),
        (".tmx", b"<!--<?xml?>\n<!DOCTYPE tmx>\n<tmx/>\n<!--", "it is damaged or no XML: "),
        (".xlf", b"<tmx/>", "its outermost element is tmx, expected xliff"),
        (".xlf", b'<xliff><file source-language="fr"/></xliff>', "it has source-language=fr, but"),
        (".xlf", b'<xliff version="2.1" srcLang="en" trgLang="fr"/>', "it has trgLang=fr, but the model"),
        (".tmx", b'<?xml version="1.0" encoding="x-y"?><tmx/>', "unknown encoding: x-y: convert the file to UTF-8"),
        (
            ".tmx",
            b'<?xml version="1.0" encoding="ascii"?><tmx>\xf1</tmx>',
            "'ascii' codec can't decode byte .*: convert the file",
        ),
        (".tmx", b"<tmx>" + b"<a>" * 100, "its elements are nested more than 100 deep: take some out"),
    ],
)
def test_a_document_that_cannot_be_translated_is_refused_in_one_line(
    tmp_path: Path, name: str, data: bytes, message: str
):
    path = tmp_path / f"in{name}"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"in{name}: {message}") as caught:
        translate_document(path, path, shout_all, "en", "es")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == data


def test_external_entities_are_not_read(run: Run, tmp_path: Path):
    (tmp_path / "secret").write_text("SECRET")
    text = (
        f'<!DOCTYPE tmx [<!ENTITY e SYSTEM "{tmp_path}/secret">]><tmx><body><tu><tuv xml:lang="en"><seg>a &e; b</seg>'
        "</tuv></tu></body></tmx>"
    )
    found = run(".tmx", text)
    assert "SECRET" not in found
    assert "<seg>A &e; B</seg>" in found


@pytest.mark.parametrize("name", [".tmx", ".xlf"])
def test_what_xml_cannot_hold_is_left_out_of_translations(run: Run, name: str, caplog: pytest.LogCaptureFixture):
    texts = {
        ".tmx": '<tmx><body><tu><tuv xml:lang="en"><seg>one <hi>two</hi></seg></tuv></tu></body></tmx>',
        ".xlf": '<xliff><file><trans-unit id="1"><source>one <g id="2">two</g></source></trans-unit></file></xliff>',
    }
    found = run(name, texts[name], lambda texts: ["\0u\x08n\x1bo \ud800d\uffffos" for _ in texts])
    assert re.sub("<[^>]*>", " ", found.replace("one", "").replace("two", "")).split() == ["uno", "dos"]
    assert caplog.messages == ["5 control characters were left out of translations: documents cannot hold them"]


@pytest.mark.parametrize(
    ("name", "nested"),
    [
        (".tmx", '<tmx><body>{}</body></tmx>|<tu><tuv xml:lang="en"><seg>a{}</seg></tuv></tu>'),
        (".xlf", "<xliff><file>{}</file></xliff>|<trans-unit><source>a{}</source></trans-unit>"),
    ],
)
def test_units_within_units_are_not_multiplied(run: Run, name: str, nested: str):
    whole, unit = nested.split("|")
    text = ""
    for _ in range(17):
        text = unit.format(text)
    assert len(run(name, whole.format(text), list)) < 5000


UNUSUAL = """<?xml version='1.0'  encoding = "{encoding}" ?>
<!DOCTYPE x:xliff [<!ENTITY e "ñ">]>\r
<x:xliff   version = '1.2'\r\n  a="1>2\t&#10;&quot;" xmlns:x='urn:x' >
<x:file source-language="en"  target-language="es">\r
<!-- </x:xliff><trans-unit> --><x:trans-unit id='1'  >
  <x:source  xml:lang = 'en'>ñ <![CDATA[<one>]]>&e;<!-- c --><x:g id='&#49;'>two</x:g ><x:g/></x:source ></x:trans-unit>
\r<x:trans-unit><x:source/><x:target>{target}</x:target></x:trans-unit></x:file ></x:xliff>
<!-- </x:xliff> -->"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "latin-1"])
def test_all_but_the_targets_stays(tmp_path: Path, encoding: str):
    path = tmp_path / "in.xlf"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    text = mark + UNUSUAL.format(encoding=encoding.removesuffix("-be"), target="x")
    path.write_bytes(text.encode(encoding))
    translate_document(path, path, shout_all, "en", "es")
    source = "</x:source ></x:trans-unit>"
    target = """
  <x:target  xml:lang = 'es'>Ñ &lt;one&gt;&e;<!-- c --><x:g id='&#49;'>TWO</x:g ><x:g/></x:target></x:trans-unit>"""
    assert path.read_bytes().decode(encoding) == text.replace(source, source.replace("</x:trans-unit>", target))


def test_a_finished_document_stays_as_it_is(run: Run):
    text = UNUSUAL.format(encoding="utf-8", target="x").replace("id='1'", "translate='no'")
    text = text.replace('target-language="es"', "")
    assert run(".xlf", text) == text


def test_line_ends_stay_where_white_space_is_text(run: Run):
    text = '<xliff><file><trans-unit><source xml:space="preserve">one\r\ntwo&#13;</source></trans-unit></file></xliff>'
    target = '<target xml:space="preserve">ONE\r\nTWO&#13;</target>'
    assert run(".xlf", text) == text.replace("<file", '<file target-language="es"').replace("</tr", f"{target}</tr")


def test_line_ends_of_programs_stay(run: Run):
    text = (
        r'<xliff><file target-language="es"><trans-unit><source>one\ntwo c:\new</source>{}</trans-unit></file></xliff>'
    )
    assert run(".xlf", text.format("")) == text.format(r"<target>ONE\nTWO c:\new</target>")


def test_entities_are_not_expanded(run: Run):
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    unit = '<tmx><body><tu><tuv xml:lang="en"><seg>&e11; one</seg></tuv></tu></body></tmx>'
    text = f'<!DOCTYPE tmx [<!ENTITY e0 "x">{entities}]>{unit}'
    assert "<seg>&e11; ONE</seg>" in run(".tmx", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", ["<x/>", "<g>a</g>", "<!-- ñ -->", "a\n ", "&amp;", "<![CDATA[a]]>", "<mrk> </mrk>", "<bpt>a</bpt>"]
)
def test_the_time_to_read_a_document_grows_with_its_length(content: str):
    def seconds(length: int) -> float:
        unit = f"<trans-unit><source>{content * (length // len(content))}</source></trans-unit>"
        text = f"<xliff><file>{unit}{unit}</file></xliff>"
        start = time.process_time()
        document = xml.read_xliff(text, "en", "es")
        document.write(document.segments)
        return time.process_time() - start

    short, long = (min(seconds(length) for _ in range(3)) for length in (2_000, 16_000))
    assert long < 0.02 + 24 * short  # 8 times the text; quadratic time would be 64 times
