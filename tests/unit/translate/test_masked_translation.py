"""A masked string of the source is in the translation, exactly, whatever the model does with its symbol."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from echo import TEXTS, EchoModel

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.search.types import Hypothesis
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.glossary import Glossary
from seq2seq.text.masks import Masked
from seq2seq.text.tokenizer import train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.kept import Found, insert, keep
from seq2seq.translate.segmenter import Segment, Segmenter
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text

LINES = [
    "Ella ve https://x.org/a  ya.",
    "⟨3⟩ {name} Ж Ella ve `a  b`.",
    "{a} {a} ve, {a}!",
    "😀",
    "Ella ve",
    "",
    "Ella ve {a}, {b}, {c}, {d}, {e} ya.",
    "niños " * 60 + "https://x.org/ñ " * 3,
]


class ForgetfulModel(EchoModel):
    """Translates a text into itself without the symbols of masks, which all have the second-best score."""

    forgotten: tuple[int, ...] = ()

    def encode(self, src):
        kept = [[token for token in row if token not in self.forgotten] for row in src.tolist()]
        width = max(map(len, kept))
        return super().encode(torch.tensor([row + [0] * (width - len(row)) for row in kept]))


class Copying:
    """An engine of another kind: translates a text into itself without symbols; phrases follow, if there is a stop."""

    def __init__(self, forgotten, stop=None):
        self.forgotten, self.stop = forgotten, stop

    def search(self, sources, settings, n_best, banned=(), *, on_step=None):
        for index, source in enumerate(sources):
            ids = [token for token in source.ids if token not in self.forgotten]
            ids += [token for phrase in source.phrases if self.stop for token in (*phrase, self.stop)]
            yield [(index, [Hypothesis(ids, 0.0, 0.0)])]


def train(masks: int) -> Tokenizers:
    config = TokenizerConfig(vocab_size=300 + masks, masks=masks)
    return Tokenizers.joint(train_tokenizer([f"{a} {b}" for a in TEXTS for b in TEXTS], config))


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train(masks=4)


@pytest.fixture(scope="module")
def spelling() -> Tokenizers:
    """A vocabulary without symbols, which spells unknown characters as bytes."""
    return train(masks=0)


def translator(tokenizers: Tokenizers, kind: type, **search: Any) -> Translator:
    model = Copying(tokenizers.target.mask_ids) if kind is Copying else kind(tokenizers.target.vocab_size)
    if isinstance(model, ForgetfulModel):
        model.forgotten = tuple(tokenizers.target.mask_ids)
    settings: dict[str, Any] = {"beam": 3, **search}
    return Translator(model, tokenizers, search=SearchConfig(**settings), trained_length=60)


SEARCHES = pytest.mark.parametrize(
    "search", [{}, {"beam": 1}, {"early_stopping": True}, {"sampling": True}, {"mbr": 2, "repair": True}], ids=str
)


@SEARCHES
@pytest.mark.parametrize("kind", [EchoModel, ForgetfulModel, Copying])
def test_every_masked_string_is_in_the_translation(tokenizers, kind, search):
    for line, translation in zip(LINES, translator(tokenizers, kind, **search).translate(LINES), strict=True):
        strings = tokenizers.masker.mask(line).strings
        assert all(translation.count(string) >= strings.count(string) for string in strings), (line, translation)
        assert "⟨" not in translation.replace("⟨3⟩", "", 1)
        if kind is EchoModel and "mbr" not in search:
            assert translation == (line if "`" in line else " ".join(line.split()))


class Losing(Copying):
    """An engine whose model spells strings, and leaves out every token that only they have."""

    def __init__(self, tokenizers):
        known = {token for row in tokenizers.source.encode(TEXTS) for token in row}
        super().__init__(set(range(tokenizers.source.vocab_size)) - known)


@SEARCHES
@pytest.mark.parametrize("kind", [EchoModel, Losing])
def test_a_model_without_symbols_keeps_the_strings(spelling, kind, search):
    engine = Losing(spelling) if kind is Losing else EchoModel(spelling.target.vocab_size)
    plain = Translator(engine, spelling, search=SearchConfig(**{"beam": 3, **search}), trained_length=60)
    lines = [*LINES, "Ella ve `a  b` la \x013\x01."]
    for line, translation in zip(lines, plain.translate(lines), strict=True):
        strings = spelling.find_strings(line).strings
        assert all(translation.count(string) >= strings.count(string) for string in strings), (line, translation)


@pytest.mark.parametrize(
    ("text", "kept", "model", "alignment", "expected"),
    [
        ("Hello ⟨1⟩ there ⟨2⟩.", "{a} 😀", "Hola .", None, "Hola {a} 😀."),
        ("Wait ⟨1⟩ then.", "{a}", "Espera.", None, "{a} Espera."),
        ("Black ⟨1⟩ cats", "{a}", "Gatos negros", [(1, 0), (0, 1)], "{a} Gatos negros"),
        ("Big ⟨1⟩ black cats", "{a}", "Gatos negros grandes", [(2, 0), (1, 1), (0, 2)], "Gatos {a} negros grandes"),
        ("⟨1⟩: the ⟨2⟩", "{a} {b}", "el ⟨2⟩", None, "{a} el {b}"),
        ("the ⟨1⟩", "{a}", "", None, "{a}"),
    ],
)
def test_a_lost_string_goes_before_the_word_that_is_aligned_with_the_next_one(text, kept, model, alignment, expected):
    masked = Masked(text, tuple(kept.split()))
    assert masked.restore(insert(masked, model, alignment)) == expected


def test_alignments_count_the_words_of_strings_that_were_put_in(spelling):
    losing = ForgetfulModel(spelling.target.vocab_size)
    losing.forgotten = tuple(spelling.source.encode(["`{}<>"])[0][1:])
    for model in (EchoModel(spelling.target.vocab_size), losing):
        ((best,),) = Translator(model, spelling).translate_nbest(["Ella ve `a b  c` la {x} niños."], 1, align=True)
        assert best.text == "Ella ve `a b  c` la {x} niños."
        assert best.alignment is not None
        words = {translated for _, translated in best.alignment}
        assert words >= {0, 1, 5, 7}
        assert max(words) == 7


def test_a_text_of_mere_strings_is_its_own_translation(spelling):
    losing = Translator(Losing(spelling), spelling)
    assert losing.translate(["{a}: {b}"]) == ["{a}: {b}"]
    echo = Translator(ForgetfulModel(spelling.target.vocab_size), spelling)
    echo.engine.model.forgotten = tuple(spelling.source.encode(["{a}"])[0])  # pyright: ignore[reportAttributeAccessIssue]
    assert echo.translate_nbest(["{a}: {b}"], 1, align=True)[0][0].alignment == []


def test_all_of_the_n_best_have_the_strings(tokenizers):
    for translations in translator(tokenizers, ForgetfulModel).translate_nbest(["Ella ve {a} ya.", "{b} ve"], 3):
        assert len(translations) == 3
        assert all("{" in translation.text for translation in translations)


def test_a_prefix_and_a_phrase_may_contain_a_string(tokenizers):
    echo = translator(tokenizers, EchoModel)
    text = Text("Ella ve x.org ya.", prefix="Un x.org", phrases=["x.org"])
    (translation,) = echo.translate([text])
    assert translation.startswith("Un x.org")
    assert translation.count("x.org") == 1


def test_a_term_within_a_string_is_no_term(tokenizers):
    echo, glossary = translator(tokenizers, EchoModel), Glossary({"milk": "leche"})
    assert echo.translate(["Ella ve https://milk.org/milk"], glossary=glossary) == ["Ella ve https://milk.org/milk"]
    assert "leche" in echo.translate(["Ella has milk."], glossary=glossary)[0]


def test_terms_that_follow_as_sentences_take_the_places_of_their_words(tokenizers):
    appending = Translator(Copying([], tokenizers.target.encode(["Ella."])[0][-1]), tokenizers, trained_length=60)
    lines, terms = ["Ella ve {a} la, ve.", Text("Ella ve.", phrases=["la"])], Glossary({"Ve": "ven", "ella": "una"})
    assert appending.translate(lines, glossary=terms) == ["una ven {a} la, ven.", "Ella ve. la. una. ven."]


def test_a_given_translation_is_scored_with_symbols_and_aligned_by_the_words_of_the_texts(tokenizers):
    model = build_model(ModelConfig(d_model=8, num_heads=2, d_ff=8), tokenizers.target.vocab_size)
    reader, line = Translator(model, tokenizers, trained_length=60), "Ella ve `a b  c` la {x}."
    (score,) = reader.score([line], [line], align=True)
    assert [token for token in score.tokens if "⟨" in token] == ["⟨1⟩", "⟨2⟩"]
    assert score.alignment is not None
    assert {word for _, word in score.alignment} <= {0, 1, 2, 5, 6}


NUMBERED = ["Call 0 1 2 3 4 5 6 7 8 9 now: it is < late >.", "Llama ya a las 10:45 o siete.", "At 9, Es tarde veinte."]
BUNDLE = Path(__file__).parents[2] / "golden" / "bundle"
CAPITALS = "THE CAT SEES THE MILK."


def learn(**settings: Any) -> Tokenizers:
    config = TokenizerConfig(**settings)
    return Tokenizers.joint(train_tokenizer([f"{a} {b}" for a in NUMBERED for b in NUMBERED], config))


@pytest.fixture(scope="module")
def masking() -> Tokenizers:
    return learn(vocab_size=300, masks=2, user_symbols=["<len:5>"])


def translate(
    masking: Tokenizers, pairs: Sequence[tuple[str | Text, str]], **options: Any
) -> tuple[list[str], list[list[str]]]:
    """Translate texts as pairs say, and return the translations, with symbols, and what each second search requires.

    A second search writes what it requires behind the translation, 666 with more digits, and refuses 777.
    """
    required = list[list[str]]()

    def search(segments: Sequence[Segment]) -> list[Found]:
        phrases = [masking.target.decode(list(map(list, segment.source.phrases))) for segment in segments]
        if any("777" in of_segment for of_segment in phrases):
            raise UserError("a text is too short for its phrases")
        required.extend(phrases)
        return [write(segment, of_segment) for segment, of_segment in zip(segments, phrases, strict=True)]

    def write(segment: Segment, phrases: Sequence[str] = ()) -> Found:
        translation = pairs[(segment.source.key >> 16) - 1][1]
        return [(Hypothesis([1], -1.0, -1.0), " ".join([translation, *phrases]).replace("666", "6660"))]

    texts = [Text(text) if isinstance(text, str) else text for text, _ in pairs]
    (segments,) = zip(*Segmenter(masking, None).segments(texts), strict=True)
    settings: dict[str, Any] = {"has_phrases": True, "tgt_lang": "es", **options}
    found = keep(segments, list(map(write, segments)), search, None, masking, **settings)
    return [best[1] for best, *_ in found], required


def test_a_lost_number_is_required_with_lost_symbols(masking: Tokenizers) -> None:
    pairs = [("Call 555 now.", "Llama ya."), ("{a} at 10:45 or 7", "A las 11:45 o siete"), ("At 9, {b}", "A las 9")]
    texts, required = translate(masking, pairs)
    assert texts == ["Llama ya. 555", "A las 11:45 o siete ⟨1⟩ 10:45", "A las 9 ⟨1⟩"]
    assert required == [["555"], ["⟨1⟩", "10:45"], ["⟨1⟩"]]


@pytest.mark.parametrize("options", [{"tgt_lang": None}, {"has_phrases": False}], ids=str)
def test_numbers_are_not_required_unless_the_caller_wants_it_and_the_engine_can(masking, options) -> None:
    assert translate(masking, [("Call 555 now.", "Llama ya.")], **options) == (["Llama ya."], [])


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("At 55 {a}.", "A las 55 ⟨1⟩."),
        ("<len:5> it is late.", "Es tarde."),
        (Text("At 20", phrases=["veinte"]), "A las veinte"),
    ],
    ids=str,
)
def test_a_translation_that_has_all_that_it_can_have_is_not_searched_again(masking, text, translation) -> None:
    assert translate(masking, [(text, translation)]) == ([translation], [])


def test_a_number_that_the_model_cannot_produce_is_not_required() -> None:
    masking = learn(vocab_size=43, byte_fallback=False)
    assert translate(masking, [("At ௫௫ or 55", "Es tarde.")]) == (["Es tarde. 55"], [["55"]])


def test_a_second_search_that_finds_nothing_lost_is_not_taken(masking: Tokenizers) -> None:
    texts, required = translate(masking, [("Call 666 now.", "Llama ya."), ("Call 555 or 666", "Llama")])
    assert texts == ["Llama ya.", "Llama 555 6660"]
    assert required == [["666"], ["555", "666"]]


def test_what_a_search_refuses_stays_as_it_was_and_others_do_not_depend_on_it(masking: Tokenizers) -> None:
    pairs = [("Call 555 now.", "Llama ya."), ("Call 777 now.", "Llama ya.")]
    assert translate(masking, pairs) == (["Llama ya. 555", "Llama ya."], [["555"]])


def test_a_translator_repairs_only_if_it_is_told() -> None:
    translator = Translator.load(BUNDLE, "cpu")
    usual, texts = "The cat sees the milk.", [CAPITALS, "The dog eats 7777777 cats today.", "\x01", "", "5", "{a}{b}"]
    assert not translator.search.repair
    found = translator.translate(texts, repair=True)
    assert found[0] == translator.translate([usual])[0].upper() != translator.translate([CAPITALS])[0]
    assert "7777777" in found[1]
    assert "7777777" not in translator.translate(texts)[1]
    assert translator.translate([usual], repair=True) == translator.translate([usual])
    (aligned,), (plain,) = (
        translator.translate_nbest([text], 1, align=True, repair=True)[0] for text in (CAPITALS, usual)
    )
    assert aligned.alignment == plain.alignment
    changes: list[dict[str, Any]] = [{"early_stopping": True}, {"mbr": 3}, {"beam": 1}, {"no_repeat_ngram": 2}]
    for options in changes:
        assert len(translator.translate(texts, repair=True, **options)) == len(texts)


def test_samples_and_begun_texts_keep_their_capitals() -> None:
    translator = Translator.load(BUNDLE, "cpu")
    drawn = translator.translate([CAPITALS], sampling=True)
    assert translator.translate([CAPITALS], sampling=True, repair=True) == drawn
    begun = Text(CAPITALS, prefix="El perro")
    assert translator.translate([begun], repair=True) == translator.translate([begun])
