"""Translation memories are read as a stream; what is markup in them is left out, what is dangerous refused."""

import gzip
import lzma
from pathlib import Path

import pytest

from seq2seq.data.corpus import read_pairs
from seq2seq.data.formats import read_tmx
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from tests.refusing import refuses

MEMORY = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"><note>no &amp; text</note></header><body>
<tu><note>n</note><tuv xml:lang="en-GB"><prop type="x">p</prop><seg>Who is &lt;it&gt;?</seg></tuv>
  <tuv xml:lang="es"><seg>¿Quién es?</seg></tuv></tu>
<tu><tuv xml:lang="es"><seg>Haz <bpt i="1">&lt;b&gt;<sub>x</sub></bpt><hi>clic</hi><ept i="1">y</ept>
   aquí</seg></tuv>
  <tuv lang="EN_us"><seg>Click<ph>z</ph> here</seg></tuv><tuv xml:lang="en"><seg>second</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only</seg></tuv><tuv xml:lang="fr"><seg>seulement</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg/></tuv><tuv xml:lang="es"><seg></seg></tuv></tu>
</body></tmx>"""
PAIRS = [("Who is <it>?", "¿Quién es?"), ("Click here", "Haz clic aquí"), ("", "")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_pairs_are_read_in_every_encoding_that_xml_tells(tmp_path: Path, encoding: str):
    path = tmp_path / "a.tmx"
    path.write_bytes(MEMORY.format(encoding=encoding.removesuffix("-sig")).encode(encoding))
    assert list(read_tmx(path, DataConfig())) == PAIRS
    assert list(read_tmx(path, DataConfig(src_lang="fr", tgt_lang="en-US"))) == [("seulement", "Only")]


def test_a_placeholder_between_words_becomes_a_space_as_a_line_break_would(tmp_path: Path):
    unit = (
        '<tu><tuv xml:lang="en"><seg>One<ph>&lt;br/&gt;</ph>two<ph/>.</seg></tuv><tuv xml:lang="es"><seg>Uno <ph/>dos'
    )
    (tmp_path / "a.tmx").write_text(f"<tmx><body>{unit}</seg></tuv></tu></body></tmx>")
    assert list(read_tmx(tmp_path / "a.tmx", DataConfig())) == [("One two.", "Uno dos")]


def test_a_memory_is_a_corpus_like_any_other(tmp_path: Path):
    memory = MEMORY.format(encoding="utf-8").encode()
    for ending, content in (("", memory), (".gz", gzip.compress(memory)), (".xz", lzma.compress(memory))):
        (tmp_path / f"a.tmx{ending}").write_bytes(content)
        assert list(read_pairs(f"*.tmx{ending}", str(tmp_path), DataConfig())) == PAIRS
    with pytest.raises(UserError, match=r"is empty: it has no sentence pair"):
        list(read_pairs("a.tmx", str(tmp_path), DataConfig(src_lang="de")))


def big_memory(num_units: int) -> bytes:
    unit = '<tu><tuv xml:lang="en"><seg>Text &#233; {0}.</seg></tuv><tuv xml:lang="es"><seg>Frase {0}.</seg></tuv></tu>'
    return ("<tmx><body>" + "".join(unit.format(i) for i in range(num_units)) + "</body></tmx>").encode()


def test_a_memory_is_read_as_a_stream_even_in_one_line(tmp_path: Path):
    (tmp_path / "a.tmx").write_bytes(big_memory(3000).removesuffix(b"</body></tmx>") + b"<broken>>&</tmx>")
    pairs = read_tmx(tmp_path / "a.tmx", DataConfig())
    assert [next(pairs) for _ in range(2000)][-1] == ("Text é 1999.", "Frase 1999.")
    refuses("is damaged or no XML", lambda: list(pairs))


BOMB = b'<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><body/></tmx>'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tmx", b'<?xml version="1.0" encoding="x-y"?><tmx/>', r"a.tmx declares an encoding that cannot"),
        ("a.tmx", b'<?xml version="1.0" encoding="euc-jp"?><tmx/>', r"a.tmx declares an encoding"),
        ("a.tmx", BOMB, r"a.tmx:1 declares the entity a, which could make a small file huge"),
        ("a.tmx", b"<html></html>", r"a.tmx:1 begins with <html>, expected <tmx>"),
        ("a.tmx", b"plain", r"a.tmx:1 is damaged or no XML: syntax error"),
        ("a.tmx", b"<tmx>\n<body>\n<tu>", r"a.tmx:3 is damaged or no XML: no element found"),
        ("a.tmx.xz", lzma.compress(big_memory(99))[:-9], r"a.tmx.xz is damaged or no xz data"),
    ],
)
def test_a_defect_is_one_line_that_names_the_file(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    refuses(message, lambda: list(read_tmx(tmp_path / name, DataConfig())))
