"""Text in the wrong language is found in whole corpora and, on request, pair by pair; nothing else is taken for it."""

import codecs
import itertools
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pytest
from european import SENTENCES
from preparing import TRAIN, run, write

from seq2seq.data.clean import clean
from seq2seq.data.corpus import Pair, open_corpora
from seq2seq.data.languages import check_sides, load_identifier, seem_to_be, warn_of_target
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from tests.refusing import refuses

EVERYDAY = Path(__file__).parents[3] / "data/bundled/everyday.train.tsv"
LINES = [line.split("\t") for line in EVERYDAY.read_text(encoding="utf-8").splitlines()]
OWN: list[Pair] = [(src, tgt) for src, tgt in LINES[:1000]]
TEXTS = {language: text.split("\n") for language, text in SENTENCES.items()}
TEXTS |= {"en": [pair[0] for pair in OWN[:20]], "es": [pair[1] for pair in OWN[:20]]}
INVENTED = {
    "reversed": [text[::-1] for text in TEXTS["es"]],
    "reversed words": [" ".join(word[::-1] for word in text.split()) for texts in TEXTS.values() for text in texts],
    "cipher": [codecs.encode(text, "rot13") for text in TEXTS["en"]],
    "digits": [str(number**9) for number in range(99)],
    "code": ["for i in range(n): assert a[i] is not None and b, (a, i)", "return {k: v for k, v in x.items()}"] * 20,
    "names": ["Los Angeles, El Paso, Las Vegas", "The Hague; La Paz, Barcelona 3, Madrid 2; https://a.org/x?y"] * 20,
}


@pytest.fixture(params=["with py3langid", "without"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    load_identifier.cache_clear()
    if request.param == "without":
        monkeypatch.setitem(sys.modules, "py3langid.langid", None)


@pytest.mark.usefixtures("package")
def test_a_text_seems_to_be_in_its_own_language_alone():
    for name, texts in (TEXTS | INVENTED).items():
        assert [language for language in [*TEXTS, "xx"] if seem_to_be(texts, language, "zz")] == [name] * (
            name in TEXTS
        )
    for name, texts in TEXTS.items():
        for text in texts:
            assert [language for language in TEXTS if seem_to_be([text], language, "zz")] in ([], [name])
    for start in range(0, 1000, 20):  # every twenty lines are enough
        sides = list(zip(*OWN[start : start + 20], strict=True))
        assert [seem_to_be(side, a, b) for side in sides for a, b in (("en", "es"), ("es", "en"))] == [1, 0, 0, 1]
    assert not seem_to_be(TEXTS["en"], "en-GB", "en-US")
    assert not seem_to_be(TEXTS["en"] + TEXTS["es"], "en", "es")
    assert not seem_to_be([], "en", "es")


def test_other_languages_need_the_package():
    pytest.importorskip("py3langid", reason="the extra langid is not installed")
    polish = ["Wczoraj pogoda była tak zła, że nikt nie chciał wyjść z domu.", "Nauczyciel czytał dzieciom bajki."]
    assert seem_to_be(polish, "pl-PL", "de")
    assert not seem_to_be([text[::-1] for text in polish], "pl", "de")
    assert not seem_to_be(TEXTS["de"], "pl", "de")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.en+a.es"])
def test_exactly_swapped_sides_are_refused(root: Path, name: str):
    write(root / "a.tsv", [(tgt, src) for src, tgt in OWN])
    (root / "a.csv").write_text("en,es\n" + "".join(f'"{tgt}","{src}"\n' for src, tgt in OWN), encoding="utf-8")
    for language, side in (("en", 1), ("es", 0)):
        (root / f"a.{language}").write_text("".join(f"{pair[side]}\n" for pair in OWN), encoding="utf-8")
    message = (
        rf"^{name.replace('+', '.')} has its sides swapped: es is the source, en the target, as in .* → .*\[es,en\]"
    )
    refuses(message, run, root, train=[name])
    if name == "a.tsv":
        refuses(message, run, root, test=[name])
        assert run(
            root, train=["train.tsv", name], validation=[name], src_lang="es", tgt_lang="en", languages=["es", "en"]
        )


@pytest.mark.parametrize(
    ("pairs", "warning"),
    [
        ([(src, src) for src, _ in OWN], "a.tsv looks like en on both sides, as in "),
        ([(tgt, tgt + "!") for _, tgt in OWN], "a.tsv looks like es on both sides, as in "),
        ([("Source", "Target"), *OWN], "a.tsv begins with a header, 'Source' → 'Target', which is read as a pair"),
        ([("english_text", "spanish_text"), *OWN], "a.tsv begins with a header, "),
        ([("es", "en"), *OWN], "a.tsv begins with a header, "),
        ([("English", "Inglés"), *OWN], None),
        (TRAIN, None),
        *(
            (list(zip(TEXTS["en"], texts, strict=False)), None)
            for texts in (TEXTS | INVENTED).values()
            if texts[0] != TEXTS["en"][0]
        ),
    ],
)
def test_one_language_on_both_sides_or_a_header_is_one_warning(pairs, warning, caplog):
    assert list(check_sides(pairs, "a.tsv", DataConfig())) == pairs
    assert len(caplog.messages) == (warning is not None)
    assert caplog.text.count("\n") == len(caplog.messages)
    assert (warning or "") in caplog.text


def test_swapped_sides_are_refused_before_a_large_corpus_is_read():
    endless = itertools.cycle((tgt, src) for src, tgt in OWN)
    refuses("a.tsv has its sides swapped", lambda: list(check_sides(endless, "a.tsv", DataConfig())))


def test_source_texts_in_the_language_of_the_model_are_one_warning(caplog: pytest.LogCaptureFixture):
    for texts in (*TEXTS.values(), *INVENTED.values(), [TEXTS["en"][0]], ["¿Qué?"], []):
        warn_of_target(texts, "en", "es", "hint")
    warn_of_target(["¿Qué?", "El perro de mi hermana está en la casa."], "en", "es", "swap")
    first, second = caplog.messages
    assert first.startswith("the texts look like es, but the model translates en→es: hint (the first is '")
    assert second.endswith("swap (the first is 'El perro de mi hermana está en la casa.')")


@pytest.mark.slow
def test_no_real_corpus_gives_an_alarm_and_all_but_a_list_of_names_are_found_if_they_are_swapped(
    shared_data: Path, caplog: pytest.LogCaptureFixture
):
    specs = [str(shared_data / pattern) for pattern in ("corpora/*.tsv.xz", "tatoeba/*.tsv")]
    corpora = [corpus for spec in specs for corpus in open_corpora(spec, None, DataConfig())]
    assert len(corpora) > 90
    swapped: list[str] = []
    for corpus in corpora:
        pairs = list(check_sides(corpus.pairs(), corpus.name, DataConfig()))
        try:
            list(check_sides(((tgt, src) for src, tgt in pairs), corpus.name, DataConfig()))
        except UserError:
            swapped.append(corpus.stem)
    assert caplog.messages == []
    assert {corpus.stem for corpus in corpora} - {*swapped} == {"cldr_iso_names"}


EN = "The weather was so bad yesterday that nobody wanted to leave the house."
ES = "Ayer hacía tan mal tiempo que nadie quería salir de la casa."
UNKNOWN = {"tgt_lang": "xx", "languages": ["en", "xx"]}
DE = "Gestern war das Wetter so schlecht, dass niemand das Haus verlassen wollte."


@pytest.fixture(scope="module")
def langid() -> None:
    pytest.importorskip("py3langid", reason="the extra langid is not installed")


@pytest.mark.slow
@pytest.mark.usefixtures("langid")
def test_a_side_in_another_language_does_not_fit_if_it_is_long_enough_and_sure():
    program = "x = 1; y = 2; z = 3; assert x + y == z; "
    fitting = [(EN, ES), ("Guten Morgen, meine Damen", "Good morning, ladies"), (f"{program}print(z)", f"{program}(z)")]
    others = [(EN, EN.replace("bad", "cold")), (DE, ES), (EN, DE)]
    settings, counts = DataConfig(language_filter=True), Counter[str]()
    assert list(clean([*fitting, *others], settings, counts)) == fitting
    assert counts["language"] == len(others)
    settings.language_characters = 5
    assert not list(clean([("Guten Morgen, meine Damen und Herren", ES)], settings, counts))


@pytest.mark.slow
@pytest.mark.usefixtures("langid")
def test_an_unknown_language_is_refused(root: Path):
    refuses(r"data.tgt_lang=xx is no language that py3langid knows", run, root, language_filter=True, **UNKNOWN)


@pytest.mark.slow
def test_the_missing_package_is_one_line(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata, "version", Mock(side_effect=metadata.PackageNotFoundError))
    refuses(r"needs the package py3langid: pip install -e '.*\[langid\]'$", run, root, language_filter=True)


@pytest.mark.slow
@pytest.mark.usefixtures("langid")
def test_preparation_counts_them_under_their_own_reason(root: Path):
    with (root / "train.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{EN}\t{ES}\n{EN}\t{DE}\n")
    limits = {"language_filter": True, "language_characters": 55}  # made-up words are shorter
    (report,) = run(root, **limits).report["files"]
    assert report["language"] == 1
    (unfiltered,) = run(root).report["files"]
    assert "language" not in unfiltered
